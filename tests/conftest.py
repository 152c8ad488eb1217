"""One Valkey and one PostgreSQL for the whole run; a fresh database for each test that asks for one.

TEST_REDIS_URL and TEST_DATABASE_URL name servers to use instead. A server that cannot be had fails the run: nothing
is skipped."""

import gc
import os
import shutil
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from hypothesis import settings
from sqlalchemy import make_url

from adapters import registry
from adapters.providers.cli.installation import find
from models import schema
from models.base import new_id
from models.database import Database
from tests.support import root_certificates
from tests.support.engines import share_compiled_statements
from tests.support.no_skips import pytest_runtest_makereport
from tests.support.servers import Postgres, Valkey, private_folder

__all__ = ["pytest_runtest_makereport"]

# Many small examples each time; more of them with HYPOTHESIS_PROFILE=thorough.
settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A shell that starts this in the background has it ignored, also by all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# On again when all tests are collected: what is imported until then stays, and a third of the time went into looking.
gc.disable()

FOLDER = len(Path(__file__).parts)  # how deep tests/unit and its like lie
PROGRAMS = ("claude", "codex", "gemini", "opencode", "openclaw")
_real_connect = socket.socket.connect


def _loopback_only(self: socket.socket, address: Any) -> Any:
    """Tests fail closed: nothing here may talk to another machine."""
    if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise AssertionError(f"a test tried to reach {address}")
    return _real_connect(self, address)


socket.socket.connect = _loopback_only  # type: ignore[method-assign, assignment]


share_compiled_statements()

_real_entry_points = registry.entry_points  # type: ignore[attr-defined]


@cache
def _installed_on(_path: tuple[str, ...], group: str) -> Any:
    return _real_entry_points(group=group)


# What is installed stays the same as long as the path does; looking through all of it took as long as a small test.
registry.entry_points = lambda *, group: _installed_on(tuple(sys.path), group)  # type: ignore[attr-defined, assignment]

root_certificates.read_once()

# Tracebacks as they are: in colours, with the values of everything in them, some took ten seconds.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Path]:
    folder = private_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_url(server_folder: Path) -> Iterator[str]:
    if given := os.environ.get("TEST_REDIS_URL"):
        yield given
        return
    server = Valkey(server_folder / "valkey")
    server.start()
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def postgres_url(server_folder: Path) -> Iterator[str]:
    if given := os.environ.get("TEST_DATABASE_URL"):
        yield given
        return
    server = Postgres(server_folder / "postgres", durable=False)
    server.start()
    yield server.url()
    server.stop()


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str) -> Iterator[str]:
    """A migrated database that tests copy, which is quicker than migrating each."""
    name = f"template_{new_id()[-12:]}"
    _admin(postgres_url, f'CREATE DATABASE "{name}"')
    schema.migrate(_named(postgres_url, name))
    yield name
    _admin(postgres_url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def sqlite_template(server_folder: Path) -> Path:
    schema.migrate(f"sqlite:///{server_folder}/template.db")
    return server_folder / "template.db"


@pytest.fixture(params=["postgresql", "sqlite"])
def database_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh, migrated database: each test has a case on PostgreSQL and one on SQLite."""
    if database_kind == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "longshore.db")
        yield f"sqlite:///{tmp_path}/longshore.db"
        return
    yield from request.getfixturevalue("make_postgres")()


@pytest.fixture(scope="session")
def make_postgres(postgres_url: str, postgres_template: str) -> Callable[[], Iterator[str]]:
    def make() -> Iterator[str]:
        name = f"test_{new_id()[-12:]}"
        _admin(postgres_url, f'CREATE DATABASE "{name}" TEMPLATE "{postgres_template}" STRATEGY FILE_COPY')
        yield _named(postgres_url, name)
        _admin(postgres_url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    return make


@pytest.fixture
def postgres_database(make_postgres: Callable[[], Iterator[str]]) -> Iterator[str]:
    yield from make_postgres()


@pytest.fixture
def no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real agent programs take seconds to say who they are: a test that asks all providers and is not about that does
    without."""
    monkeypatch.setenv("LONGSHORE_CLIS", str(tmp_path))


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


def _admin(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(statement.encode())


def _named(url: str, database: str) -> str:
    return make_url(url).set(database=database).render_as_string(hide_password=False)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """On PostgreSQL only `make test-all` runs what is not about SQL or locking. A test that names its database itself
    keeps it."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return
    if item.callspec.params.get("database_kind") != "postgresql" or item.get_closest_marker("both_databases"):
        return
    if not any("database_kind" in mark.args[0] for mark in item.iter_markers("parametrize")):
        item.add_marker(pytest.mark.long)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several run at a time each folder's tests are spread over the whole run: those that wait for processes go
    beside those that compute. The longest are not left for the end."""
    if not hasattr(config, "workerinput"):
        return
    of_folder = Counter(item.path.parts[:FOLDER] for item in items)
    seen: Counter[tuple[str, ...]] = Counter()
    share: dict[str, float] = {}
    for item in items:
        folder = item.path.parts[:FOLDER]
        end = 0.8 if folder[-1] in ("acceptance", "chaos") else 1.0
        share[item.nodeid] = end * seen[folder] / of_folder[folder]
        seen[folder] += 1
    items.sort(key=lambda item: share[item.nodeid])


def pytest_collection_finish() -> None:
    """What is here now stays to the end: going through it again and again took the collector a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say loudly which CLI agents were not there to be tested, and what the command has left out."""
    missing = [name for name in PROGRAMS if find(name) is None]
    if missing and not hasattr(terminalreporter.config, "workerinput"):
        why = f"NOT TESTED, because not installed: {', '.join(missing)}. Install them: make clis"
        terminalreporter.write_line(why, red=True, bold=True)
    if left_out := os.environ.get("LONGSHORE_LEFT_OUT"):
        terminalreporter.write_line(left_out, bold=True)
