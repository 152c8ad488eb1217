"""Real CLI agents under the provider contract: a sandbox, homes, our tools over MCP, a guard, and the stand-in model.

A test module describes its program (`Cli`); `ProgramHarness` is the conformance suite's harness for it."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.contracts import QueryInput, ToolBox
from adapters.errors import ErrorClass
from adapters.policy import Policy
from adapters.providers.cli.home import pack, unpack
from adapters.providers.cli.installation import find
from adapters.providers.conformance import Work
from adapters.risk import Intent, judge
from adapters.sandbox.bubblewrap import NOBODY, Bubblewrap
from adapters.station import Permission, ProgramProvider, Station, ToolDoor
from tests.support.model_api import ModelApi, Rule, drip, garbage, hang, refuse, rule, script, stall
from workers.tool_server import ToolServer

REQUIRED: Final = "LONGSHORE_REQUIRE_CLIS"
ESSENTIAL: Final = {
    "detects_itself",
    "reports_the_file_it_edits",
    "asks_before_what_is_risky",
    "it_remembers_on_another_machine",  # that it has called a tool of ours, too
    "stopping_leaves_no_child",
}
FAULTS: Final = (
    hang(when="slow", times=None),
    stall(300, when="hang", times=None),
    garbage("json", when="crash", times=None),
    refuse("rate_limited", retry_after=7, when="fail", times=None),
    drip(0.02, 200, when="listen", times=None),
)
RULES: Final = (
    rule("answer", "Good morning to you"),
    rule("resume", "Good morning again"),
    rule("listen", "One moment, I am listening"),
)


@dataclass(frozen=True)
class Cli:
    """A program and how to lead it. `rules` are what the model says to its prompts `tool`, `edit` and `risky`, in the
    words of this program's own tools; `keys` are the variables of its vendor (key, address, and what comes after the
    stand-in's address)."""

    name: str
    provider: Callable[[], ProgramProvider]
    rules: tuple[Rule, ...]
    keys: tuple[str, str, str]
    model: str
    patience: float = 60.0
    good_options: Mapping[str, Any] = field(default_factory=dict)
    bad_options: Mapping[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)


class Doorman:
    """A guard without a fleet: what a person must decide waits."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.asked: list[Intent] = []

    async def ask(self, intent: Intent) -> Permission:
        self.asked.append(intent)
        judgement = judge(intent, self._policy)
        word = {"allow": "allow", "deny": "deny", "ask": "wait"}[judgement.word]
        return Permission(
            word,  # type: ignore[arg-type]
            "somebody has been asked; stop here" if word == "wait" else judgement.why,
            judgement.category,
            judgement.summary,
            judgement.risk,
        )


class Doors:
    def __init__(self, server: ToolServer) -> None:
        self._server = server

    @asynccontextmanager
    async def open(self, tools: ToolBox) -> AsyncIterator[ToolDoor]:
        async with self._server.bind(tools) as binding:
            yield ToolDoor(binding.socket, binding.token)


class ProgramHarness:
    failure_class = ErrorClass.RATE_LIMIT
    key = "fake-key-of-the-vendor-1234567890"

    def __init__(self, cli: Cli, api: ModelApi, folder: Path, server: ToolServer) -> None:
        self.cli = cli
        self.api = api
        self.provider = cli.provider()
        self.patience = cli.patience
        self.good_options = cli.good_options
        self.bad_options = cli.bad_options
        self.guard = Doorman(Policy())
        self.workspace = folder / "workspace"
        self._folder = folder
        self._server = server
        self._homes: list[Path] = []
        self._make(self.workspace)

    def given(self, work: Work | str, tools: ToolBox, **more: Any) -> QueryInput:
        """On a machine that has never seen the program: its home holds only what travels."""
        home = self._folder / f"home-{len(self._homes)}"
        self._make(home)
        if self._homes:
            unpack(pack(self._homes[-1], self.provider.needs.state), home)
        self._homes.append(home)
        station = Station(Bubblewrap(), home, Doors(self._server), self.guard)
        given: dict[str, Any] = {"cwd": str(self.workspace), "model": self.cli.model, "station": station}
        return QueryInput(prompt=work, messages=(work,), tools=tools, **(given | more))

    def _make(self, folder: Path) -> None:
        folder.mkdir()
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)


@asynccontextmanager
async def harness_of(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgramHarness]:
    require(cli.name)
    key, address, path = cli.keys
    folder = Path(tempfile.mkdtemp(prefix="longshore-test-"))
    folder.chmod(0o711)
    server = ToolServer()
    async with ModelApi(script(*cli.rules, *RULES), strict=False) as api:
        monkeypatch.setenv(key, ProgramHarness.key)
        monkeypatch.setenv(address, f"{api.url}{path}")
        api.fail(*FAULTS)
        harness = ProgramHarness(cli, api, folder, server)
        try:
            yield harness
        finally:
            await harness.provider.close()
            await server.close()
            shutil.rmtree(folder, ignore_errors=True)


def essential(checks: Sequence[Any], *, but: Collection[str] = ()) -> list[Any]:
    """Of a program that takes seconds to start, only the checks that nothing else stands for are run each time."""
    names = [getattr(check, "name", None) or check.__name__ for check in checks]
    return [
        pytest.param(check, id=name, marks=() if name in ESSENTIAL and name not in but else pytest.mark.long)
        for check, name in zip(checks, names, strict=True)
    ]


def require(name: str) -> None:
    """The test needs that program. Where it must be there, its absence is a failure."""
    if find(name) is not None:
        return
    required = [word.strip() for word in os.environ.get(REQUIRED, "").split(",")]
    why = f"{name} is not installed: run `make clis`"
    if name in required:
        pytest.fail(why)
    pytest.skip(why)


def living(mark: str) -> list[int]:
    """Processes with that word on their command line, wherever they are in the tree. (Not this one.)"""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{entry}/cmdline").read_bytes()
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in line and state not in "ZX" and int(entry) != os.getpid():
            found.append(int(entry))
    return found


@contextmanager
def environments() -> Iterator[Callable[[], bytes]]:
    """Everything that processes started meanwhile have in their environments and on their command lines, so far."""
    before = set(filter(str.isdigit, os.listdir("/proc")))

    def read() -> bytes:
        seen = b""
        for entry in set(filter(str.isdigit, os.listdir("/proc"))) - before:
            for name in ("environ", "cmdline"):
                try:
                    seen += Path(f"/proc/{entry}/{name}").read_bytes() + b"\n"
                except OSError:
                    continue
        return seen

    yield read
