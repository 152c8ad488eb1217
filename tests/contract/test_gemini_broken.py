"""Programs in gemini's place that are older, newer, or talk nonsense; and the real one as if it did not speak ACP."""

import shlex
from contextlib import AbstractAsyncContextManager

import pytest

from adapters.errors import ErrorClass
from adapters.events import FilesTouched, Progress, Result, SessionStarted, TextDelta, ToolCall, ToolResult
from adapters.providers.cli.installation import find
from tests.support.cli_agents.gemini import GEMINI, plant_hostile_settings
from tests.support.fake_programs import ACP_HELLO, ACP_NONSENSE, acp_updates, acted, lines
from tests.support.program_checks import failed, play, result_texts
from tests.support.programs import ProgramHarness, require

# It is also told which model to use, and knows better.
HELLO = (
    ACP_HELLO
    + """read -r line; echo '{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"no such method"}}'
read -r line
"""
)


def gemini_is(
    body: str, monkeypatch: pytest.MonkeyPatch, *, version: str = "0.61.0", offers: str = "--acp --model"
) -> AbstractAsyncContextManager[ProgramHarness]:
    return acted(GEMINI, body, monkeypatch, version=version, offers=offers)


@pytest.mark.spec("P7", "P12")
async def test_nonsense_is_a_failure_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for what, body in ACP_NONSENSE.items():
        async with gemini_is(body, monkeypatch) as harness:
            end = failed(await play(harness, "answer"))
        assert end.error_class is ErrorClass.INTERNAL, (what, end)
        assert "gemini" in end.message, (what, end)
        assert len(end.message) < 1000, what


@pytest.mark.spec("P7", "P12")
async def test_a_version_nobody_has_tried_works_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[dict[str, object]] = [
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "hologram"}},
        {"sessionUpdate": "of_the_future"},
        {"sessionUpdate": "tool_call_update", "toolCallId": "write_file__1", "status": "completed", "kind": "teleport"},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "All is well"}},
    ]
    answer = {"id": 4, "result": {"stopReason": "end_turn", "_meta": {"quota": {"token_count": {"input_tokens": "x"}}}}}
    odd = {"method": "session/update"}, {"id": 99, "result": 1}
    body = HELLO + lines(*acp_updates(*said), *odd, answer) + "read -r line"
    for version, word in (("9.9.9", "newer"), ("0.1.2", "older")):
        async with gemini_is(body, monkeypatch, version=version, offers="--experimental-acp") as harness:
            events = await play(harness, "answer")
        assert events[0] == SessionStarted(continuation="S", version=version)
        notes = [event.text for event in events if isinstance(event, Progress)]
        assert word in notes[0]
        assert any("model of its own choice" in note for note in notes)
        assert "gemini: of_the_future" in notes
        assert [event.name for event in events if isinstance(event, ToolCall)] == ["write_file"]
        assert events[-1] == Result(text="All is well")


STREAM = (
    {"type": "init", "session_id": "48f1af42-2c5a-4843-a85d-3f57b4be8bcf", "model": "gemini-2.5-flash"},
    {"type": "message", "role": "user", "content": "edit"},
    {"type": "message", "role": "assistant", "content": "I will.", "delta": True},
    {"type": "tool_use", "tool_name": "write_file", "tool_id": "a", "parameters": {"file_path": "probe.txt"}},
    {"type": "tool_result", "tool_id": "a", "status": "success"},
    {"type": "tool_use", "tool_name": "mcp_longshore_probe", "tool_id": "b", "parameters": {}},
    {"type": "tool_result", "tool_id": "b", "status": "error"},
    {"type": "weather", "rain": True},
    {"type": "message", "role": "assistant", "content": "It is ", "delta": True},
    {"type": "message", "role": "assistant", "content": "written.", "delta": True},
    {"type": "result", "status": "success", "stats": {"input_tokens": 2468, "output_tokens": 112}},
)
OLD = "--prompt --model --output-format stream-json --resume --approval-mode"


@pytest.mark.spec("P7", "P12")
async def test_without_acp_its_stream_of_json_is_read_and_without_that_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with gemini_is(lines(*STREAM), monkeypatch, offers=OLD) as harness:
        events = await play(harness, "edit")
    assert isinstance(events[0], SessionStarted)
    assert any("no --acp" in event.text for event in events if isinstance(event, Progress))
    assert [(event.name, event.ok) for event in events if isinstance(event, ToolResult)] == [
        ("write_file", True),
        ("probe", False),
    ]
    assert [event.paths for event in events if isinstance(event, FilesTouched)] == [("probe.txt",)]
    assert events[-1] == Result(text="It is written.")

    async with gemini_is("echo 'Good morning'", monkeypatch, offers="--prompt --model") as harness:
        events = await play(harness, "answer")
        assert events[-2:] == [TextDelta(text="Good morning"), Result(text="Good morning")]
        plant_hostile_settings(harness)
        end = failed(await play(harness, "answer"))
    assert (end.error_class, "obey_repository" in end.message) == (ErrorClass.INVALID_REQUEST, True)

    failing = {"type": "result", "status": "error", "error": {"message": "[API Error: no]"}}
    for body, word in ((lines(STREAM[0], failing), "API Error"), (lines(STREAM[0]) + "exit 7", "7")):
        async with gemini_is(body, monkeypatch, offers=OLD) as harness:
            assert word in failed(await play(harness, "answer")).message


@pytest.mark.spec("P7")
async def test_the_real_one_answers_without_acp_too(monkeypatch: pytest.MonkeyPatch) -> None:
    require("gemini")
    real = find("gemini")
    assert real is not None
    async with gemini_is(f'exec {shlex.join(real.argv)} "$@"', monkeypatch, offers=OLD) as harness:
        events = await play(harness, "tool")
        assert [(event.name, event.ok) for event in events if isinstance(event, ToolResult)] == [("probe", True)]
        assert "marmalade" in result_texts(events)[0]
        end = failed(await play(harness, "fail"))
    assert (end.error_class, end.retry_after) == (ErrorClass.RATE_LIMIT, 7.0)
