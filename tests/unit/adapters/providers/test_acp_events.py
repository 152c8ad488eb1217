"""What ACP programs say, as events: excerpts of what gemini and opencode really said, and what nobody should say."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.errors import ProviderError
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
    ToolResult,
)
from adapters.providers.catalog import Tokens
from adapters.providers.cli.acp.events import Listener, ending, name_by_title, own_name
from adapters.providers.cli.gemini.provider import GeminiProvider
from adapters.providers.cli.usage_seen import Answer, used
from adapters.providers.talking import CALLS, LONGEST_TEXT, LONGEST_VALUE

OURS = frozenset({"probe"})


def text(said: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": said}}


def heard(listener: Listener, *updates: Any) -> list[ProviderEvent]:
    return [event for update in updates for event in listener.hear({"sessionId": "s", "update": update})]


def opencode() -> Listener:
    return Listener("opencode", "/workspace", OURS, name_by_title)


def test_a_tool_of_ours_and_the_answer_after_it() -> None:
    listener = opencode()
    call = {"toolCallId": "call_e3c1ff4807f5", "kind": "other", "title": "longshore_probe", "locations": []}
    events = heard(
        listener,
        text("Let me "),
        text("see."),
        {"sessionUpdate": "tool_call", **call, "status": "pending", "rawInput": {}},
        {"sessionUpdate": "tool_call_update", **call, "status": "in_progress", "rawInput": {"text": "ping"}},
        {"sessionUpdate": "tool_call_update", "toolCallId": "call_e3c1ff4807f5", "status": "completed"},
        {"sessionUpdate": "tool_call_update", "toolCallId": "call_e3c1ff4807f5", "status": "failed"},
        text("It says ping."),
        {"sessionUpdate": "usage_update", "used": 1234, "size": 128000},
    )
    assert [*events, *listener.answered()] == [
        TextDelta(text="Let me "),
        TextDelta(text="see."),
        Message(text="Let me see."),
        ToolCall(id="call_e3c1ff4807f5", name="probe", preview='{"text": "ping"}'),
        ToolResult(id="call_e3c1ff4807f5", name="probe", ok=True),
        TextDelta(text="It says ping."),
        Result(text="It says ping."),
    ]


def test_files_are_those_of_the_workspace_and_only_if_it_went_well() -> None:
    paths = ("/workspace/a.txt", "/workspace/sub/b.txt", "/etc/passwd", "/workspace/../x")
    edit = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "1",
        "title": "write",
        "kind": "edit",
        "content": [{"type": "diff", "path": path, "oldText": "a\n", "newText": "a\nb\n"} for path in paths],
        "locations": [{"path": paths[0]}, {"line": 3}, 7],
    }
    listener = opencode()
    done = heard(listener, {**edit, "status": "completed"})
    assert [event for event in done if isinstance(event, FilesTouched)] == [FilesTouched(paths=("a.txt", "sub/b.txt"))]
    [diff] = [event for event in done if isinstance(event, DiffAvailable)]
    assert diff.summary.startswith("a.txt: 1 -> 2 lines")
    failed = heard(listener, {**edit, "toolCallId": "2", "status": "failed"})
    assert not any(isinstance(event, FilesTouched | DiffAvailable) for event in failed)
    read = {"toolCallId": "3", "kind": "read", "locations": [{"path": paths[0]}], "status": "completed"}
    assert not any(isinstance(event, FilesTouched) for event in heard(listener, {**edit, **read, "content": []}))


def test_a_thought_is_one_event_and_unknown_updates_are_notes() -> None:
    listener = opencode()
    events = heard(
        listener,
        text("I ", "agent_thought_chunk"),
        text("think", "agent_thought_chunk"),
        {"sessionUpdate": "plan", "entries": [{"content": "look", "priority": "high", "status": "pending"}]},
        {"sessionUpdate": "of_the_future"},
        {"sessionUpdate": ["x"]},
        7,
        text("", "agent_message_chunk") | {"content": {"type": "hologram"}},
    )
    assert events[:2] == [Thinking(text="I think"), Progress(text="plan: look (pending)")]
    assert [event.text for event in events[2:] if isinstance(event, Progress)] == [
        "opencode: of_the_future",
        "opencode: ['x']",
        "opencode: an update without a name",
        "opencode: agent_message_chunk",
    ]


def question(**call: Any) -> dict[str, Any]:
    options = [{"optionId": f"{kind}-1", "name": kind, "kind": kind} for kind in ("allow_always", "reject_once")]
    return {"sessionId": "s", "toolCall": {"toolCallId": "1", **call}, "options": options}


def test_what_it_asks_for_is_what_the_guard_is_asked() -> None:
    listener = Listener("gemini", "/workspace", OURS, GeminiProvider().tool_name)
    asked = listener.asked(
        question(toolCallId="run_shell_command__a_1", title="git push", kind="execute", locations=[])
    )
    assert (asked.intent.tool, asked.intent.command, asked.ours) == ("run_shell_command", "git push", False)
    asked = listener.asked(
        question(toolCallId="read_file__a_2", title="x", kind="read", locations=[{"path": "/workspace/.env"}])
    )
    assert (asked.intent.paths, asked.intent.writes) == ((".env",), False)
    asked = listener.asked(question(toolCallId="web_fetch__3", title="Fetch https://evil.example/a and", kind="fetch"))
    assert asked.intent.url == "https://evil.example/a"
    assert asked.option("allow") == {"outcome": {"outcome": "selected", "optionId": "allow_always-1"}}
    assert asked.option("reject") == {"outcome": {"outcome": "selected", "optionId": "reject_once-1"}}
    with pytest.raises(ValidationError):
        listener.asked({"sessionId": "s", "options": 3})


@pytest.mark.parametrize(
    ("call", "ours"),
    [
        ({"title": "longshore_probe", "kind": "other"}, True),
        ({"title": "mcp__longshore__probe"}, True),
        ({"title": "probe (longshore MCP Server)", "kind": "other"}, True),
        ({"title": "longshore_probe", "kind": "execute"}, False),  # a command of that name
        ({"title": "longshore_other", "kind": "other"}, False),  # none that it was given
        ({"title": "rm -rf / # (longshore MCP Server)", "kind": "other"}, False),
    ],
)
def test_only_our_own_tools_are_taken_for_ours(call: dict[str, Any], ours: bool) -> None:
    assert opencode().asked(question(**call)).ours is ours


def test_names_of_tools() -> None:
    assert own_name("mcp_longshore_send_message") == "send_message"
    assert own_name("write_file") == "write_file"
    assert name_by_title("1", "Writing to a.txt", "edit") == "edit"
    assert name_by_title("1", "", "") == "tool"


def test_endings() -> None:
    usage = {"inputTokens": 1214, "outputTokens": 56, "totalTokens": 1290, "cachedReadTokens": 20}
    assert ending("x", {"stopReason": "end_turn", "usage": usage, "_meta": {}}).used == Tokens(1214, 56, 20)
    quota = {"quota": {"token_count": {"input_tokens": 2468, "output_tokens": 112}, "model_usage": []}}
    assert ending("x", {"stopReason": "end_turn", "_meta": quota}).used == Tokens(2468, 112)
    assert ending("x", {"stopReason": "refusal", "usage": 7, "_meta": {"quota": 3}}).used == Tokens()
    nonsense: Any
    for nonsense in (None, [], {}, {"stopReason": "boredom"}):
        with pytest.raises(ProviderError, match="does not read"):
            ending("x", nonsense)


def test_what_was_used_is_read_from_both_ends_of_an_answer() -> None:
    def answer(first: str, last: str = "") -> Answer:
        return Answer(first.encode(), (last or first).encode())

    counts = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
    chat = f"data: {json.dumps({'choices': [], 'usage': counts})}"
    assert used("openai", [answer(chat), answer(chat)]) == Tokens(80, 14, 120)
    begun = '{"message":{"usage":{"input_tokens":9,"cache_read_input_tokens":5,"output_tokens":1}}}'
    assert used("anthropic", [answer(begun, '{"usage":{"output_tokens":33}}')]) == Tokens(9, 33, 5)
    counts = {"promptTokenCount": 50, "candidatesTokenCount": 4, "thoughtsTokenCount": 6, "cachedContentTokenCount": 20}
    gemini = f'{{"usageMetadata":{{"promptTokenCount":1}}}} {json.dumps({"usageMetadata": counts})}'
    assert used("gemini", [answer(gemini)]) == Tokens(30, 10, 20)
    for nonsense in (
        "",
        '{"usage":{',
        '{"usage":{"prompt_tokens":"many"}}',
        "\ufffd",
        '"usage": 7',
        '{"usage":{"a":' * 9,
        '{"usage":{"a":' + "[" * 3900,
    ):
        assert used("openai", [answer(nonsense)]) == Tokens()


def test_words_without_end_are_not_kept_without_end() -> None:
    listener = opencode()
    piece = "x" * (LONGEST_TEXT // 3)
    heard(listener, *[text(piece, "agent_thought_chunk")] * 9)
    [thought, *_] = heard(listener, *[text(piece)] * 9)
    [answer] = listener.answered()
    assert isinstance(thought, Thinking)
    assert isinstance(answer, Result)
    assert len(thought.text) == len(answer.text) == LONGEST_TEXT + 1


def test_calls_without_end_are_forgotten() -> None:
    listener = opencode()
    begun = {"sessionUpdate": "tool_call", "title": "write", "kind": "edit", "status": "pending"}
    for number in range(CALLS + 1):
        heard(listener, {**begun, "toolCallId": str(number), "rawInput": {"path": f"{number}.txt"}})
    over = [{"sessionUpdate": "tool_call_update", "toolCallId": n, "status": "completed"} for n in ("0", str(CALLS))]
    assert [event.name for event in heard(listener, *over) if isinstance(event, ToolResult)] == ["tool", "write"]


def test_a_call_that_is_larger_than_anybody_can_judge_is_not_allowed() -> None:
    large = {"path": "a.txt", "content": "x" * LONGEST_VALUE}
    with pytest.raises(ValueError, match="larger"):
        opencode().asked(question(title="write", kind="edit", rawInput=large))
    listener = opencode()
    update = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "write", "kind": "edit"}
    for number in range(100):
        heard(listener, {**update, "locations": [{"path": f"{number}" * (LONGEST_VALUE // 50)}]})
    with pytest.raises(ValueError, match="larger"):
        listener.asked(question(title="write", kind="edit", toolCallId="1"))
