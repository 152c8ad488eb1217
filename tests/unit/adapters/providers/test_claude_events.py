"""Lines that the real `claude` has printed, read as our events; and lines that no `claude` should print."""

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.errors import ErrorClass
from adapters.events import (
    DiffAvailable,
    FilesTouched,
    Message,
    Progress,
    ProviderEvent,
    Result,
    TextDelta,
    Thinking,
    ToolCall,
    ToolProgress,
    ToolResult,
    UsageReport,
)
from adapters.providers.cli.claude.events import Reader, answered, failure, intent, is_lost, results
from adapters.providers.talking import CALLS

RECORDED = Path(__file__).with_name("claude_lines")


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDED.joinpath(f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def read(messages: list[dict[str, Any]]) -> list[ProviderEvent]:
    reader = Reader("/workspace")
    return [event for message in messages for event in reader.take(message)]


def said(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": list(blocks)}, "parent_tool_use_id": None, **more}


def done(**more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": "", **more}


@pytest.mark.spec("P5")
def test_a_file_it_writes() -> None:
    call, result, files, usage, answer = read(recorded("perm_allow"))
    assert isinstance(call, ToolCall)
    assert (call.name, call.preview) == ("Write", "/workspace/perm_allow.txt")
    assert result == ToolResult(id=call.id, name="Write", ok=True)
    assert files == FilesTouched(paths=("perm_allow.txt",))
    assert usage == UsageReport(
        model="claude-sonnet-4-5",
        input_tokens=2468,
        output_tokens=112,
        cache_read_tokens=40,
        cache_write_tokens=20,
        cost_usd=0.009171000000000002,
    )
    assert isinstance(answer, Result)
    assert answer.text.startswith("FAKE-FINAL tool_out=File created successfully")


@pytest.mark.spec("P5")
def test_a_file_it_was_not_allowed_to_write() -> None:
    events = read(recorded("perm_deny"))
    assert [event.type for event in events] == ["tool_call", "tool_result", "usage", "result"]
    assert isinstance(events[1], ToolResult)
    assert not events[1].ok


@pytest.mark.spec("P5")
def test_an_answer_as_it_is_written() -> None:
    *deltas, usage, answer = read(recorded("partial"))
    assert isinstance(usage, UsageReport)
    assert isinstance(answer, Result)
    assert "".join(event.text for event in deltas if isinstance(event, TextDelta)) == answer.text
    assert len(deltas) == 2


@pytest.mark.spec("P5", "T1")
def test_a_tool_of_ours_goes_by_our_name() -> None:
    call, result, *_ = read(recorded("mcp_http"))
    assert isinstance(call, ToolCall)
    assert (call.name, call.preview) == ("echo_probe", '{"text": "ping"}')
    assert result == ToolResult(id=call.id, name="echo_probe", ok=True)


@pytest.mark.spec("P5")
def test_a_tool_that_takes_its_time() -> None:
    events = read(recorded("mcp_slow90"))
    [call] = [event for event in events if isinstance(event, ToolCall)]
    ticks = [event for event in events if isinstance(event, ToolProgress)]
    assert [(tick.id, tick.elapsed) for tick in ticks] == [(call.id, 30.0), (call.id, 60.0), (call.id, 90.0)]


@pytest.mark.spec("P5")
def test_usage_is_of_this_run_only() -> None:
    """The program counts on from run to run in its other figures."""
    [*_, last] = recorded("resume")
    assert last["total_cost_usd"] == pytest.approx(0.009171)
    [usage] = [event for event in read([last]) if isinstance(event, UsageReport)]
    assert (usage.input_tokens, usage.cost_usd) == (1234, 0.004585500000000001)

    # A version that does not say it per model, and one that knows no price.
    older = {name: value for name, value in last.items() if name != "model_usage_since_last_result"}
    [usage] = [event for event in read([older]) if isinstance(event, UsageReport)]
    assert (usage.model, usage.input_tokens, usage.output_tokens) == ("claude-sonnet-4-5", 1234, 56)
    assert usage.cost_usd == pytest.approx(0.0045855, rel=0.01)
    last["model_usage_since_last_result"]["claude-sonnet-4-5"]["costUSD"] = 0
    [usage] = [event for event in read([last]) if isinstance(event, UsageReport)]
    assert usage.cost_usd == pytest.approx(0.0045855, rel=0.01)


@pytest.mark.spec("P5")
def test_an_error_of_the_model_is_no_answer_although_it_says_success() -> None:
    messages = recorded("err401_retry1")
    assert [event.type for event in read(messages)] == ["progress"]
    error = failure(messages[-1])
    assert error is not None
    assert (messages[-1]["subtype"], error.error_class) == ("success", ErrorClass.AUTH)
    assert failure(recorded("partial")[-1]) is None


@pytest.mark.spec("P5")
@pytest.mark.parametrize(
    ("result", "error_class"),
    [
        ({"api_error_status": 429}, ErrorClass.RATE_LIMIT),
        ({"api_error_status": 599}, ErrorClass.TRANSPORT),
        ({"result": "Prompt is too long", "api_error_status": 400}, ErrorClass.CONTEXT_TOO_LONG),
        ({"subtype": "error_max_turns"}, ErrorClass.INTERNAL),
        ({"is_error": None, "errors": "none"}, ErrorClass.INTERNAL),
    ],
)
def test_errors_have_a_class(result: dict[str, Any], error_class: ErrorClass) -> None:
    error = failure(done(is_error=True) | result)
    assert error is not None
    assert error.error_class is error_class


@pytest.mark.spec("P5")
def test_a_conversation_it_does_not_know() -> None:
    [message] = recorded("resume_badid")
    assert is_lost(message)
    assert not is_lost(recorded("err401_retry1")[-1])


@pytest.mark.spec("P5")
def test_what_it_said_before_it_was_interrupted_is_kept_and_no_answer() -> None:
    events = read(recorded("interrupt"))
    assert events == [Message(text="w0 w1 w2 w3 ")]


@pytest.mark.spec("P5")
def test_which_prompts_were_taken_and_answered() -> None:
    assert answered({"type": "user", "uuid": "a", "isReplay": True}) == {"a"}
    assert answered({"type": "user", "uuid": "a", "message": {}}) == set()
    assert answered(done(user_message_uuids=["a", "b", 7])) == {"a", "b"}
    assert answered(done()) == set()
    [*_, merged, _, _] = recorded("stdin_midrun")
    assert merged["isReplay"] is True
    assert [results(message) for message in recorded("stdin_midrun") if results(message)] == [
        {"toolu_fake_8c62be37bf71"}
    ]


def test_texts_on_the_way_are_messages_and_helpers_speak_to_the_agent_only() -> None:
    text, thought = {"type": "text", "text": "One."}, {"type": "thinking", "thinking": "Hm."}
    call = {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "ls"}}
    events = read(
        [
            said(thought, text),
            said(call, parent_tool_use_id="0"),
            said({"type": "text", "text": "To the agent."}, parent_tool_use_id="0"),
            said({"type": "text", "text": "Two."}),
            done(result="Three."),
        ]
    )
    assert events == [
        Thinking(text="Hm."),
        Message(text="One."),
        ToolCall(id="1", name="Bash", preview="ls"),
        Message(text="Two."),
        Result(text="Three."),
    ]


def test_a_change_is_told_in_numbers() -> None:
    call = {"type": "tool_use", "id": "1", "name": "Edit", "input": {"file_path": "src/../a.py"}}
    result = {"type": "tool_result", "tool_use_id": "1"}
    patch = [{"lines": [" a", "-b", "+c", "+d"]}, {"lines": ["-e"]}, {"lines": None}, 7]
    message = {"type": "user", "message": {"content": [result]}, "tool_use_result": {"structuredPatch": patch}}
    assert read([said(call), message])[2:] == [
        FilesTouched(paths=("a.py",)),
        DiffAvailable(summary="a.py: 2 insertions(+), 2 deletions(-)"),
    ]


def test_files_outside_the_workspace_are_not_the_workspaces() -> None:
    for path in ("/etc/passwd", "../secret", "/workspace-of-another/a", "/workspace", ""):
        call = {"type": "tool_use", "id": "1", "name": "Write", "input": {"file_path": path}}
        result = {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "1"}]}}
        assert [event.type for event in read([said(call), result])] == ["tool_call", "tool_result"], path


