"""A fleet as in the integration tests."""

from tests.integration.conftest import fleet, make_fleet, make_postgres, spare_databases

__all__ = ["fleet", "make_fleet", "make_postgres", "spare_databases"]
