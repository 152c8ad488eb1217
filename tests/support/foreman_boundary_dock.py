"""Living the foreman's story with deaths in it. Each life has a folder, a repository and a database of its own."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from models import Approval, MessageIn, MessageOut, Stage, Step, Turn, Usage, Workflow
from tests.support.boundaries import KILLED, LOG, Zygote
from tests.support.boundary_marks import PR_SET_PDEATHSIG, Errand
from tests.support.fleet import Fleet, fleet_settings
from tests.support.foreman_boundary_history import branches, history, locks
from tests.support.foreman_boundary_ledger import Death, Found
from tests.support.foreman_boundary_marks import SHOWN
from tests.support.foreman_boundary_story import BRANCH
from tests.support.foreman_setup import make_repository
from tests.support.process_group import ROOT, child_environment
from tests.support.tool_boundary_dock import MakeDatabase
from workers.workflows.assignment import FOLDER
from workers.workflows.tidying import tidy_workflows

_WORKER = "tests.support.foreman_boundary_worker"
_libc = ctypes.CDLL(None)


class ForemanZygote(Zygote):
    @classmethod
    async def start(cls, log: Path) -> "ForemanZygote":
        temporary = log.parent / "tmp"
        temporary.mkdir()
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", _WORKER, stdin=PIPE, stdout=PIPE, stderr=output,
                cwd=ROOT, env=child_environment(TMPDIR=str(temporary)),
                preexec_fn=lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )  # fmt: skip
        return cls(process)


class ForemanDock:
    def __init__(self, zygote: Zygote, redis_url: str, folder: Path, make_database: MakeDatabase, hands: int) -> None:
        self._zygote = zygote
        self._redis_url = redis_url
        self._folder = folder
        self._make_database = make_database
        self._hands = asyncio.Semaphore(hands)
        self._times = 0
        self._unharmed: Found | None = None
        self.reference: Found | None = None  # what every other life is compared with

    async def warm_up(self) -> None:
        assert await self._zygote.run(replace(await self._errand(), warms=True)) == 0, self._log()

    async def unharmed(self) -> Found:
        """The story as it goes if nobody dies."""
        if self._unharmed is None:
            self._unharmed = await self.run()
            self.reference = self.reference or self._unharmed
        return self._unharmed

    async def run(self, *boundaries: str, broken: str | None = None) -> Found:
        """A process is killed at the first of them it comes to, the next at the first of the others, until one comes by
        none and is not killed."""
        async with self._hands:
            errand = replace(await self._errand(), broken=broken)
            deaths: list[Death] = []
            left = list(boundaries)
            while True:
                life = replace(errand, kill_at="\n".join(left), trace=f"{errand.trace}.{len(deaths)}")
                killed = await self._live(life)
                trace = _lines(life.trace)
                if not killed:
                    break
                left.remove(trace[-1])
                deaths.append(await self._death(errand, trace))
            found = Found(deaths, trace, branches(self._repository(errand)), _began(errand))
            found.unharmed = self.reference
            await self._gather(found, errand)
            return found

    def left_running(self) -> list[str]:
        """What the dead have started, and is there still."""
        return [command for command in living_below(self._folder) if _WORKER not in command]

    async def _live(self, errand: Errand) -> bool:
        """Whether it was killed."""
        ended = await self._zygote.run(errand)
        assert ended in (KILLED, 0), f"[{errand.kill_at}] the process ended with {ended}:\n{self._log()}"
        return ended == KILLED

    async def _errand(self) -> Errand:
        self._times += 1
        folder = self._folder / f"{self._times:04}"
        (folder / "workspaces").mkdir(parents=True)
        make_repository(folder / "repo")
        return Errand(
            session_id="", provider="", database_url=await self._make_database(folder), redis_url=self._redis_url,
            model_url="", folder=str(folder), trace=str(folder / "trace"), effects="",
        )  # fmt: skip

    async def _death(self, errand: Errand, trace: Sequence[str]) -> Death:
        fleet = self._fleet(errand)
        try:
            return Death(trace[-1], trace, branches(self._repository(errand)), await fleet.rows(Approval))
        finally:
            await fleet.close()

    async def _gather(self, found: Found, errand: Errand) -> None:
        folder, repository = Path(errand.folder), self._repository(errand)
        found.history = history(repository, BRANCH) if BRANCH in found.branches else []
        found.shown = [json.loads(line) for line in _lines(str(folder / SHOWN))]
        workflows = folder / "workspaces" / FOLDER
        found.left = [*locks(workflows, repository / ".git"), *(path.name for path in (self._folder / "tmp").iterdir())]
        fleet = self._fleet(errand)
        try:
            await gather_rows(found, fleet)
            await tidy_workflows(fleet.db, folder / "workspaces")
        finally:
            await fleet.close()
        beside = [path.name for path in (folder / "workspaces").iterdir() if path.name not in ("foreman", FOLDER)]
        found.left = [*found.left, *beside, *(path.name for path in workflows.iterdir())]

    def _fleet(self, errand: Errand) -> Fleet:
        address = errand.database_url.replace("/proc/self/cwd", errand.folder)
        return Fleet(fleet_settings(address, errand.redis_url, Path(errand.folder)))

    @staticmethod
    def _repository(errand: Errand) -> Path:
        return Path(errand.folder) / "repo"

    def _log(self) -> str:
        return (self._folder / LOG).read_text(errors="replace")[-8000:]


async def gather_rows(found: Found, fleet: Fleet) -> None:
    found.workflows, found.stages = await fleet.rows(Workflow), await fleet.rows(Stage, Stage.number)
    found.sessions, found.events = await fleet.sessions(), await fleet.events()
    found.inbox, found.outbox = await fleet.rows(MessageIn), await fleet.rows(MessageOut)
    found.turns, found.steps = await fleet.rows(Turn), await fleet.rows(Step)
    found.approvals, found.usage = await fleet.rows(Approval), await fleet.rows(Usage)


def _began(errand: Errand) -> str:
    return (Path(errand.folder) / "repo" / ".git" / "refs" / "heads" / "main").read_text().strip()


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def living_below(folder: Path) -> list[str]:
    """Programs that work in a folder, or in a sandbox that holds a part of it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            own = os.readlink(process / "ns/mnt") != os.readlink("/proc/self/ns/mnt")
            works = Path(os.readlink(process / "cwd")).is_relative_to(folder)
            if works or (own and f"/{folder.parent.name}/{folder.name}/" in (process / "mountinfo").read_text()):
                found.append((process / "cmdline").read_text().replace("\0", " ").strip())
    return [command for command in found if command]  # who has ended has none


@asynccontextmanager
async def open_foreman_dock(
    redis_url: str, folder: Path, make_database: MakeDatabase, hands: int = 2
) -> AsyncIterator[ForemanDock]:
    folder.mkdir()
    zygote = await ForemanZygote.start(folder / LOG)
    try:
        dock = ForemanDock(zygote, redis_url, folder, make_database, hands)
        await dock.warm_up()
        yield dock
    finally:
        await zygote.stop()
