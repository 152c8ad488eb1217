"""A fleet in one process, for integration tests: the real runtime, database and Redis, with bells that are answered
when the test says so. Several fleets on one database are several workers."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import insert, make_url, select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.events import Envelope
from adapters.registry import Registry
from models import AgentGroup, Event, MessageIn, MessageOut, Session, Turn
from models.base import Base, new_id
from scheduler.ringing import Pace
from scheduler.sweep import Found, sweep
from workers import delivery, turn
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.runtime import Node, Runtime
from workers.settings import Settings
from workers.workflows.engine import advance

# Whoever answers at once finds something to do: what is rung for is committed.
_TO_SEND = "SELECT 1 FROM messages_out WHERE id = ?"
_TO_RUN = (
    "SELECT 1 FROM sessions WHERE id = ?1 AND (woken_at IS NOT NULL OR EXISTS "
    "(SELECT 1 FROM messages_in WHERE session_id = ?1 AND status IN ('pending', 'processing')))"
)


class HeldBells:
    """Keeps rings until they are answered. Losing or doubling them is a matter of editing a list. `early`: those that
    rang before the commit of what they are for, seen on SQLite (`file`)."""

    def __init__(self, file: str | None = None) -> None:
        self._file = file
        self.early: list[str] = []
        self.wakes: list[tuple[str, str]] = []
        self.deliveries: list[str] = []
        self.doubtful: list[str] = []
        self.advances: list[str] = []
        self.nudges: list[str] = []
        self.told: list[Envelope] = []

    def wake(self, session_id: str, provider: str) -> None:
        self._look(_TO_RUN, session_id)
        self.wakes.append((session_id, provider))

    def deliver(self, message_out_id: str) -> None:
        self._look(_TO_SEND, message_out_id)
        self.deliveries.append(message_out_id)

    def advance(self, workflow_id: str) -> None:
        self.advances.append(workflow_id)

    def nudge(self, session_id: str) -> None:
        self.nudges.append(session_id)

    def tell(self, *envelopes: Envelope) -> None:
        self.told += envelopes

    def settle(self, message_out_id: str) -> None:
        self.doubtful.append(message_out_id)

    def close(self) -> None:
        """Nothing is open."""

    def _look(self, query: str, row_id: str) -> None:
        if self._file is not None:
            with closing(sqlite3.connect(self._file)) as conn:
                if conn.execute(query, (row_id,)).fetchone() is None:
                    self.early.append(row_id)


def fleet_settings(database_url: str, redis_url: str, folder: Path, **changes: Any) -> Settings:
    values: dict[str, Any] = {
        "database_url": database_url,
        "redis_url": redis_url,
        "home": folder,
        "workspace_root": folder / "workspaces",
        "default_provider": "scripted",
        "retry_base_seconds": 0.05,
        "repeat_seconds": 0.05,
        "lease_seconds": 5.0,
        "address_rate": 0.0,  # all tests come from the same one, and share the Redis that counts
    }
    return Settings(**(values | changes))


class Fleet:
    def __init__(self, settings: Settings, registry: Registry | None = None, name: str = "test") -> None:
        url = make_url(settings.database_url)
        self.bells = HeldBells(url.database if url.get_backend_name() == "sqlite" else None)
        self.runtime = Runtime(settings, self.bells, registry, Node(name))
        self.db = self.runtime.db

    async def close(self) -> None:
        await self.runtime.close()

    async def add_group(self, folder: str = "demo", script: str | None = None, **values: Any) -> str:
        group_id = new_id()
        config = {"provider_options": {"script": script}} if script is not None else {}
        row = {"id": group_id, "name": folder, "folder": folder, "provider": "scripted", "config": config} | values
        await self.insert(AgentGroup, row)
        return group_id

    async def send(self, text: str = "hello", **fields: Any) -> Accepted:
        """Accept a message as every door does, and ring."""
        given = {"agent_group": "demo", "text": text} | fields
        given = {key: value for key, value in given.items() if value is not None}
        accepted = await accept(self.db, self.runtime.registry, self.runtime.settings, parse_incoming(given))
        accepted.ring(self.bells)
        return accepted

    async def wake(self, session_id: str, provider: str = "scripted") -> str:
        return await turn.wake(self.runtime, session_id, provider)

    async def answer_wakes(self) -> list[str]:
        wakes, self.bells.wakes = self.bells.wakes, []
        return [await turn.wake(self.runtime, session_id, provider) for session_id, provider in wakes]

    async def settle_down(self) -> None:
        """Answer all bells until none rings."""
        while self.bells.wakes or self.bells.deliveries or self.bells.doubtful or self.bells.advances:
            await self.answer_wakes()
            advances, self.bells.advances = self.bells.advances, []
            for workflow_id in advances:
                await advance(self.runtime, workflow_id)
            deliveries, self.bells.deliveries = self.bells.deliveries, []
            for message_out_id in deliveries:
                await delivery.send(self.runtime, message_out_id)
            doubtful, self.bells.doubtful = self.bells.doubtful, []
            for message_out_id in doubtful:
                await delivery.settle_doubtful(self.runtime, message_out_id)

    async def sweep(self) -> Found:
        settings = self.runtime.settings
        found = await sweep(self.db, Pace(settings.repeat_seconds, settings.default_provider))
        for wake in found.wakes:
            self.bells.wake(wake.session_id, wake.provider)
        self.bells.deliveries += found.deliveries
        self.bells.doubtful += found.doubtful
        self.bells.advances += found.workflows
        return found

    async def insert(self, table: type[Base], *rows: dict[str, Any]) -> None:
        async def work(conn: AsyncConnection) -> None:
            await conn.execute(insert(table), list(rows))

        await self.db.transact(work)

    async def rows(self, table: type[Base], *order: Any) -> list[Any]:
        async def work(conn: AsyncConnection) -> list[Any]:
            return list((await conn.execute(select(table.__table__).order_by(*order))).all())

        return await self.db.read(work)

    async def inbox(self) -> list[Any]:
        return await self.rows(MessageIn, MessageIn.session_id, MessageIn.seq)

    async def outbox(self) -> list[Any]:
        return await self.rows(MessageOut, MessageOut.session_id, MessageOut.seq)

    async def turns(self) -> list[Any]:
        return await self.rows(Turn, Turn.session_id, Turn.number)

    async def sessions(self) -> list[Any]:
        return await self.rows(Session, Session.id)

    async def events(self) -> list[Any]:
        return await self.rows(Event, Event.session_id, Event.seq)

    async def execute(self, statement: Any) -> None:
        await self.db.transact(lambda conn: conn.execute(statement))


MakeFleet = Callable[..., Awaitable[Fleet]]
