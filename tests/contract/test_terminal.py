"""The provider contract on a program in a terminal, and people who sit down at it."""

import asyncio
import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from adapters.contracts import QueryInput, ToolBox
from adapters.errors import ErrorClass, TerminalError
from adapters.events import ControlChanged, Failed, ProviderEvent, Result, ScreenChanged
from adapters.policy import Policy
from adapters.providers.cli.terminal.provider import TerminalProvider, TerminalQuery
from adapters.providers.conformance import CHECKS, Check, NotApplicable, ProbeBox, Work, run_check
from adapters.sandbox.bubblewrap import Bubblewrap
from adapters.station import Station
from adapters.terminal_port import Terminal
from tests.support.programs import Doorman, Doors, living
from tests.support.servers import private_folder
from workers.tool_server import ToolServer

# A program that does what the suite asks for, by what is typed.
ACTOR = """
import sys, time
print("at your service", flush=True)
for line in sys.stdin:
    match line.strip():
        case "slow" | "hang":
            print("working", flush=True)
            while True:
                time.sleep(0.05)
                if line.strip() == "slow":
                    print(".", end="", flush=True)
        case "crash" | "fail":
            sys.exit("no more memory")
        case word:
            print(f"you said {word}", flush=True)
"""
BASH = ("bash", "--norc", "-i")


class TerminalHarness:
    patience = 30.0
    failure_class = ErrorClass.INTERNAL
    good_options: ClassVar[Mapping[str, Any]] = {
        "command": ["bash", "-i"],
        "rows": 24,
        "columns": 80,
        "idle_seconds": 2,
        "prompt_keys": "\r",
    }
    bad_options: ClassVar[Mapping[str, tuple[Mapping[str, Any], str]]] = {
        "an option it does not have": ({"model": "x"}, "model"),
        "a command that is no list": ({"command": "bash -i"}, "command"),
        "a command of numbers": ({"command": [1]}, "command"),
        "a screen without rows": ({"rows": 0}, "rows"),
        "a screen too wide": ({"columns": 10**6}, "columns"),
        "no time at all": ({"idle_seconds": 0}, "idle_seconds"),
        "keys that are no text": ({"prompt_keys": 13}, "prompt_keys"),
    }

    def __init__(self, folder: Path) -> None:
        self.provider = TerminalProvider()
        self._folder = folder
        self._homes = 0
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.tools = ToolServer()

    def given(self, work: Work | str, tools: ToolBox, **options: Any) -> QueryInput:
        self._homes += 1
        home = self._folder / f"home-{self._homes}"
        home.mkdir()
        station = Station(Bubblewrap(), home, Doors(self.tools), Doorman(Policy()))
        given = {"command": ["python3", "-c", ACTOR], "idle_seconds": 0.3, "rows": 24, "columns": 80} | options
        return QueryInput(prompt=work, tools=tools, cwd=str(self.workspace), station=station, options=given)

    def at(self, *command: str, prompt: str, **options: Any) -> "Sitting":
        return Sitting(self.provider.query(self.given(prompt, ProbeBox(), command=list(command), **options)))


class Sitting:
    """Somebody who watches a terminal. `until` waits for what is to be seen."""

    def __init__(self, query: TerminalQuery) -> None:
        self.query = query
        self.events: list[ProviderEvent] = []
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._read())

    async def __aenter__(self) -> "Sitting":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.query.abort()
        await self._task

    async def until(self, seen: Callable[[str], bool]) -> str:
        """What the screen showed then."""
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(lambda: any(map(seen, self.screens)) or self._task.done())
        found = [screen for screen in self.screens if seen(screen)]
        assert found, self.screens[-1:]
        return found[-1]

    async def end(self) -> list[str]:
        """Its answers."""
        async with asyncio.timeout(60):
            await asyncio.shield(self._task)
        return [event.text for event in self.events if isinstance(event, Result)]

    @property
    def screens(self) -> list[str]:
        return ["\n".join(event.lines) for event in self.events if isinstance(event, ScreenChanged)]

    async def _read(self) -> None:
        async for event in self.query.events:
            async with self._news:
                self.events.append(event)
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()


@pytest.fixture
async def harness() -> AsyncIterator[TerminalHarness]:
    folder = private_folder()
    harness = TerminalHarness(folder)
    yield harness
    await harness.tools.close()
    shutil.rmtree(folder)


@pytest.mark.spec("P15", "P12")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_a_program_in_a_terminal_keeps_the_contract(check: Check, harness: TerminalHarness) -> None:
    outcome = await run_check(check, harness)
    if isinstance(outcome, NotApplicable):
        # It is begun anew each time, shows its answer as a screen, and nobody knows what it does.
        assert outcome.reason.rpartition(" ")[2] in (
            *("streaming=False", "tools=False", "resume=False", "structured_edits=none", "approvals=False"),
        )


@pytest.mark.spec("P12")
async def test_a_shell_and_an_interpreter_answer_with_their_screens(harness: TerminalHarness) -> None:
    async with harness.at(*BASH, prompt="echo $((6 * 7)) 漢字 'é'; tput lines") as shell:
        [answer] = await shell.end()
    assert answer.split("\n")[1:3] == ["42 漢字 é", "24"]
    async with harness.at("python3", "-q", prompt="print(6 * 7)") as python:
        [answer] = await python.end()
    assert answer.split("\n") == [">>> print(6 * 7)", "42", ">>>"]


