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
from adapters.providers.cli.codex.events import Narration, failure, shortstat
from adapters.providers.cli.codex.requests import command_intent, mcp_intent, prompt
from adapters.providers.conformance import ProbeBox

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
    assert (intent.tool, intent.command, intent.url) == ("shell", "/bin/sh -lc 'git push'", "")
    network = {"command": None, "networkApprovalContext": {"host": "example.org", "protocol": "https"}}
    assert command_intent(network).url == "https://example.org"
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
