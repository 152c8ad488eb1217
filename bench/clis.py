"""(clis) One small turn of a CLI agent: by our driver and in the fleet, against the program started by hand.

The driver's side has all that a real turn has: bubblewrap, the key proxy, the door to our tools, a home of its own. The
stand-in model server has a process of its own. A program that is not installed, or has no driver, is passed over."""

import asyncio
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from adapters.contracts import QueryInput
from adapters.errors import AdapterError
from adapters.events import Failed, Result
from adapters.policy import Policy
from adapters.providers.cli.home import pack, unpack
from adapters.providers.cli.installation import Installation, find
from adapters.providers.conformance import ProbeBox
from adapters.registry import Registry
from adapters.sandbox.bubblewrap import NOBODY, Bubblewrap
from adapters.station import ProgramProvider, Station
from bench.bare_clis import ANSWER, PATIENCE_SECONDS, PROMPT, Cli, Run, give, run_bare
from bench.clis_in_fleet import InFleet, run_in_fleet
from bench.figures import Figure
from bench.process_tree import Watch, below, orphans_adopted
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage
from bench.standin import ModelServer, scripted_server
from tests.support.programs import Doorman, Doors
from tests.support.servers import private_folder
from workers.tool_server import ToolServer


@dataclass(frozen=True)
class State:
    """What travels with a conversation: its size, and what it takes to gather it and to lay it out again."""

    kb: float
    ms: float


@dataclass
class Runs:
    bare: list[Run] = field(default_factory=list)
    driver: list[Run] = field(default_factory=list)
    state: list[State] = field(default_factory=list)


def measure(cli: Cli, stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    installation, provider = find(cli.name), _provider(cli)
    if installation is None or isinstance(provider, str):
        say(f"({cli.name}) passed over: {provider if installation else 'it is not installed, run `make clis`'}")
        return []
    with scripted_server() as server, _environment(server), _no_traces():
        runs = asyncio.run(_measure(cli, installation, provider, server.url, scale, say))
        fleet = run_in_fleet(stage, kind, cli, server, scale.repeats)
    say(
        f"({cli.name}) in the fleet: {median(fleet.seconds):.1f} s; one that waits for a person: "
        f"{fleet.waiting_processes} processes, {fleet.waiting_kb:+.0f} kB in the worker"
    )
    return _figures(cli, runs, fleet)


def _figures(cli: Cli, runs: Runs, fleet: InFleet) -> list[Figure]:
    ends, memory = [run.end for run in runs.bare], [run.memory_mb for run in runs.bare]

    def figure(what: str, ours: Sequence[float], bare: Sequence[float], unit: str, note: str = "") -> Figure:
        return Figure(cli.name, what, ours, bare, unit, note=note)

    return [
        figure(
            "start to first event",
            [r.first for r in runs.driver],
            [r.first for r in runs.bare],
            "s",
            cli.first_event,
        ),
        figure("start to answer", [r.answer for r in runs.driver], [r.answer for r in runs.bare], "s"),
        figure("wake to end of turn, in the fleet", fleet.seconds, ends, "s", "peer: start to end"),
        figure(
            "memory of all its processes",
            [r.memory_mb for r in runs.driver],
            memory,
            "MB",
            f"waiting for a person: {fleet.waiting_processes} processes",
        ),
        figure(
            "memory it adds in the worker",
            fleet.added_mb,
            memory,
            "MB",
            f"its first turn: {fleet.first_mb:.0f} MB",
        ),
        figure(
            "state packed and unpacked",
            [state.ms for state in runs.state],
            [end * 1000 for end in ends],
            "ms",
            f"{median(state.kb for state in runs.state):,.0f} kB; peer: start to end",
        ),
    ]


async def _measure(
    cli: Cli, installation: Installation, provider: ProgramProvider, url: str, scale: Scale, say: Say
) -> Runs:
    runs, tools = Runs(), ToolServer()
    try:
        for repeat in range(scale.repeats + 1):
            with _folders() as (home, workspace), orphans_adopted() as besides:
                bare = await run_bare(cli, installation, url, home, workspace, besides)
            with _folders() as (home, workspace), orphans_adopted() as besides:
                driver = await _run_driver(cli, provider, tools, home, workspace, besides)
                left = below(os.getpid(), besides)
                assert not left, f"{len(left)} processes of {cli.name} are left"
                state = _pack(home, provider.needs.state)
            if repeat:  # the first was the warm-up
                runs.bare.append(bare)
                runs.driver.append(driver)
                runs.state.append(state)
                say(
                    f"({cli.name}) repeat {repeat}: answer after {driver.answer:.1f} s with {driver.memory_mb:.0f} MB, "
                    f"bare {bare.answer:.1f} s and {bare.memory_mb:.0f} MB, load {os.getloadavg()[0]:.1f}"
                )
    finally:
        await provider.close()
        await tools.close()
    return runs


async def _run_driver(
    cli: Cli, provider: ProgramProvider, tools: ToolServer, home: Path, workspace: Path, besides: frozenset[int]
) -> Run:
    station = Station(Bubblewrap(), home, Doors(tools), Doorman(Policy()))
    given = QueryInput(PROMPT, ProbeBox(), (PROMPT,), cwd=str(workspace), model=cli.model, station=station)
    first = answer = 0.0
    with Watch(os.getpid(), besides) as watch:
        started = time.perf_counter()
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for event in provider.query(given).events:
                first = first or time.perf_counter() - started
                if isinstance(event, Failed):
                    raise RuntimeError(f"{cli.name} failed: {event.message}")
                if isinstance(event, Result) and event.text == ANSWER:
                    answer = time.perf_counter() - started
        end = time.perf_counter() - started
    if not answer:
        raise RuntimeError(f"{cli.name} ended without its answer")
    return Run(first, answer, end, watch.below_mb)


def _pack(home: Path, patterns: tuple[str, ...]) -> State:
    other = home.with_name("other-home")
    other.mkdir()
    started = time.perf_counter()
    packed = pack(home, patterns)
    unpack(packed, other)
    return State(len(packed) / 1000, (time.perf_counter() - started) * 1000)


def _provider(cli: Cli) -> ProgramProvider | str:
    """Or why there is none."""
    try:
        provider = Registry().providers.get(cli.adapter_id)
    except AdapterError as error:
        return str(error)
    return provider if isinstance(provider, ProgramProvider) else f"{cli.adapter_id} leads no program"


@contextmanager
def _folders() -> Iterator[tuple[Path, Path]]:
    """A home and a workspace that nobody has used."""
    folder = private_folder()
    home, workspace = folder / "home", folder / "workspace"
    try:
        for made in (home, workspace):
            made.mkdir()
            give(made)
        yield home, workspace
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _environment(server: ModelServer) -> Iterator[None]:
    """The drivers find the vendors' keys and addresses where a worker finds them."""
    before = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _no_traces() -> Iterator[None]:
    """Bare openclaw keeps logs and locks in fixed folders of /tmp, whatever TMPDIR says: those that it made are
    removed."""
    before = set(Path("/tmp").glob("openclaw*"))
    try:
        yield
    finally:
        user = NOBODY if os.geteuid() == 0 else os.geteuid()
        for path in set(Path("/tmp").glob("openclaw*")) - before:
            if path.lstat().st_uid == user:
                shutil.rmtree(path, ignore_errors=True)
