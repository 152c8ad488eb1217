"""Running one turn with a kill in it: a worker dies at a boundary, its lease runs out, another goes on.

Sessions of one database are independent, so several such turns run at a time, each with files of its own."""

import asyncio
import ctypes
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import Channel
from adapters.channels.fake import FakeChannel
from adapters.registry import Drivers, Registry
from models import (
    BudgetDay,
    Event,
    MessageIn,
    MessageOut,
    Reservation,
    Session,
    Step,
    TranscriptItem,
    Turn,
    Usage,
    now,
)
from models.base import Base
from tests.support.boundary_ledger import Evidence
from tests.support.boundary_marks import PR_SET_PDEATHSIG, Errand
from tests.support.fleet import Fleet, fleet_settings
from tests.support.model_api import ModelApi
from tests.support.process_group import ROOT, child_environment
from workers import delivery

KILLED = -signal.SIGKILL
LOG = "workers.log"
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Wire:
    """A provider and how it is spoken to. `then`: who goes on after the kill, if it is another."""

    name: str
    provider: str
    options: dict[str, Any] = field(default_factory=dict)
    then: str | None = None

    @property
    def config(self) -> dict[str, Any]:
        price = {"price": {"input": 1.0, "output": 5.0}}
        return {"provider_options": price | self.options, "budget": {"daily_usd": 1000.0}}


ANTHROPIC = Wire("anthropic", "anthropic")
RESPONSES = Wire("responses", "openai", {"api": "responses"})
CHAT = Wire("chat", "openai", {"api": "chat"})


class Zygote:
    """The process that forks the workers. Ends with its test, however that ends."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._numbers = itertools.count(1)
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, log: Path) -> "Zygote":
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.support.boundary_worker", stdin=PIPE, stdout=PIPE, stderr=output, cwd=ROOT,
                env=child_environment(), preexec_fn=lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )  # fmt: skip
        return cls(process)

    async def run(self, errand: Errand) -> int:
        """How the worker ended: 0, or the negative number of the signal it died of."""
        assert self._process.stdin is not None
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked[next(self._numbers)] = ended
        self._process.stdin.write(errand.line())
        return await ended

    async def stop(self) -> None:
        """Its forks die with it."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            number, code = line.split()
            self._asked.pop(int(number)).set_result(int(code))
        for left in self._asked.values():
            left.set_exception(EOFError("the process that forks workers has ended"))


