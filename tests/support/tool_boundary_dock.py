"""Living the story with a kill in it. Each time has a folder and a database of its own, copied from prepared ones."""

import asyncio
import ctypes
import json
import shutil
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
from sqlalchemy import make_url

from models import AgentGroup, Approval, MessageIn, MessageOut, Step, Turn
from models.base import new_id
from tests.support.boundaries import KILLED, LOG, Zygote
from tests.support.boundary_marks import PR_SET_PDEATHSIG, Errand
from tests.support.fleet import Fleet, fleet_settings
from tests.support.process_group import ROOT, child_environment
from tests.support.tool_boundary_ledger import Death, Found
from tests.support.tool_boundary_marks import SHOWN
from tests.support.tool_boundary_story import AGENT, FILE, REPORT, prepare
from workers.outbox import Outbox

_libc = ctypes.CDLL(None)
HERE = "sqlite:////proc/self/cwd/longshore.db"
# Makes a database for one time the story is lived, and returns its address.
MakeDatabase = Callable[[Path], Awaitable[str]]
# What stands in it before the story begins.
Prepare = Callable[[Fleet], Awaitable[None]]


class StoryZygote(Zygote):
    @classmethod
    async def start(cls, log: Path) -> "StoryZygote":
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.support.tool_boundary_worker", stdin=PIPE, stdout=PIPE, stderr=output,
                cwd=ROOT, env=child_environment(),
                preexec_fn=lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )  # fmt: skip
        return cls(process)


class StoryDock:
    def __init__(self, zygote: Zygote, redis_url: str, folder: Path, make_database: MakeDatabase, hands: int) -> None:
        self._zygote = zygote
        self._redis_url = redis_url
        self._folder = folder
        self._make_database = make_database
        self._hands = asyncio.Semaphore(hands)
        self._times = 0

    async def warm_up(self) -> None:
        assert await self._zygote.run(replace(await self._errand(), warms=True)) == 0, self._log()

    async def run(self, *boundaries: str) -> Found:
        """One process is killed at each, if it comes by; another goes on. The last one is not killed."""
        async with self._hands:
            errand = await self._errand()
            deaths: list[Death] = []
            for number, boundary in enumerate(boundaries):
                life = replace(errand, kill_at=boundary, trace=f"{errand.trace}.{number}")
                if await self._live(life):
                    deaths.append(Death(boundary, _lines(life.trace), len(_lines(errand.effects))))
            assert not await self._live(errand)
            found = Found(deaths, _lines(errand.trace))
            await self._gather(found, errand)
            return found

    async def _live(self, errand: Errand) -> bool:
        """Whether it was killed."""
        ended = await self._zygote.run(errand)
        assert ended in (KILLED, 0), f"[{errand.kill_at}] the process ended with {ended}:\n{self._log()}"
        return ended == KILLED

    async def _errand(self) -> Errand:
        self._times += 1
        folder = self._folder / f"{self._times:04}"
        workspace = folder / "workspaces" / AGENT
        workspace.mkdir(parents=True)
        (workspace / FILE).write_text(REPORT)
        return Errand(
            session_id="", provider="", database_url=await self._make_database(folder), redis_url=self._redis_url,
            model_url="", folder=str(folder), trace=str(folder / "trace"), effects=str(folder / "effects"),
        )  # fmt: skip

    async def _gather(self, found: Found, errand: Errand) -> None:
        folder = Path(errand.folder)
        found.effects = _lines(errand.effects)
        found.shown = [json.loads(line) for line in _lines(str(folder / SHOWN))]
        outbox = Outbox(folder / "workspaces").root
        found.left = [left.name for left in outbox.iterdir()] if outbox.exists() else []
        address = errand.database_url.replace("/proc/self/cwd", str(folder))
        fleet = Fleet(fleet_settings(address, errand.redis_url, folder))
        try:
            found.folders = {row.id: row.folder for row in await fleet.rows(AgentGroup)}
            found.sessions, found.events = await fleet.sessions(), await fleet.events()
            found.inbox, found.outbox = await fleet.rows(MessageIn), await fleet.rows(MessageOut)
            found.turns, found.steps = await fleet.rows(Turn), await fleet.rows(Step)
            found.approvals = await fleet.rows(Approval)
        finally:
            await fleet.close()

    def _log(self) -> str:
        return (self._folder / LOG).read_text(errors="replace")[-8000:]


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


@asynccontextmanager
async def open_story_dock(
    redis_url: str, folder: Path, make_database: MakeDatabase, hands: int = 3
) -> AsyncIterator[StoryDock]:
    zygote = await StoryZygote.start(folder / LOG)
    try:
        dock = StoryDock(zygote, redis_url, folder, make_database, hands)
        await dock.warm_up()
        yield dock
    finally:
        await zygote.stop()


async def prepared_sqlite(template: Path, redis_url: str, folder: Path, story: Prepare = prepare) -> MakeDatabase:
    prepared = folder / "prepared.db"
    shutil.copy(template, prepared)
    await _prepare(f"sqlite:///{prepared}", redis_url, folder, story)

    async def make(where: Path) -> str:
        shutil.copy(prepared, where / "longshore.db")
        return HERE

    return make


@asynccontextmanager
async def prepared_postgres(
    server_url: str, template: str, redis_url: str, folder: Path, story: Prepare = prepare
) -> AsyncIterator[MakeDatabase]:
    def named(name: str) -> str:
        return make_url(server_url).set(database=name).render_as_string(hide_password=False)

    def create(template: str) -> str:
        name = f"test_{new_id()[-12:]}"
        with psycopg.connect(server_url, autocommit=True) as conn:
            conn.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
        made.append(name)
        return name

    made: list[str] = []
    prepared = await asyncio.to_thread(create, template)
    await _prepare(named(prepared), redis_url, folder, story)
    copying = asyncio.Lock()  # a template is copied by one at a time

    async def make(where: Path) -> str:
        async with copying:
            return named(await asyncio.to_thread(create, prepared))

    yield make
    with psycopg.connect(server_url, autocommit=True) as conn:
        for name in made:
            conn.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


async def _prepare(database_url: str, redis_url: str, folder: Path, story: Prepare) -> None:
    fleet = Fleet(fleet_settings(database_url, redis_url, folder))
    try:
        await story(fleet)
    finally:
        await fleet.close()  # the last connection writes SQLite's log back into its one file
