"""A fleet as in the integration tests."""

from tests.integration.conftest import fleet, make_fleet

__all__ = ["fleet", "make_fleet"]
