"""Fixtures of the tests that run a fleet in their own process: tests/integration and tests/security."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from adapters.registry import Registry
from models.base import Base, new_id
from tests.support.fleet import Fleet, MakeFleet, fleet_settings


@pytest.fixture(scope="session")
def spare_databases(postgres_url: str) -> Iterator[dict[str, Any]]:
    """Emptied by the test that had them: a new one takes the server several times as long. With what `_tables` says."""
    spare: dict[str, Any] = {}
    yield spare
    with psycopg.connect(postgres_url, autocommit=True) as conn:
        for url in spare:
            conn.execute(f'DROP DATABASE "{make_url(url).database}" WITH (FORCE)'.encode())


@pytest.fixture(scope="session")
def make_postgres(
    postgres_url: str, postgres_template: str, spare_databases: dict[str, Any]
) -> Callable[[], Iterator[str]]:
    def make() -> Iterator[str]:
        if spare_databases:
            url, before = spare_databases.popitem()
        else:
            name = f"test_{new_id()[-12:]}"
            with psycopg.connect(postgres_url, autocommit=True) as conn:
                conn.execute(f'CREATE DATABASE "{name}" TEMPLATE "{postgres_template}"'.encode())
            url = make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
            with psycopg.connect(url) as conn:
                before = _tables(conn)
        yield url
        with psycopg.connect(url) as conn:
            if _tables(conn) == before:
                _empty(conn)
                spare_databases[url] = before

    return make


def _tables(conn: Any) -> Any:
    """Another answer after a migration, there and back as well."""
    return conn.execute(
        "SELECT count(*), max(oid::bigint), (SELECT version_num FROM alembic_version) FROM pg_class"
    ).fetchone()


def _empty(conn: Any) -> None:
    """All connections ended, all rows gone."""
    conn.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    conn.execute("SET session_replication_role = replica")  # in any order
    conn.execute("; ".join(f'DELETE FROM "{name}"' for name in Base.metadata.tables).encode())


@pytest.fixture
async def make_fleet(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[MakeFleet]:
    """Make a worker; several on the same database."""
    fleets: list[Fleet] = []

    async def make(registry: Registry | None = None, **changes: Any) -> Fleet:
        settings = fleet_settings(database_url, redis_url, tmp_path, **changes)
        fleets.append(Fleet(settings, registry, name=f"worker{len(fleets)}"))
        return fleets[-1]

    yield make
    for fleet in fleets:
        await fleet.close()
    assert [early for fleet in fleets for early in fleet.bells.early] == [], "rung for before it was committed"


@pytest.fixture
async def fleet(make_fleet: MakeFleet) -> Fleet:
    return await make_fleet()