@pytest.mark.spec("P14")
def test_what_it_wants_to_do() -> None:
    wanted = intent("Bash", {"command": "git push", "description": "d"}, "/workspace")
    assert (wanted.command, wanted.paths, wanted.details["description"]) == ("git push", (), "d")
    wanted = intent("Read", {"file_path": "/workspace/deep/.env"}, "/workspace")
    assert (wanted.paths, wanted.writes) == (("deep/.env",), False)
    wanted = intent("NotebookEdit", {"notebook_path": "/etc/x.ipynb"}, "/workspace")
    assert (wanted.paths, wanted.writes) == (("/etc/x.ipynb",), True)
    assert intent("WebFetch", {"url": "https://example.org", "command": 7}, "/workspace").url == "https://example.org"


def test_what_nobody_knows_is_told_once_and_not_without_end() -> None:
    events = read(
        [{"type": "hologram"}, {"type": "hologram"}, {"type": "system", "subtype": "x" * 500}, {"type": None}]
    )
    assert events == [
        Progress(text="claude: hologram"),
        Progress(text=f"claude: {'x' * 60}"),
        Progress(text="claude: a message without a type"),
    ]
    assert len(read([{"type": f"kind {number}"} for number in range(1000)])) == 50


@pytest.mark.parametrize("wrong", [None, 7, "text", [], {}, [7], [[]], {"content": 7}, {"content": [{"type": 1}]}])
def test_nothing_it_says_breaks_the_reader(wrong: Any) -> None:
    names = ("message", "event", "result", "errors", "usage", "model_usage_since_last_result", "tool_use_result")
    for kind in ("assistant", "user", "stream_event", "tool_progress", "result", "system", "control_response"):
        message = {"type": kind, **dict.fromkeys((*names, "tool_use_id", "elapsed_time_seconds"), wrong)}
        read([message])
        answered(message)
        results(message)
        is_lost(message)
        failure(message)


@pytest.mark.spec("P5", "P12")
def test_calls_without_end_are_forgotten() -> None:
    reader = Reader("/workspace")
    calls = [
        said({"type": "tool_use", "id": str(n), "name": "Write", "input": {"file_path": f"{n}"}})
        for n in range(CALLS + 1)
    ]
    ended = [{"type": "tool_result", "tool_use_id": number} for number in ("0", str(CALLS))]
    messages = [*calls, {"type": "user", "message": {"content": ended}}]
    events = [event for message in messages for event in reader.take(message)]
    assert [event.id for event in events if isinstance(event, ToolResult)] == [str(CALLS)]
