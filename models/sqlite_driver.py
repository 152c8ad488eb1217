"""SQLite for an event loop, one visit to its thread per statement.

aiosqlite makes a cursor, runs it, fetches from it and closes it in four visits, each of which wakes the thread and then
the loop: together they take longer than a statement does. `connect` is for SQLAlchemy's `async_creator`."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

import aiosqlite

Outcome = tuple[list[Any], Any, int, int | None]


def connect(path: str, busy_seconds: float) -> aiosqlite.Connection:
    """To be awaited. `busy_seconds`: how long a statement waits for another process's write."""
    # Its statements run in one thread; the loop's only asks whether a transaction is open.
    options = {"timeout": busy_seconds, "check_same_thread": False}
    connection = _Connection(partial(sqlite3.connect, path, **options), iter_chunk_size=64)
    connection._thread.daemon = True  # as SQLAlchemy has it: a process that is told to end does not wait for it
    return connection


class _Connection(aiosqlite.Connection):
    def cursor(self) -> "_Cursor":  # type: ignore[override]
        return _Cursor(self)

    async def rollback(self) -> None:
        # SQLAlchemy does so whenever a connection comes back to its pool, also after a commit. No statement is running
        # then: `Database` never leaves a transaction in the middle.
        if self._conn.in_transaction:
            await super().rollback()

    async def visit(self, sql: str, parameters: Sequence[Any], *, many: bool = False) -> Outcome:
        return await self._execute(self._run, sql, parameters, many)  # type: ignore[no-untyped-call,no-any-return]

    def _run(self, sql: str, parameters: Sequence[Any], many: bool) -> Outcome:
        with closing(self._conn.cursor()) as cursor:
            if many:
                cursor.executemany(sql, parameters)
            else:
                cursor.execute(sql, parameters)
            rows = cursor.fetchall()
            return rows, cursor.description, cursor.rowcount, cursor.lastrowid


class _Cursor:
    """What a statement has given. Everything is here when it was run: there is nothing to close."""

    description: Any = None
    rowcount = -1
    lastrowid: int | None = None
    arraysize = 1

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._rows: list[Any] = []

    async def __aenter__(self) -> "_Cursor":
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> "_Cursor":
        self._keep(await self._connection.visit(sql, parameters))
        return self

    async def executemany(self, sql: str, parameters: Sequence[Any]) -> "_Cursor":
        self._keep(await self._connection.visit(sql, parameters, many=True))
        return self

    async def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    async def close(self) -> None:
        pass

    def _keep(self, outcome: Outcome) -> None:
        self._rows, self.description, self.rowcount, self.lastrowid = outcome
