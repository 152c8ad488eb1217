"""What codex's app-server really said, as our events."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from adapters.contracts import ContentBlock, QueryInput
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
    ToolResult,
    UsageReport,
)
from adapters.providers import catalog
from adapters.providers.cli.codex.events import Narration, change_intent, failure, shortstat
from adapters.providers.cli.codex.requests import command_intent, mcp_intent, prompt
from adapters.providers.conformance import ProbeBox
from adapters.providers.talking import CALLS, LONGEST_TEXT, LONGEST_VALUE

LINES = Path(__file__).parent / "codex_lines"
pytestmark = pytest.mark.spec("P6")


def narration() -> Narration:
    return Narration("gpt-6-sol", catalog.OPENAI, {}, "/workspace")


def told(said: Iterable[dict[str, Any]]) -> list[ProviderEvent]:
    """With deltas left out: how a text is cut into them is the model's business."""
    one = narration()
    events = [event for line in said for event in one.hear(line["method"], line["params"])]
    return [event for event in [*events, *one.answered()] if not isinstance(event, TextDelta)]


def recorded(name: str) -> list[ProviderEvent]:
    lines = map(json.loads, (LINES / f"{name}.jsonl").read_text().splitlines())
    return told(line for line in lines if line["method"] != "turn/completed")  # which is the query's to hear


def item(kind: str, *, done: bool = True, **more: object) -> dict[str, Any]:
    return {"method": f"item/{'completed' if done else 'started'}", "params": {"item": {"type": kind, **more}}}


def test_a_change_of_files() -> None:
    call, result, touched, first, second, diff, answer = recorded("edit")
    assert isinstance(call, ToolCall)
    assert (call.name, call.preview) == ("apply_patch", "probe_appr_accept.txt")
    assert result == ToolResult(id=call.id, name="apply_patch", ok=True)
    assert touched == FilesTouched(paths=("probe_appr_accept.txt",))
    for report in (first, second):
        assert isinstance(report, UsageReport)
        assert (report.input_tokens, report.cache_read_tokens, report.output_tokens) == (1214, 20, 56)
        assert report.cost_usd
    assert diff == DiffAvailable(summary="1 file changed, 1 insertion(+), 0 deletions(-)")
    assert isinstance(answer, Result)
    assert answer.text.startswith("FAKE-FINAL")


def test_a_tool_of_another_server_keeps_its_servers_name_and_ours_does_not() -> None:
    call = next(event for event in recorded("tool") if isinstance(event, ToolCall))
    assert (call.name, call.preview) == ("mcp__probe__echo_probe", "{'text': 'ping'}")
    ours = told(
        [item("mcpToolCall", id="1", server="longshore", tool="probe", status="failed", error={"message": "no"})]
    )
    assert ours == [ToolResult(id="1", name="probe", ok=False)]
    unhappy = {"content": [], "isError": True}
    ours = told([item("mcpToolCall", id="1", server="longshore", tool="probe", status="completed", result=unhappy)])
    assert ours == [ToolResult(id="1", name="probe", ok=False)]


def test_commands() -> None:
    events = recorded("follow_up")
    assert [event.name for event in events if isinstance(event, ToolCall)] == ["shell", "shell"]
    assert [event.ok for event in events if isinstance(event, ToolResult)] == [True, True]
    assert len([event for event in events if isinstance(event, UsageReport)]) == 3
    assert [type(event) for event in events if isinstance(event, Message | Result)] == [Result]


def test_only_the_last_text_is_the_answer_and_none_is_lost() -> None:
    said = [
        item("agentMessage", id="1", text="I look."),
        item("commandExecution", done=False, id="2", command="ls"),
        item("agentMessage", id="3", text="Not yet the answer.", phase="commentary"),
        {"method": "item/agentMessage/delta", "params": {"delta": "I was going to"}},
        item("commandExecution", done=False, id="4", command="pwd"),
        item("reasoning", id="5", summary=["Let me", "think"]),
        item("agentMessage", id="6", text="The answer."),
    ]
    assert told(said) == [
        Message(text="I look."),
        ToolCall(id="2", name="shell", preview="ls"),
        Message(text="Not yet the answer."),
        Message(text="I was going to"),
        ToolCall(id="4", name="shell", preview="pwd"),
        Thinking(text="Let me\n\nthink"),
        Result(text="The answer."),
    ]


def test_tokens_are_counted_once() -> None:
    def count(total: int, last: int) -> dict[str, Any]:
        counts = {"total": {"inputTokens": total, "outputTokens": 1}, "last": {"inputTokens": last, "outputTokens": 0}}
        return {"method": "thread/tokenUsage/updated", "params": {"tokenUsage": counts}}

    said = [
        count(1000, 300),
        item("userMessage", id="u"),
        count(1010, 10),
        count(1010, 10),
        count(1030, 20),
        count(7, 7),
    ]
    assert [event.input_tokens for event in told(said) if isinstance(event, UsageReport)] == [10, 20, 7]


def test_progress_and_retries() -> None:
    said = [
        {"method": "error", "params": {"willRetry": True, "error": {"message": "Reconnecting 1/5"}}},
        {"method": "error", "params": {"willRetry": False, "error": {"message": "told by the turn's end"}}},
        {"method": "warning", "params": {"message": "w" * 1000}},
        *[{"method": f"of/the/future/{number}", "params": {}} for number in range(1000)],
    ]
    events = told(said)
    assert events[:2] == [Progress(text="Reconnecting 1/5"), Progress(text="w" * 300)]
    assert len(events) < 100


