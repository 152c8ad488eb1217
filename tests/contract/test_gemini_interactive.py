"""`gemini` in a terminal: the real program as people see it, with our tools, its memory, and people who take over."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from adapters.errors import ErrorClass, ProviderError
from adapters.events import ControlChanged, Failed, ProviderEvent, Result, ScreenChanged, SessionStarted, UsageReport
from adapters.providers.cli.gemini.provider import GeminiProvider
from adapters.providers.cli.terminal.provider import TerminalQuery
from adapters.providers.conformance import ProbeBox
from tests.support.cli_agents.gemini import GEMINI, plant_hostile_settings
from tests.support.programs import ProgramHarness, find_pwned_files, harness_of

INTERACTIVE = {"interactive": True, "idle_seconds": 3}
pytestmark = pytest.mark.spec("P7", "P12")


@pytest.fixture
async def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgramHarness]:
    async with harness_of(GEMINI, monkeypatch) as made:
        yield made


class Sitting:
    """A query and all it says."""

    def __init__(self, harness: ProgramHarness, work: str, box: ProbeBox | None = None, **more: Any) -> None:
        given = harness.given(work, box or ProbeBox(), options=INTERACTIVE, **more)
        query = harness.provider.query(given)
        assert isinstance(query, TerminalQuery)
        self.query = query
        self.events: list[ProviderEvent] = []
        self._reading = asyncio.create_task(self._read())

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                assert not self._reading.done() or condition(), self.events
                await asyncio.sleep(0.05)

    async def press_enter(self, by: str, heard: Callable[[], bool]) -> None:
        """Until it is heard: on a busy machine the program takes one that comes with the text before it for a pasted
        line break."""
        async with asyncio.timeout(60):
            while not heard():
                await self.query.type("\r", by)
                with suppress(TimeoutError):
                    async with asyncio.timeout(5):
                        await self.until(heard)

    async def end(self) -> list[ProviderEvent]:
        async with asyncio.timeout(90):
            await self._reading
        return self.events

    @property
    def answers(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Result)]

    @property
    def screen(self) -> str:
        return "\n".join(self.query.show().lines)

    async def _read(self) -> None:
        async for event in self.query.events:
            self.events.append(event)


@pytest.mark.long
async def test_it_works_in_a_terminal_that_people_take_over_and_remembers(harness: ProgramHarness) -> None:
    box = ProbeBox()
    sitting = Sitting(harness, "tool", box)
    await sitting.until(lambda: "marmalade" in sitting.screen)
    assert await sitting.query.push("answer")
    await sitting.until(lambda: len(sitting.answers) == 2)
    [started] = [event for event in sitting.events if isinstance(event, SessionStarted)]
    events = await sitting.end()
    assert len(box.calls) == 1
    assert "the probe says" in sitting.answers[0]
    assert sitting.answers[1] == "Good morning to you", "not as it was said, but as it was drawn"
    assert sum(isinstance(event, ScreenChanged) for event in events) > 1
    assert sum(event.input_tokens for event in events if isinstance(event, UsageReport)) > 0

    # On another machine, where somebody sits down at it.
    later = Sitting(harness, "listen", continuation=started.continuation)
    await later.until(lambda: "listen" in later.screen)
    await later.query.control("human-led", "ann")
    await later.until(lambda: "I am listening" in later.screen)
    await later.query.type("resume", "ann")
    await later.until(lambda: "> resume" in later.screen or ">   resume" in later.screen)
    await later.press_enter("ann", lambda: "Good morning again" in later.screen)
    assert later.answers == [], "while a person leads it is not for us to say that it is done"
    await later.query.control("agent-led", "ann")
    events = await later.end()
    assert later.answers == ["Good morning again"]
    assert [event.mode for event in events if isinstance(event, ControlChanged)] == ["human-led", "agent-led"]
    assert "marmalade" in str(harness.api.bodies[-1]), "the model was not told what had been said before"
    assert harness.api.problems == []


@pytest.mark.long
@pytest.mark.spec("P14")
async def test_nothing_that_is_said_runs_a_command(harness: ProgramHarness) -> None:
    sitting = Sitting(harness, "!touch PWNED-by-prompt")
    assert await sitting.query.push("!touch PWNED-by-follow-up")
    await sitting.end()
    assert find_pwned_files(harness) == []
    risky = Sitting(harness, "risky")
    await risky.end()
    assert risky.answers == ["It is pushed."]
    told = str(harness.api.bodies[-1]["contents"])
    assert "run_shell_command" in told
    assert "denied" in told.lower() or "not found" in told.lower(), "the command was run"


@pytest.mark.spec("P14")
async def test_it_does_not_start_where_settings_of_the_repository_would_be_obeyed(harness: ProgramHarness) -> None:
    plant_hostile_settings(harness)
    [failed] = await Sitting(harness, "tool").end()
    assert isinstance(failed, Failed)
    assert "obey_repository" in failed.message
    assert find_pwned_files(harness) == []


@pytest.mark.long
async def test_a_conversation_that_is_gone_begins_anew(harness: ProgramHarness) -> None:
    sitting = Sitting(harness, "answer", continuation="00000000-0000-4000-8000-000000000000")
    await sitting.end()
    assert sitting.answers == ["Good morning to you"]


@pytest.mark.long
async def test_a_limit_of_the_vendor_is_a_failure_and_no_answer(harness: ProgramHarness) -> None:
    sitting = Sitting(harness, "fail")
    failed = (await sitting.end())[-1]
    assert isinstance(failed, Failed)
    assert failed.error_class is ErrorClass.RATE_LIMIT
    assert sitting.answers == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"interactive": "yes"}, "interactive: 'yes' is neither true nor false"),
        ({"rows": 30}, "rows: only of use with interactive: true"),
        ({"interactive": True, "rows": 1}, "rows: 1 is not a whole number from 2"),
        ({"interactive": True, "command": ["sh"]}, "has no option command"),
    ],
)
def test_options_are_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ProviderError, match=named):
        GeminiProvider().check(options)
