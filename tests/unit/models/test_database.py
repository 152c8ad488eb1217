"""DATABASE_URL: what people write is understood, what cannot work is refused, and a password is never repeated."""

import pytest

from models.database import Database, database_url
from models.errors import DatabaseUrlError


@pytest.mark.spec("D2")
@pytest.mark.parametrize(
    ("written", "used"),
    [
        ("postgres://me:pw@db/x", "postgresql+psycopg://me:pw@db/x"),
        ("postgresql://me:pw@db:5433/x", "postgresql+psycopg://me:pw@db:5433/x"),
        ("postgresql+psycopg://db/x", "postgresql+psycopg://db/x"),
        ("postgresql+psycopg2://db/x", "postgresql+psycopg://db/x"),
        ("postgresql+asyncpg://db/x", "postgresql+psycopg://db/x"),
        ("postgresql://db/x?sslmode=require", "postgresql+psycopg://db/x?sslmode=require"),
        ("postgresql://me:p%40ss%2Fw@db/x", "postgresql+psycopg://me:p%40ss%2Fw@db/x"),
        ("postgresql:///x?host=/run/postgresql", "postgresql+psycopg:///x?host=%2Frun%2Fpostgresql"),
        ("sqlite:///x.db", "sqlite+aiosqlite:///x.db"),
        ("sqlite:////var/lib/x.db", "sqlite+aiosqlite:////var/lib/x.db"),
        ("sqlite+aiosqlite:///x.db", "sqlite+aiosqlite:///x.db"),
        ("sqlite+pysqlite:///x.db", "sqlite+aiosqlite:///x.db"),
    ],
)
def test_what_people_write_is_understood(written: str, used: str) -> None:
    assert database_url(written).render_as_string(hide_password=False) == used


@pytest.mark.spec("D2")
@pytest.mark.parametrize(
    "raw", ["", "hunter2", "db/x", "//me:hunter2@db/x", "postgres:/me:hunter2@db", "me:hunter2@db/x"]
)
def test_what_is_no_address_is_refused_with_an_example(raw: str) -> None:
    with pytest.raises(DatabaseUrlError) as caught:
        database_url(raw)
    assert "Write postgresql://user:password@host/name or sqlite:///path/file.db" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.spec("D2")
@pytest.mark.parametrize("raw", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite+aiosqlite:///:memory:"])
def test_a_database_in_memory_is_refused(raw: str) -> None:
    with pytest.raises(DatabaseUrlError, match="cannot be shared by processes: give sqlite:///path/"):
        database_url(raw)


@pytest.mark.spec("D2")
@pytest.mark.parametrize("name", ["mysql", "mysql+pymysql", "oracle", "mongodb", "redis", "http"])
def test_another_database_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(DatabaseUrlError) as caught:
        database_url(f"{name}://me:hunter2@db/x")
    backend = name.split("+")[0]
    assert str(caught.value) == f"DATABASE_URL names '{backend}': Longshore keeps its rows in PostgreSQL or SQLite"


@pytest.mark.spec("F9")
def test_a_database_does_not_show_its_password() -> None:
    database = Database("postgresql://me:hunter2@127.0.0.1:1/x")
    for shown in (str(database.url), repr(database.url), repr(database.engine)):
        assert "hunter2" not in shown
