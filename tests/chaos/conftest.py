from tests.support.fixtures import make_postgres, spare_databases

__all__ = ["make_postgres", "spare_databases"]
