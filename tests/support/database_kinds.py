"""Marks that name the database a test runs on."""

import pytest

# For what has nothing to do with the kind of database.
SQLITE_ONLY = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