@pytest.mark.spec("P12")
async def test_a_program_that_draws_on_the_whole_screen_is_seen_and_follows_its_size(harness: TerminalHarness) -> None:
    drawing = """
import curses
def draw(screen):
    while True:
        screen.clear()
        rows, columns = screen.getmaxyx()
        screen.addstr(rows - 1, 0, f"bottom of {rows} x {columns}")
        screen.addstr(0, columns - 5, "right")
        screen.refresh()
        if screen.getch() == ord("q"):
            return
curses.wrapper(draw)
"""
    async with harness.at("python3", "-c", drawing, prompt="x") as sitting:
        screen = await sitting.until(lambda screen: "bottom of 24 x 80" in screen)
        assert screen.split("\n")[0] == " " * 75 + "right"
        assert len(screen.split("\n")) == 24
        await sitting.query.control("delegated", "ann")
        await sitting.query.resize(10, 40)
        screen = await sitting.until(lambda screen: "bottom of 10 x 40" in screen)
        assert screen.split("\n")[0] == " " * 35 + "right"
        for size in ((1, 40), (10, 10**6)):
            with pytest.raises(TerminalError, match="rows"):
                await sitting.query.resize(*size)


@pytest.mark.spec("P12")
async def test_people_take_over_and_hand_back(harness: TerminalHarness) -> None:
    async with harness.at(*BASH, prompt="echo by-the-$((1)) agent", idle_seconds=0.5) as sitting:
        query = sitting.query
        assert isinstance(query, Terminal)
        await sitting.until(lambda screen: "$" in screen)
        with pytest.raises(TerminalError, match="the agent leads"):
            await query.type("echo no\r", "ann")
        await query.control("human-led", "ann")
        # More than what would count as its answer, and its own prompt waits.
        await asyncio.sleep(1.2)
        await query.type("echo by-the-$((2)) person\r", "ann")
        screen = await sitting.until(lambda screen: "by-the-2 person" in screen)
        assert "agent" not in screen
        assert await query.push("echo by-the-$((3)) follow-up")
        assert not any(isinstance(event, Result) for event in sitting.events)
        assert query.show() == [event for event in sitting.events if isinstance(event, ScreenChanged)][-1]
        await query.control("agent-led", "ann")
        first, second = await sitting.end()
        assert "by-the-1 agent" in first
        assert "by-the-3" not in first
        assert "by-the-3 follow-up" in second
        changes = [(event.mode, event.by) for event in sitting.events if isinstance(event, ControlChanged)]
        assert changes == [("human-led", "ann"), ("agent-led", "ann")]
        for late in (query.type("x", "ann"), query.control("human-led", "ann"), query.resize(24, 80)):
            with pytest.raises(TerminalError):
                await late


@pytest.mark.spec("P12")
async def test_a_message_cannot_press_keys(harness: TerminalHarness) -> None:
    """Nor end what is pasted."""
    async with harness.at(*BASH, prompt="echo one\x03\x04\x1b[201~\x1b two") as sitting:
        [answer] = await sitting.end()
    assert "one[201~ two" in answer.split("\n")[1]


@pytest.mark.spec("P12")
async def test_a_flood_makes_the_program_wait_and_not_us(harness: TerminalHarness) -> None:
    """Coloured, so that each line has to be drawn."""
    flood = "i=0; while true; do printf '\\033[31m%d\\033[0m flooding ' $i; i=$((i+1)); done"
    before = os.times()
    async with harness.at("sh", "-c", flood, prompt="x", rows=10, columns=40) as sitting:
        async with asyncio.timeout(30):
            while len(sitting.screens) < 10:
                await asyncio.sleep(0.05)
        passed = os.times().elapsed - before.elapsed
        used = os.times().user - before.user
        assert max(len(screen) for screen in sitting.screens) <= 10 * 41
    # Of this process alone: other work on the machine only makes it less.
    assert used < passed * 0.8, "drawing took all there is"
    assert not any(isinstance(event, Failed) for event in sitting.events)


@pytest.mark.spec("P12")
async def test_nothing_of_it_is_left(harness: TerminalHarness) -> None:
    mark = f"longshore-left-{secrets.token_hex(8)}"
    jobs = f"sh -c 'sleep 3600; : {mark}' & setsid sh -c 'sleep 3600; : {mark}' & echo started-$((1))"
    async with harness.at(*BASH, prompt=jobs) as sitting:
        await sitting.until(lambda screen: "started-1" in screen)
        assert living(mark)
    assert living(mark) == []
    async with harness.at(*BASH, prompt=jobs, idle_seconds=60) as sitting:
        await sitting.until(lambda screen: "$" in screen)
        assert sitting.query.pid is not None
        os.kill(sitting.query.pid, signal.SIGKILL)
        await sitting.end()
        assert isinstance(sitting.events[-1], Failed)
        assert sitting.query.status == "failed"


@pytest.mark.spec("P12")
async def test_what_cannot_run_says_why(harness: TerminalHarness) -> None:
    async with harness.at(prompt="hello") as sitting:
        await sitting.end()
    [failed] = sitting.events
    assert isinstance(failed, Failed)
    assert "set the option `command`" in failed.message
    assert not failed.retryable
    async with harness.at("no-such-program", prompt="hello") as sitting:
        await sitting.end()
    assert isinstance(sitting.events[-1], Failed)
    assert "no-such-program" in sitting.events[-1].message
