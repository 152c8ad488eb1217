"""What the suite of all providers does not ask, because only programs can get it wrong: their errors, their deaths,
their children, their environments, their memory on another machine."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from adapters.errors import ErrorClass
from adapters.events import Failed, ProviderEvent, Result, SessionStarted, ToolCall, UsageReport
from adapters.providers.conformance import ProbeBox
from tests.support.model_api import refuse
from tests.support.programs import ProgramHarness, environments, living, program_below

Check = Callable[[ProgramHarness], Awaitable[None]]


async def play(harness: ProgramHarness, work: str, box: ProbeBox | None = None, **more: object) -> list[ProviderEvent]:
    async with asyncio.timeout(harness.patience):
        return [event async for event in harness.provider.query(harness.given(work, box or ProbeBox(), **more)).events]


def result_texts(events: list[ProviderEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Result)]


def failed(events: list[ProviderEvent]) -> Failed:
    assert isinstance(events[-1], Failed), [event.type for event in events]
    return events[-1]


async def a_refused_key_is_told_as_that(harness: ProgramHarness) -> None:
    harness.api.fail(refuse("unauthenticated", when="refused", times=None))
    end = failed(await play(harness, "refused"))
    assert end.error_class is ErrorClass.AUTH, end
    assert not end.retryable
    assert harness.key not in end.message


async def a_limit_is_told_with_its_date(harness: ProgramHarness) -> None:
    end = failed(await play(harness, "fail"))
    assert (end.error_class, end.retry_after) == (ErrorClass.RATE_LIMIT, 7.0), end


async def a_servers_fault_can_pass(harness: ProgramHarness) -> None:
    harness.api.fail(refuse("server_error", when="broken", times=None))
    end = failed(await play(harness, "broken"))
    assert end.error_class is ErrorClass.TRANSPORT, end
    assert end.retryable


async def what_it_cost_is_told(harness: ProgramHarness) -> None:
    usage = [event for event in await play(harness, "tool") if isinstance(event, UsageReport)]
    assert sum(report.input_tokens + report.cache_read_tokens + report.cache_write_tokens for report in usage) > 0
    assert sum(report.output_tokens for report in usage) > 0
    assert all(report.cost_usd for report in usage), usage


async def it_remembers_on_another_machine(harness: ProgramHarness) -> None:
    await _remembers(harness, times=1)


async def it_remembers_what_it_has_continued(harness: ProgramHarness) -> None:
    """A program may write a conversation that it continues in another way than a new one."""
    await _remembers(harness, times=2)


async def _remembers(harness: ProgramHarness, times: int) -> None:
    box = ProbeBox()
    told = await play(harness, "tool", box)
    for _ in range(times):
        [started] = [event for event in told if isinstance(event, SessionStarted)]
        told = await play(harness, "resume", box, continuation=started.continuation)
        assert [event.text for event in told if isinstance(event, Result)] == ["Good morning again"]
        assert "marmalade" in json.dumps(harness.api.bodies[-1]), "the model was not told what had been said before"
    assert len(box.calls) == 1, "what it had done was not done once"
    assert harness.api.problems == [], "the model's real server would have refused"


async def an_unknown_continuation_is_no_silence(harness: ProgramHarness) -> None:
    """What was to be continued is gone: it says so, or begins anew; it does not end without a word."""
    events = await play(harness, "answer", continuation="00000000-0000-4000-8000-000000000000")
    assert isinstance(events[-1], Failed) or any(isinstance(event, Result) for event in events)


async def its_children_have_no_key_and_end_with_it(harness: ProgramHarness) -> None:
    """Not even one that its shell has put into a session of its own."""
    query = harness.provider.query(harness.given("linger", ProbeBox()))
    looked_at = b""
    with environments() as seen:
        async with asyncio.timeout(harness.patience):
            async for event in query.events:
                if isinstance(event, ToolCall):
                    while not living(LINGERS):
                        await asyncio.sleep(0.05)
                    looked_at = seen()
                    break
            await query.abort()
    assert LINGERS.encode() in looked_at, "its children were not looked at"
    assert harness.key.encode() not in looked_at
    assert living(LINGERS) == []
    assert query.status == "aborted"


async def a_killed_program_is_a_failure(harness: ProgramHarness) -> None:
    await _killed(harness, signal.SIGKILL)


async def a_terminated_program_is_a_failure(harness: ProgramHarness) -> None:
    await _killed(harness, signal.SIGTERM)


async def _killed(harness: ProgramHarness, number: signal.Signals) -> None:
    """The program itself, in the middle of its work: some end then as if all were well."""
    query = harness.provider.query(harness.given("slow", ProbeBox()))
    events: list[ProviderEvent] = []
    async with asyncio.timeout(harness.patience):
        async for event in query.events:
            events.append(event)
            if len(events) == 1:
                await harness.api.arrived(1, "hanging", harness.patience)
                assert query.pid is not None
                os.kill(program_below(query.pid, harness.cli.name), number)
    end = failed(events)
    assert end.retryable
    assert "ended with exit code" in end.message, end
    assert query.status == "failed"


async def a_follow_up_after_the_end_is_too_late(harness: ProgramHarness) -> None:
    query = harness.provider.query(harness.given("answer", ProbeBox()))
    async with asyncio.timeout(harness.patience):
        assert [event async for event in query.events]
    assert await query.push("too late") is False


# The program's shell is told to start a process with this on its command line, in a session of its own. Not the same
# for two test processes: each would find what the other one's programs have started.
LINGERS: Final = f"longshore-lingers-{os.getpid()}"
LINGER_COMMAND: Final = f"setsid sh -c 'sleep 3600; : {LINGERS}' & sh -c 'sleep 3600; : {LINGERS}'"
PROGRAM_CHECKS: Final[tuple[Check, ...]] = (
    a_refused_key_is_told_as_that,
    a_limit_is_told_with_its_date,
    a_servers_fault_can_pass,
    it_remembers_on_another_machine,
    what_it_cost_is_told,  # by what it was asked just before, where runs are kept (`recorded_runs.py`)
    it_remembers_what_it_has_continued,
    an_unknown_continuation_is_no_silence,
    its_children_have_no_key_and_end_with_it,
    a_killed_program_is_a_failure,
    a_terminated_program_is_a_failure,
    a_follow_up_after_the_end_is_too_late,
)