class Dock:
    """Where turns are run and killed, and what is left of them is gathered."""

    def __init__(
        self, fleet: Fleet, api: ModelApi, folder: Path, zygote: Zygote, shown: FakeChannel, hands: int
    ) -> None:
        self._fleet = fleet
        self._api = api
        self._folder = folder
        self._zygote = zygote
        self._channel = shown
        self._hands = asyncio.Semaphore(hands)
        self._turns = 0

    @property
    def log(self) -> str:
        return (self._folder / LOG).read_text(errors="replace")[-8000:]

    async def warm_up(self, *wires: Wire) -> None:
        for wire in wires:
            errand, *_ = await self._errand(wire)
            assert await self._zygote.run(replace(errand, warms=True, trace=os.devnull, effects=os.devnull)) == 0

    async def run(self, wire: Wire, boundary: str | None = None, broken: str | None = None) -> Evidence:
        """One turn: with a boundary, the first worker is killed there and a second one goes on."""
        async with self._hands:
            errand, group, word = await self._errand(wire)
            errand = replace(errand, kill_at=boundary, broken=broken)
            found = await self._first(errand)
            # Whatever transaction the dead worker had under way has its session's row locked until it is over.
            await self._let_lease_expire(errand.session_id, wire.then)
            found.steps_before = {
                step.name: "started" if step.status == "started" else "finished"
                for step in await self._fleet.db.read(lambda conn: _steps(conn, errand.session_id))
                if step.kind == "tool"
            }
            if found.boundary is not None:
                second = replace(
                    errand, kill_at=None, trace=f"{errand.trace}.second", provider=wire.then or wire.provider
                )
                code = await self._zygote.run(second)
                assert code == 0, f"[{boundary}] the second worker ended with {code}:\n{self.log}"
            found.effects = _lines(errand.effects)
            await self._gather(found, errand.session_id, group, word)
            return found

    async def _errand(self, wire: Wire) -> tuple[Errand, str, str]:
        """A message to an agent of its own, to be answered; the agent's id and the word its requests are known by."""
        self._turns += 1
        word = f"turn{self._turns:05}"
        group = await self._fleet.add_group(word, provider=wire.provider, config=wire.config)
        accepted = await self._fleet.send(f"go {word}", agent_group=word)
        settings, paths = self._fleet.runtime.settings, self._folder / word
        errand = Errand(
            session_id=accepted.session_id, provider=wire.provider, database_url=settings.database_url,
            redis_url=settings.redis_url, model_url=self._api.url, folder=str(self._folder), trace=f"{paths}.trace",
            effects=f"{paths}.effects",
        )  # fmt: skip
        return errand, group, word

    async def _first(self, errand: Errand) -> Evidence:
        ended = await self._zygote.run(errand)
        assert ended in (KILLED, 0), f"[{errand.kill_at}] the worker ended with {ended}:\n{self.log}"
        came_by = errand.kill_at if ended == KILLED else None
        return Evidence(came_by, _lines(errand.trace), effects_before=_lines(errand.effects))

    async def _let_lease_expire(self, session_id: str, then: str | None) -> None:
        chosen = update(Session).where(Session.id == session_id)
        if then is not None:
            await self._fleet.execute(chosen.values(provider=then))
        await self._fleet.execute(chosen.where(Session.lease_expires_at.is_not(None)).values(lease_expires_at=now(-1)))

    async def _gather(self, found: Evidence, session_id: str, group_id: str, word: str) -> None:
        unsent = select(MessageOut.id).where(MessageOut.session_id == session_id).order_by(MessageOut.seq)
        for row in await self._fleet.db.read(lambda conn: _fetch(conn, unsent)):
            await delivery.send(self._fleet.runtime, row.id)
        await self._fleet.db.read(lambda conn: _read_rows(conn, found, session_id, group_id))
        keys = {row.idempotency_key for row in found.outbox}
        found.shown = [sent.content["text"] for sent in self._channel.shown if sent.idempotency_key in keys]
        asked = [one for one in self._api.requests if one.conversation is not None and word in one.conversation.text]
        found.told = [json.dumps(one.body) for one in asked]
        found.problems = [problem for one in asked for problem in one.problems]


async def _read_rows(conn: AsyncConnection, found: Evidence, session_id: str, group_id: str) -> None:
    async def of(table: type[Base], column: str, value: str, *order: Any) -> list[Any]:
        query = select(table.__table__).where(table.__table__.c[column] == value).order_by(*order)
        return await _fetch(conn, query)

    [found.session] = await of(Session, "id", session_id)
    found.inbox = await of(MessageIn, "session_id", session_id)
    found.outbox = await of(MessageOut, "session_id", session_id, MessageOut.seq)
    found.turns = await of(Turn, "session_id", session_id)
    found.steps = await _steps(conn, session_id)
    found.transcript = await of(TranscriptItem, "session_id", session_id, TranscriptItem.position)
    found.events = await of(Event, "session_id", session_id, Event.seq)
    found.usage = await of(Usage, "session_id", session_id)
    found.reservations = await of(Reservation, "agent_group_id", group_id)
    found.days = await of(BudgetDay, "agent_group_id", group_id)


async def _steps(conn: AsyncConnection, session_id: str) -> list[Any]:
    turns = select(Turn.id).where(Turn.session_id == session_id)
    return await _fetch(conn, select(Step.__table__).where(Step.turn_id.in_(turns)).order_by(Step.number))


async def _fetch(conn: AsyncConnection, query: Any) -> list[Any]:
    return list((await conn.execute(query)).all())


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


@asynccontextmanager
async def open_dock(
    database_url: str, redis_url: str, folder: Path, api: ModelApi, hands: int = 3
) -> AsyncIterator[Dock]:
    """`hands`: how many turns run at a time. Workers mostly wait, for the database and for the model."""
    channel = FakeChannel()
    registry = Registry(channels=Drivers[Channel]("channel", {"local": channel}))
    fleet = Fleet(fleet_settings(database_url, redis_url, folder), registry)
    zygote = await Zygote.start(folder / LOG)
    try:
        dock = Dock(fleet, api, folder, zygote, channel, hands)
        await dock.warm_up(ANTHROPIC, RESPONSES, CHAT)
        yield dock
    finally:
        await zygote.stop()
        await fleet.close()
