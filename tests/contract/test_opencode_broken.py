"""Programs in opencode's place that are older, newer, or talk nonsense: the driver says what is wrong, and ends."""

from contextlib import AbstractAsyncContextManager

import pytest

from adapters.errors import ErrorClass
from adapters.events import Progress, Result, SessionStarted, Stderr, ToolCall
from tests.support.cli_agents.opencode import OPENCODE
from tests.support.fake_programs import ACP_HELLO, ACP_NONSENSE, acp_updates, acted, lines
from tests.support.program_checks import failed, play
from tests.support.programs import ProgramHarness

SAID = (
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "hologram"}},
    {"sessionUpdate": "of_the_future"},
    {"sessionUpdate": "tool_call_update", "toolCallId": "1", "title": "bash", "status": "completed", "kind": "warp"},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "All is well"}},
)
ANSWER = {"id": 3, "result": {"stopReason": "end_turn", "usage": "much"}}


def opencode_is(
    body: str, monkeypatch: pytest.MonkeyPatch, *, version: str = "1.18.33", offers: str = "opencode acp"
) -> AbstractAsyncContextManager[ProgramHarness]:
    return acted(OPENCODE, body, monkeypatch, version=version, offers=offers)


@pytest.mark.spec("P8", "P12")
async def test_nonsense_is_a_failure_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for what, body in ACP_NONSENSE.items():
        async with opencode_is(body, monkeypatch) as harness:
            events = await play(harness, "answer")
        end = failed(events)
        assert end.error_class is ErrorClass.INTERNAL, (what, end)
        assert "opencode" in end.message, (what, end)
        assert len(end.message) < 1000, what
        if what == "an end without a word":
            assert "exit code 3" in end.message
            assert [event.text for event in events if isinstance(event, Stderr)] == ["there is no more memory"]


@pytest.mark.spec("P8", "P12")
async def test_a_version_nobody_has_tried_works_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    said = lines(*acp_updates(*SAID), {"method": "session/update"}, {"id": 99, "result": 1}, ANSWER)
    body = f"{ACP_HELLO} read -r line\n{said} read -r line"
    for version, word in (("9.9.9", "newer"), ("0.1.2", "older")):
        async with opencode_is(body, monkeypatch, version=version) as harness:
            events = await play(harness, "answer")
        assert events[0] == SessionStarted(continuation="S", version=version)
        notes = [event.text for event in events if isinstance(event, Progress)]
        assert word in notes[0]
        assert "opencode: of_the_future" in notes
        assert any("none of our tools" in note for note in notes)
        assert [event.name for event in events if isinstance(event, ToolCall)] == ["bash"]
        assert events[-1] == Result(text="All is well")


@pytest.mark.spec("P8", "P12")
async def test_a_version_that_cannot_be_led_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opencode_is("exit 1", monkeypatch, version="0.9.0", offers="opencode run, opencode serve") as harness:
        end = failed(await play(harness, "answer"))
    assert (end.error_class, end.retryable) == (ErrorClass.INVALID_REQUEST, False)
    assert "opencode 0.9.0 has no `acp`" in end.message
    assert "make clis" in end.message
