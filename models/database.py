"""The one way to the database: short transactions on an async engine, tried again when the connection is lost.

Callers hand in what to do with a connection. They must not await anything but the database inside, and must be
content to be called twice: a transaction whose connection broke is run again from the start, and may have taken effect
before."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from models.base import storable_json
from models.errors import DatabaseDownError, DatabaseUrlError
from models.sqlite_driver import connect

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]

SQLITE_BUSY_SECONDS: Final = 30
# PostgreSQL's classes of errors that pass by themselves: connection, rolled back by a conflict, out of resources,
# operator intervention; and two single ones: read-only (just failed over) and lock not available.
_PASSING_CLASSES: Final = {"08", "40", "53", "57"}
_PASSING_STATES: Final = {"25006", "55P03"}


def database_url(raw: str) -> URL:
    """Accept the URLs people write (`postgres://`, `postgresql://`, `sqlite:///`) and name the driver we use."""
    try:
        url = make_url(raw)
    except (ArgumentError, ValueError):
        # The raw text may hold a password: it is not repeated.
        raise DatabaseUrlError(
            "DATABASE_URL is not a database address. Write postgresql://user:password@host/name or sqlite:///path/file.db"
        ) from None
    match url.get_backend_name():
        case "postgresql" | "postgres":
            return url.set(drivername="postgresql+psycopg")
        case "sqlite" if url.database and url.database != ":memory:":
            return url.set(drivername="sqlite+aiosqlite")
        case "sqlite":
            raise DatabaseUrlError(
                "an in-memory SQLite database cannot be shared by processes: give sqlite:///path/file.db"
            )
        case other:
            raise DatabaseUrlError(f"DATABASE_URL names {other!r}: Longshore keeps its rows in PostgreSQL or SQLite")


def shown(url: URL) -> str:
    """An address as people may see it: a password may stand before the host, or in the query."""
    return url.set(drivername=url.get_backend_name(), query={}).render_as_string()


class Database:
    """An engine and the rules for using it. One per process; made on the event loop that uses it."""

    def __init__(self, raw_url: str, *, pool_size: int = 8, prepare: bool = True) -> None:
        """`prepare`: let PostgreSQL keep plans of repeated statements. A pooler between must know of it (PgBouncer does
        from 1.24 on, or with max_prepared_statements set)."""
        self.url: Final = database_url(raw_url)
        self.is_sqlite: Final = self.url.get_backend_name() == "sqlite"
        # SQLite has one writer at a time; queueing for it here is fair, its own busy wait is not.
        self._writer = asyncio.Lock() if self.is_sqlite else None
        # Whoever waits for a connection waits here, in order; the pool's own waiting has a time-out and no order.
        self._slots = asyncio.Semaphore(pool_size)
        self.engine: Final[AsyncEngine] = _make_engine(self.url, pool_size, prepare)

    async def transact(self, work: Work[T], *, patience: float = 15.0) -> T:
        """Run `work` in one transaction and return what it returned, after the commit.

        A lost connection, a restarting server or a deadlock rolls back and runs it again, for `patience` seconds;
        then DatabaseDownError. If the answer to a COMMIT was lost the work may run although it had taken effect, so
        it must find that out by itself: by a unique key, or by the lease token it checks."""
        return await self._run(work, patience, read_only=False)

    async def read(self, work: Work[T], *, patience: float = 15.0) -> T:
        """The same for work that only reads: no write lock is taken on SQLite."""
        return await self._run(work, patience, read_only=True)

    async def close(self) -> None:
        await self.engine.dispose()

    async def _run(self, work: Work[T], patience: float, *, read_only: bool) -> T:
        give_up = time.monotonic() + patience
        pause = 0.05
        while True:
            try:
                # Whole: a connection that is cancelled in the middle of a transaction may keep its locks.
                return await uninterrupted(self._attempt(work, read_only))
            except (DBAPIError, PoolTimeoutError, OSError, TimeoutError) as error:
                if not _may_pass(error):
                    raise
                if time.monotonic() + pause > give_up:
                    raise DatabaseDownError(f"the database does not answer ({_summary(error)})") from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _attempt(self, work: Work[T], read_only: bool) -> T:
        async with self._connection(read_only) as conn:
            return await work(conn)

    @asynccontextmanager
    async def _connection(self, read_only: bool) -> AsyncIterator[AsyncConnection]:
        turn = self._writer if self._writer is not None and not read_only else nullcontext()
        async with turn, self._slots, self.engine.connect() as conn:
            if read_only:
                conn = await conn.execution_options(longshore_read_only=True)
            async with conn.begin():
                yield conn


async def uninterrupted(work: Awaitable[T]) -> T:
    """Await something that must not be torn apart half-way (a transaction). A cancellation takes effect after it."""
    task = asyncio.ensure_future(work)
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancelled:
            interrupted = cancelled
    if interrupted is not None:
        if not task.cancelled():
            task.exception()  # has been seen
        raise interrupted
    return task.result()


def _make_engine(url: URL, pool_size: int, prepare: bool) -> AsyncEngine:
    if url.get_backend_name() != "sqlite":
        return create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=30,
            json_serializer=storable_json,
            hide_parameters=True,
            connect_args={"prepare_threshold": 3 if prepare else None},
        )
    engine = create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        json_serializer=storable_json,
        hide_parameters=True,
        async_creator=lambda: connect(str(url.database), SQLITE_BUSY_SECONDS),
    )

    @event.listens_for(engine.sync_engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # BEGIN is ours, see below
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and writes later would fail at once when another wrote in between.
        read_only = connection.get_execution_options().get("longshore_read_only", False)
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _may_pass(error: Exception) -> bool:
    """Whether the same transaction may succeed later: the connection is at fault, not the statement."""
    if not isinstance(error, DBAPIError):
        return True
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state[:2] in _PASSING_CLASSES or state in _PASSING_STATES
    if not isinstance(error, OperationalError):
        return False
    message = str(error.orig)
    # psycopg has no state for a refused or broken connection; SQLite has only its text.
    return "no such" not in message and "readonly" not in message and "unable to open" not in message


def _summary(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return f"{type(cause).__name__}: {cause}".splitlines()[0][:200]


async def database_clock(conn: AsyncConnection) -> float:
    """The database's clock as seconds since the epoch, for comparing with this machine's."""
    statement = (
        "SELECT extract(epoch FROM clock_timestamp())"
        if conn.dialect.name == "postgresql"
        else "SELECT (julianday('now') - 2440587.5) * 86400.0"
    )
    return float((await conn.execute(text(statement))).scalar_one())
