"""Running a scenario with deaths in it: each case has a folder and a database of its own; a process is killed at a
boundary, another goes on, until one comes to the end. Cases are independent, so several run at a time."""

import asyncio
import ctypes
import itertools
import json
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Generic

import pytest

from models import Approval, Step
from tests.support.boundaries.databases import MakeDatabase
from tests.support.boundaries.ledger import Death
from tests.support.boundaries.marks import OVER, Case, read_lines
from tests.support.boundaries.scenario import AnyScenario, E, Scenario
from tests.support.fleet import Fleet, fleet_settings
from tests.support.process_group import PR_SET_PDEATHSIG, ROOT, child_environment

KILLED = -signal.SIGKILL
WORKER = "tests.support.boundaries.worker"
LOG = "workers.log"
_libc = ctypes.CDLL(None)


class Server:
    """The process that forks the workers. Ends with its test, however that ends."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._numbers = itertools.count(1)
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, scenario: AnyScenario, folder: Path) -> "Server":
        temporary = folder / "tmp"
        temporary.mkdir()
        with (folder / LOG).open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", WORKER, scenario.name, stdin=PIPE, stdout=PIPE, stderr=output, cwd=ROOT,
                env=child_environment(TMPDIR=str(temporary), **scenario.environment),
                preexec_fn=lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )  # fmt: skip
        return cls(process)

    async def run(self, case: Case) -> int:
        """How the worker ended: 0, or the negative number of the signal it died of."""
        assert self._process.stdin is not None
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked[next(self._numbers)] = ended
        self._process.stdin.write(json.dumps(asdict(case)).encode() + b"\n")
        return await ended

    async def stop(self) -> None:
        """Its forks die with it."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reader

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            number, code = line.split()
            self._asked.pop(int(number)).set_result(int(code))
        for left in self._asked.values():
            left.set_exception(EOFError("the process that forks workers has ended"))


class Runner(Generic[E]):
    def __init__(
        self,
        scenario: Scenario[E],
        server: Server,
        folder: Path,
        make_database: MakeDatabase,
        redis_url: str,
        at_once: int,
    ) -> None:
        self.folder = folder
        self._scenario = scenario
        self._server = server
        self._make_database = make_database
        self._redis_url = redis_url
        self._at_once = asyncio.Semaphore(at_once)
        self._cases = itertools.count(1)
        self._unharmed: dict[str, E] = {}

    async def run(self, *boundaries: str, **options: str) -> E:
        """A process is killed at the first of them it comes to, the next at the first of the others, until one comes by
        none and is not killed. Of the options, `fault` names one of the scenario's."""
        async with self._at_once, self._open_case(options) as (fleet, case):
            deaths: list[Death] = []
            left = list(boundaries)
            while await self._is_killed(case := replace(case, life=len(deaths), kill_at=tuple(left))):
                trace = read_lines(case.trace)
                left.remove(trace[-1])
                await self._scenario.after_death(fleet, case)
                steps, approvals = await fleet.rows(Step), await fleet.rows(Approval)
                branches = self._scenario.branches(case)
                deaths.append(Death(trace[-1], trace, read_lines(case.effects), steps, approvals, branches))
            found = self._scenario.evidence(deaths, read_lines(case.trace), read_lines(case.effects))
            await self._scenario.gather(found, fleet, case)
            found.shown = [json.loads(line) for line in read_lines(case.shown)]
            await found.read_rows(fleet)
            return found

    async def warm_up(self, **options: str) -> None:
        async with self._open_case(options) as (_, case):
            await self._is_killed(replace(case, warms=True))

    @asynccontextmanager
    async def _open_case(self, options: Mapping[str, str]) -> AsyncIterator[tuple[Fleet, Case]]:
        folder = self.folder / f"case{next(self._cases):04}"
        (folder / "workspaces").mkdir(parents=True)
        with self._make_database(folder) as database_url:
            fleet = Fleet(fleet_settings(database_url, self._redis_url, folder))
            try:
                case = Case(str(folder), database_url, self._redis_url, options)
                await self._scenario.prepare(fleet, case)
                yield fleet, case
            finally:
                await fleet.close()

    async def _is_killed(self, case: Case) -> bool:
        ended = await self._server.run(case)
        if ended not in (KILLED, 0):
            log = (self.folder / LOG).read_text(errors="replace")
            pytest.fail(f"{case.kill_at}: the process ended with {ended}:\n{log[-8000:]}", pytrace=False)
        return ended == KILLED

    async def unharmed(self, **options: str) -> E:
        """The story as it goes if nobody dies."""
        key = json.dumps(options)
        if key not in self._unharmed:
            self._unharmed[key] = await self.run(**options)
            _check([self._unharmed[key]])
        return self._unharmed[key]

    async def find_boundaries(self, **options: str) -> list[str]:
        *boundaries, last = (await self.unharmed(**options)).last
        assert last == OVER
        sure = [boundary for boundary in boundaries if self._scenario.is_sure(boundary)]
        print(f"\n{self._about(options)}: {len(sure)} boundaries")
        return sure

    async def kill_at(self, lives: Sequence[Sequence[str]], **options: str) -> list[E]:
        """Each life of the story with its deaths; no complaint about any."""
        began = time.monotonic()
        found = await asyncio.gather(*(self.run(*deaths, **options) for deaths in lives))
        _check(found)
        killed, seconds = sum(len(one.deaths) for one in found), time.monotonic() - began
        print(f"\n{self._about(options)}: {killed} killed in {len(lives)} lives in {seconds:.0f} s")
        return found

    def _about(self, options: Mapping[str, str]) -> str:
        return " ".join((self._scenario.name, self.folder.name, *options.values()))


def _check(found: Sequence[E]) -> None:
    complaints = [complaint for one in found for complaint in one.complaints()]
    if complaints:
        pytest.fail(f"{len(complaints)} complaints:\n" + "\n".join(complaints[:60]), pytrace=False)


def missed(chosen: Collection[str], found: Sequence[E]) -> set[str]:
    """Boundaries at which nobody died."""
    return set(chosen) - {death.boundary for one in found for death in one.deaths}


@asynccontextmanager
async def open_runner(
    scenario: Scenario[E], folder: Path, make_database: MakeDatabase, redis_url: str, at_once: int = 3
) -> AsyncIterator[Runner[E]]:
    """`at_once`: how many cases run at a time. Workers mostly wait, for the database and for each other."""
    server = await Server.start(scenario, folder)
    try:
        runner = Runner(scenario, server, folder, make_database, redis_url, at_once)
        for options in scenario.warm_ups:
            await runner.warm_up(**options)
        yield runner
    finally:
        await server.stop()
