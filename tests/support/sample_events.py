"""An event of each type, with texts that are hard to print."""

from adapters.errors import ErrorClass
from adapters.events import (
    AnyEvent,
    ApprovalRequested,
    ControlChanged,
    DeliveryChanged,
    DiffAvailable,
    Failed,
    FilesTouched,
    Message,
    MessagesJoined,
    Progress,
    QuestionAsked,
    Result,
    ScreenChanged,
    SessionStarted,
    Stderr,
    TextDelta,
    Thinking,
    ToolCall,
    ToolProgress,
    ToolResult,
    TurnEnded,
    TurnStarted,
    UsageReport,
)

TEXT = "„<&>“ \x00\x1b[31m 🫖\r\n"
EVENTS: dict[str, AnyEvent] = {
    "session_started": SessionStarted(continuation="c-1", version="2"),
    "text_delta": TextDelta(text=TEXT),
    "screen_changed": ScreenChanged(lines=("$ ls", TEXT), row=1, column=2),
    "control_changed": ControlChanged(mode="human-led", by="ann"),
    "thinking": Thinking(text=TEXT),
    "tool_call": ToolCall(id="call-1", name="clock", preview=TEXT),
    "tool_progress": ToolProgress(id="call-1", name="clock", elapsed=1.5),
    "tool_result": ToolResult(id="call-1", name="clock", ok=False),
    "approval_requested": ApprovalRequested(
        category="deploy", summary=TEXT, risk="high", context={"a": None, "b": [1, {"c": None}], "": TEXT}
    ),
    "files_touched": FilesTouched(paths=("a.txt", "b c.txt")),
    "diff_available": DiffAvailable(summary="+1 -2"),
    "message": Message(text=TEXT),
    "messages_joined": MessagesJoined(messages=(3, 4)),
    "question_asked": QuestionAsked(id="q-1", title=TEXT, text=TEXT, options=("a", TEXT), seconds=300.0),
    "result": Result(text=TEXT),
    "usage": UsageReport(model="m", input_tokens=1, output_tokens=2, cache_read_tokens=3, cost_usd=0.25),
    "stderr": Stderr(text=TEXT),
    "progress": Progress(text=TEXT),
    "failed": Failed(message=TEXT, error_class=ErrorClass.RATE_LIMIT, retryable=True, retry_after=7.5),
    "turn_started": TurnStarted(number=3, attempt=2, provider="scripted", model="m", messages=(1, 2), worker="w"),
    "turn_ended": TurnEnded(status="waiting", error=TEXT, error_class=ErrorClass.TRANSPORT, retry_in=5.25),
    "delivery": DeliveryChanged(message=4, status="retrying", channel="webhook", error=TEXT),
}
