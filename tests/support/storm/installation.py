"""A fleet for a storm: its processes, servers and receiver, started and taken down together, and looked at through one
database connection of the test's own."""

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models import (
    AgentGroup,
    Event,
    MessageIn,
    MessageOut,
    MessagingGroup,
    Process,
    Session,
    Step,
    Turn,
    User,
    UserDm,
    UserRole,
    schema,
)
from models.base import Base, new_id, now
from models.database import Database
from models.errors import DatabaseDownError
from tests.support.process_group import ProcessGroup, child_environment
from tests.support.servers import Postgres, Valkey, private_folder
from tests.support.storm.duplicator import Duplicator
from tests.support.storm.ledger import OWNER_ENDPOINT
from tests.support.storm.receiver import SECRET, Receiver
from tests.support.storm.scale import SCRIPTS, Scale

T = TypeVar("T")

LEASE_SECONDS = 3.0
DELIVERY_SECONDS = 5.0
MAX_TRIES = 5
ENDPOINTS = ("ledger0", "ledger1", OWNER_ENDPOINT)
TIMES = {
    "LONGSHORE_LEASE_SECONDS": str(LEASE_SECONDS),
    "LONGSHORE_DELIVERY_SECONDS": str(DELIVERY_SECONDS),
    "LONGSHORE_REPEAT_SECONDS": "1",
    "LONGSHORE_RETRY_BASE_SECONDS": "0.3",
    "LONGSHORE_SWEEP_SECONDS": "0.5",
    "LONGSHORE_MAX_TRIES": str(MAX_TRIES),
    # Shorter than a turn of the scripts: a worker that is told to go has turns to hand over.
    "LONGSHORE_GRACE_SECONDS": "0.1",
}


class StormFleet:
    def __init__(
        self, postgres: Postgres, valkey: Valkey, receiver: Receiver, processes: ProcessGroup, database_url: str
    ) -> None:
        self.postgres = postgres
        self.valkey = valkey
        self.receiver = receiver
        self.processes = processes
        self.database_url = database_url
        self.duplicator = Duplicator(valkey.port, ("agent.scripted", "delivery"))
        self.db = Database(database_url, pool_size=4)

    def start_processes(self, scale: Scale) -> None:
        for number in range(scale.agents):
            self.processes.start(f"agent{number}", "agent")
        for number in range(scale.deliverers):
            self.processes.start(f"delivery{number}", "delivery")
        self.processes.start("messages0", "messages")
        for number in range(2):
            self.processes.start(f"beat{number}", "beat")

    async def ready(self) -> set[str]:
        """The names of those that have reported since they were started. Empty while the database is away."""
        try:
            rows = await self.db.read(lambda conn: _all(conn, select(Process.__table__)), patience=0.5)
        except DatabaseDownError:
            return set()
        pids = {row.pid or int(row.name.rsplit(":", 1)[1]) for row in rows}
        for member in self.processes.members.values():
            member.was_up = member.was_up or member.pid in pids
        return {member.name for member in self.processes.members.values() if member.was_up and not member.frozen}

    async def running_agents(self) -> list[str]:
        """Who runs turns right now, the busiest first."""
        query = select(Session.lease_owner).where(Session.lease_expires_at > now())
        try:
            owners = [str(row.lease_owner) for row in await self.db.read(lambda conn: _all(conn, query), patience=0.5)]
        except DatabaseDownError:
            return []
        busy = {
            name: sum(f":{member.pid}:" in owner for owner in owners) for name, member in self.processes.members.items()
        }
        return sorted((name for name, count in busy.items() if count), key=lambda name: -busy[name])

    async def rows(self, table: type[Base], *where: Any) -> list[Any]:
        return await self.db.read(lambda conn: _all(conn, select(table.__table__).where(*where)), patience=60)

    async def evidence(self) -> dict[str, list[Any]]:
        tables = {"inbox": MessageIn, "outbox": MessageOut, "turns": Turn, "steps": Step, "events": Event}
        return {name: await self.rows(table) for name, table in tables.items()}


async def until(
    condition: Callable[[], Awaitable[bool]], seconds: float, what: str, *, every: float = 0.1, soft: bool = False
) -> bool:
    """Wait for a condition. `soft`: it is no fault if it does not come true."""
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            if soft:
                return False
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(every)
    return True


@asynccontextmanager
async def open_storm_fleet() -> AsyncIterator[StormFleet]:
    """Servers of its own, because they are to be killed. Everything is stopped in the end, whatever happened.

    LONGSHORE_CHAOS_LOGS names a folder in which to keep the workers' logs."""
    folder = private_folder()
    postgres, valkey, receiver = Postgres(folder / "postgres"), Valkey(folder / "valkey"), Receiver()
    fleet: StormFleet | None = None
    try:
        postgres.start()
        valkey.start()
        database_url = postgres.make_database("storm")
        schema.migrate(database_url)
        env = child_environment(
            DATABASE_URL=database_url,
            REDIS_URL=valkey.url,
            DEFAULT_PROVIDER="scripted",
            WORKSPACE_ROOT=str(folder / "workspaces"),
            LONGSHORE_HOME=str(folder / "home"),
            LONGSHORE_WEBHOOKS=json.dumps({name: {"url": receiver.url(name), "secret": SECRET} for name in ENDPOINTS}),
            **TIMES,
        )
        fleet = StormFleet(postgres, valkey, receiver, ProcessGroup(folder / "logs", env), database_url)
        await fleet.db.transact(_people)
        yield fleet
    finally:
        if fleet is not None:
            await fleet.db.close()
            fleet.processes.stop()
        receiver.stop()
        valkey.stop()
        if fleet is not None:
            fleet.duplicator.stop()
        postgres.stop()
        if kept := os.environ.get("LONGSHORE_CHAOS_LOGS"):
            shutil.copytree(folder / "logs", kept, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


async def _people(conn: AsyncConnection) -> None:
    """Two agents on scripts, and an owner who is told what was given up."""
    groups = [
        {"name": folder, "folder": folder, "provider": "scripted", "config": {"provider_options": {"script": script}}}
        for folder, script in SCRIPTS.items()
    ]
    await conn.execute(insert(AgentGroup), groups)
    place = new_id()
    await conn.execute(insert(MessagingGroup).values(id=place, channel_type="webhook", platform_id=OWNER_ENDPOINT))
    await conn.execute(insert(User).values(id="webhook:owner", kind="webhook"))
    await conn.execute(insert(UserRole).values(user_id="webhook:owner", role="owner"))
    await conn.execute(insert(UserDm).values(user_id="webhook:owner", channel_type="webhook", messaging_group_id=place))


async def _all(conn: AsyncConnection, query: Any) -> list[Any]:
    return list((await conn.execute(query)).all())
