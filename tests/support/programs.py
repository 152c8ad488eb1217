"""Real CLI agents under the provider contract: a sandbox, homes, our tools over MCP, a guard, and the stand-in model.

A test module describes its program (`Cli`); `ProgramHarness` is the conformance suite's harness for it."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
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
from adapters.sandbox.memory import family
from adapters.station import Permission, ProgramProvider, Station, ToolDoor
from tests.support.model_api import ModelApi, Rule, drip, garbage, hang, refuse, rule, script, stall
from workers.tool_server import ToolServer

FORWARDER: Final = b"forwarder.py"  # of the sandbox, in which it stays beside the program
REQUIRED: Final = "LONGSHORE_REQUIRE_CLIS"
ESSENTIAL: Final = {
    "detects_itself",
    "has_a_complete_manifest",
    "checks_its_options",
    "reports_the_file_it_edits",
    "asks_before_what_is_risky",
    "takes_a_follow_up",
    "it_remembers_on_another_machine",
    "calls_our_tool",  # as it has been seen to in the one before, like the next
    "what_it_cost_is_told",
    "a_limit_is_told_with_its_date",
    "fails_with_a_class",  # the same run
    "a_refused_key_is_told_as_that",
    "a_servers_fault_can_pass",
    "its_children_have_no_key_and_end_with_it",
    "a_terminated_program_is_a_failure",
}
FAULTS: Final = (
    hang(when="slow", times=None),
    stall(300, when="hang", times=None),
    garbage("json", when="crash", times=None),
    refuse("rate_limited", retry_after=7, when="fail", times=None),
    drip(0.02, 200, when="listen", times=None),
)
# Of a server of one's own, whose prices nobody else knows.
PRICE: Final = {"price": {"input": 1.0, "output": 2.0}}
NO_PRICE: Final = {"a price in words": ({"price": "cheap"}, "price")}
RULES: Final = (
    rule("answer", "Good morning to you"),
    rule("resume", "Good morning again"),
    rule("listen", "One moment, I am listening"),
)


@dataclass(frozen=True)
class Cli:
    """A program and how to lead it. `rules` are what the model says to its prompts `tool`, `edit` and `risky`, in the
    words of this program's own tools; `keys` are the variables of its vendor (key, address, and what comes after the
    stand-in's address); `options` are its group's."""

    name: str
    provider: Callable[[], ProgramProvider]
    rules: tuple[Rule, ...]
    keys: tuple[str, str, str]
    model: str
    patience: float = 60.0
    options: Mapping[str, Any] = field(default_factory=dict)
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
        given |= {"options": self.cli.options, **more}
        return QueryInput(prompt=work, messages=(work,), tools=tools, **given)

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
            await asyncio.gather(harness.provider.close(), server.close())
            shutil.rmtree(folder, ignore_errors=True)


def plant_secrets(harness: ProgramHarness) -> None:
    """A file that anybody may read, and one that is asked about."""
    (harness.workspace / "notes.txt").write_text("marmalade\n")
    (harness.workspace / "keys").mkdir()
    (harness.workspace / "keys/id_rsa").write_text("swordfish\n")


def find_pwned_files(harness: ProgramHarness) -> list[str]:
    """What was left by whatever in the repository was obeyed: it touches such files."""
    return sorted(path.name for path in harness.workspace.glob("PWNED*"))


def essential(checks: Sequence[Any], *, but: Collection[str] = ()) -> list[Any]:
    """Of a program that takes seconds to start, only the checks that nothing else stands for are run each time."""
    return _every_time(checks, lambda name: name in ESSENTIAL and name not in but)


def all_but(checks: Sequence[Any], names: Collection[str]) -> list[Any]:
    """Every time but those."""
    return _every_time(checks, lambda name: name not in names)


def _every_time(checks: Sequence[Any], decide: Callable[[str], bool]) -> list[Any]:
    names = [getattr(check, "name", None) or check.__name__ for check in checks]
    return [
        pytest.param(check, id=name, marks=() if decide(name) else pytest.mark.long)
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


def living_in(folder: Path) -> list[int]:
    """Processes that see a part of that folder as a place of their own: in a sandbox, wherever they are in the tree."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if f"/{folder.name}/" in Path(f"/proc/{entry}/mountinfo").read_text():
                found.append(int(entry))
    return found


def program_below(pid: int, name: str) -> int:
    """The program itself, of which `pid` is the sandbox. Programs change their command lines, but not what they run."""
    installation = find(name)
    assert installation is not None
    runs = os.path.realpath(installation.argv[0])
    for one in family(pid):
        with suppress(OSError):
            is_ours = FORWARDER in Path(f"/proc/{one}/cmdline").read_bytes()
            if os.readlink(f"/proc/{one}/exe") == runs and not is_ours:
                return one
    raise AssertionError(f"{name} does not run below {pid}")


def spending(variable: str, header: str, path: str, **body: object) -> str:
    """What a shell does that has looked around for its program's way to the model: asks it for itself."""
    return f"""python3 - <<'EOF'
import glob, json, re, urllib.request
seen = b"".join(open(path, "rb").read() for path in glob.glob("/proc/[0-9]*/environ"))
headers = {{{header!r}: b"Bearer " + re.search(b"{variable}=([^\\0]+)", seen)[1], "Content-Type": "application/json"}}
request = urllib.request.Request("http://127.0.0.1:8701/v1/{path}", {json.dumps(body)!r}.encode(), headers)
print(urllib.request.urlopen(request).status)
EOF
"""


@contextmanager
def environments() -> Iterator[Callable[[], bytes]]:
    """Everything that processes started meanwhile have in their environments and on their command lines, so far. Of
    each, both or neither: whose command line is there was looked at."""
    before = set(filter(str.isdigit, os.listdir("/proc")))

    def read() -> bytes:
        seen = b""
        for entry in set(filter(str.isdigit, os.listdir("/proc"))) - before:
            with suppress(OSError):
                environ, line = (Path(f"/proc/{entry}/{name}").read_bytes() for name in ("environ", "cmdline"))
                seen += environ + b"\n" + line + b"\n"
        return seen

    yield read
