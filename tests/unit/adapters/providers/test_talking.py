"""A query is stopped in bounded time, also when nobody has read what it said."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.contracts import QueryInput
from adapters.events import Message, Progress, SessionStarted
from adapters.providers.cli.installation import Installation
from adapters.providers.cli.query import ProgramQuery
from adapters.providers.cli.terminal.options import Options
from adapters.providers.cli.terminal.provider import TerminalQuery
from adapters.providers.conformance import ProbeBox
from adapters.providers.talking import AHEAD, CALLS, LONGEST_TEXT, LONGEST_VALUE, TalkingQuery, fits, joined, remember
from adapters.sandbox.port import Command


class Chatterbox(TalkingQuery):
    def __init__(self) -> None:
        super().__init__(QueryInput(prompt="", tools=ProbeBox()))
        self.ahead = asyncio.Event()

    async def push(self, text: str) -> bool:
        return False

    async def converse(self) -> None:
        try:
            for number in range(2 * AHEAD):
                if number == AHEAD:
                    self.ahead.set()
                await self.say(Progress(text=str(number)))
        finally:
            await self.say(Progress(text="what it has cost"))


@pytest.mark.spec("P12")
@pytest.mark.parametrize("how", ["abort", "close"])
async def test_an_agent_nobody_listens_to_any_more_can_be_stopped(how: str) -> None:
    query = Chatterbox()
    assert await anext(query.events) == Progress(text="0")
    async with asyncio.timeout(10):
        await query.ahead.wait()
        await asyncio.sleep(0)
        if how == "abort":
            await query.abort()
            assert query.status == "aborted"
        else:
            await query.events.aclose()  # type: ignore[attr-defined]


class Clinging:
    """A sandbox whose one program is gone only when somebody lets go of it."""

    def __init__(self) -> None:
        self.stopping, self.let_go, self.gone = asyncio.Event(), asyncio.Event(), False
        self.pid, self.passed = 1, None
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()

    async def start(self, command: Command) -> Any:
        return self

    async def stop(self) -> None:
        self.stopping.set()
        await self.let_go.wait()
        self.stdout.feed_eof()
        self.stderr.feed_eof()
        self.gone = True


class Piped(ProgramQuery):
    async def push(self, text: str) -> bool:
        return False

    async def converse(self) -> None:
        async with self.start(Installation("program", ("program",), ()), (), env={}, doors=()) as program:
            await self.begin("one", "1")
            async for _ in program.lines():
                pass


@pytest.mark.spec("P12")
@pytest.mark.parametrize("kind", ["pipes", "terminal"])
async def test_a_query_that_is_aborted_twice_returns_when_its_program_is_gone(kind: str, tmp_path: Path) -> None:
    """Its home is packed and removed after that: nobody may be at it any more."""
    sandbox = Clinging()
    station: Any = SimpleNamespace(sandbox=sandbox, home=tmp_path)
    given = QueryInput(prompt="", tools=ProbeBox(), cwd=str(tmp_path), station=station)
    query = Piped(given) if kind == "pipes" else TerminalQuery(given, Options.read({"command": ["sh"]}))
    assert isinstance(await anext(query.events), SessionStarted)
    async with asyncio.timeout(10):
        stops = [asyncio.create_task(query.abort())]
        await sandbox.stopping.wait()
        stops += [asyncio.create_task(query.abort()) for _ in range(2)]
        await asyncio.sleep(0)
        stops[0].cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(stop.done() for stop in stops)
        sandbox.let_go.set()
        outcomes = await asyncio.gather(*stops, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, type(None), type(None)]
    assert sandbox.gone


@pytest.mark.spec("P12")
async def test_what_has_no_end_is_cut_and_that_is_said() -> None:
    class Rambler(Chatterbox):
        async def converse(self) -> None:
            text = ""
            for _ in range(10):
                text = joined(text, "x" * (LONGEST_TEXT // 4))
            await self.say(Message(text=text))
            await self.say(Message(text=joined("short", " and good")))

    rambling, short = [event.text async for event in Rambler().events if isinstance(event, Message)]
    assert rambling == "x" * LONGEST_TEXT + f"\n[cut: it is longer than {LONGEST_TEXT:,} characters]"
    assert short == "short and good"


@pytest.mark.spec("P12")
def test_only_so_much_is_remembered() -> None:
    known: dict[str, object] = {}
    for number in range(3 * CALLS):
        remember(known, str(number), {"path": "a.txt"})
    assert list(known) == [str(number) for number in range(2 * CALLS, 3 * CALLS)]
    huge = "x" * (LONGEST_VALUE + 1)
    nested: list[Any] = []
    for value in (huge, [1] * (LONGEST_VALUE + 1), {"a": [{"b": huge}]}, {huge: 1}, [("x" * 1000, 1)] * 10_000):
        remember(known, "large", value)
        assert "large" not in known
    for _ in range(100_000):
        nested = [nested]
    assert fits(nested)
    assert fits({"a": ["x" * 1000, None, 1.5]})