@pytest.mark.parametrize(
    ("info", "error_class"),
    [
        ("contextWindowExceeded", ErrorClass.CONTEXT_TOO_LONG),
        ("usageLimitExceeded", ErrorClass.QUOTA),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, ErrorClass.TRANSPORT),
        ("unauthorized", ErrorClass.AUTH),
        ("of the future", ErrorClass.INTERNAL),
        ({}, ErrorClass.INTERNAL),
        ([1], ErrorClass.INTERNAL),
        (None, ErrorClass.INTERNAL),
    ],
)
def test_failures_have_a_class(info: object, error_class: ErrorClass) -> None:
    error = failure({"message": "it broke", "codexErrorInfo": info})
    assert (error.error_class, str(error)) == (error_class, "codex: it broke")


def test_a_diff_in_numbers() -> None:
    assert shortstat("") == "0 files changed, 0 insertions(+), 0 deletions(-)"
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-one\n-two\n+three\n"
    assert shortstat(diff) == "1 file changed, 1 insertion(+), 2 deletions(-)"


def test_what_it_asks_for() -> None:
    intent = command_intent({"command": "/bin/sh -lc 'git push'", "cwd": "/workspace", "turnId": "u"})
    assert intent is not None
    assert (intent.tool, intent.command, intent.url) == ("shell", "/bin/sh -lc 'git push'", "")
    network = {"command": None, "networkApprovalContext": {"host": "example.org", "protocol": "https"}}
    asked = command_intent(network)
    assert asked is not None
    assert asked.url == "https://example.org"
    tool = {"serverName": "evil", "message": "Allow?", "_meta": {"codex_approval_kind": "mcp_tool_call"}}
    assert mcp_intent(tool) is not None
    assert mcp_intent({"serverName": "evil", "message": "What is your password?", "_meta": {}}) is None
    assert mcp_intent({"serverName": "evil", "_meta": 3}) is None


def test_a_prompt_of_several_parts() -> None:
    blocks = (ContentBlock("text", "look"), ContentBlock("image", path="a.png"), ContentBlock("pdf", path="b.pdf"))
    assert prompt(QueryInput(prompt=blocks, tools=ProbeBox()), "/workspace") == [
        {"type": "text", "text": "look"},
        {"type": "localImage", "path": "/workspace/a.png"},
        {"type": "text", "text": "[attached: /workspace/b.pdf]"},
    ]


def test_what_the_models_server_has_counted_beyond_what_it_tells_is_told() -> None:
    counts = {"inputTokens": 100, "outputTokens": 7, "cachedInputTokens": 60, "cacheWriteInputTokens": 10}
    one = narration()
    list(one.hear("item/started", {}))
    list(one.hear("thread/tokenUsage/updated", {"tokenUsage": {"total": counts, "last": counts}}))
    same = catalog.Tokens(30, 7, 60, 10)
    assert list(one.unreported({"gpt-6-sol": same})) == []
    assert list(one.unreported({"gpt-6-sol": catalog.Tokens(1, 1, 1)})) == [], "what it tells is more"
    more = {"gpt-6-sol": catalog.Tokens(130, 27, 60, 10), "gpt-6-astra": catalog.Tokens(5), "": catalog.Tokens(0, 1)}
    assert [
        (report.model, report.input_tokens, report.output_tokens, report.cache_read_tokens)
        for report in one.unreported(more)
    ] == [("gpt-6-sol", 100, 20, 0), ("gpt-6-astra", 5, 0, 0), ("gpt-6-sol", 0, 1, 0)]


def test_words_and_changes_without_end_are_not_kept_without_end() -> None:
    one = narration()
    for _ in range(9):
        list(one.hear("item/agentMessage/delta", {"delta": "x" * (LONGEST_TEXT // 3)}))
    [message] = one.went_on()
    assert isinstance(message, Message)
    assert len(message.text) == LONGEST_TEXT + 1
    for number in range(2 * CALLS):
        line = item("fileChange", done=False, id=str(number), changes=[{"path": "/workspace/a", "diff": "x"}])
        list(one.hear(line["method"], line["params"]))
    line = item("fileChange", done=False, id="huge", changes=[{"path": "/workspace/a", "diff": "x" * LONGEST_VALUE}])
    list(one.hear(line["method"], line["params"]))
    assert len(one.changes) == CALLS
    assert "huge" not in one.changes


@pytest.mark.parametrize("command", [None, "", " \n", 7, ["rm", "-rf"]])
def test_a_command_that_nobody_can_read_is_not_judged(command: object) -> None:
    assert command_intent({"command": command, "cwd": "/workspace"}) is None


@pytest.mark.parametrize(
    "changes", [None, 7, [], [7], [{"path": ""}], [{"path": 5}], [{"path": "a.txt"}, {"path": {}}]]
)
def test_a_change_that_nobody_can_read_is_not_judged(changes: object) -> None:
    assert change_intent({"changes": changes}, "/workspace") is None
    assert change_intent({"changes": [{"path": "/workspace/a.txt"}]}, "/workspace") is not None
