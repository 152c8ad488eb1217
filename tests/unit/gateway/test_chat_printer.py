"""A conversation on the screen of somebody who takes part in it."""

import io
from datetime import UTC, datetime

import pytest
from rich.cells import cell_len
from rich.console import Console

from adapters.errors import ErrorClass
from adapters.events import (
    AnyEvent,
    ApprovalRequested,
    DeliveryChanged,
    Envelope,
    Failed,
    FilesTouched,
    Message,
    MessagesJoined,
    QuestionAsked,
    Result,
    TextDelta,
    Thinking,
    ToolCall,
    ToolProgress,
    ToolResult,
    TurnEnded,
    TurnStarted,
    UsageReport,
)
from gateway.cli.chat_log import Said
from gateway.cli.chat_printer import ChatPrinter
from tests.support.sample_events import EVENTS

pytestmark = pytest.mark.spec("G4")

DONE = TurnEnded(status="completed")


class Screen:
    def __init__(self, *, terminal: bool = False) -> None:
        self._file = io.StringIO()
        self.printer = ChatPrinter(
            Console(file=self._file, width=40, highlight=False, color_system=None, force_terminal=terminal)
        )

    def show(self, *events: AnyEvent) -> str:
        for event in events:
            self.printer.show(Envelope(session="s", turn="t", at=datetime.now(UTC), event=event))
        self.printer.close()
        return self._file.getvalue()


@pytest.mark.parametrize("name", EVENTS)
def test_no_event_breaks_it(name: str) -> None:
    assert Screen().show(EVENTS[name]).count("\n") < 10


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (TurnStarted(number=1, attempt=1, provider="x"), ""),
        (TurnStarted(number=1, attempt=2, provider="x"), "▶ attempt 2, on x\n"),
        (DONE, ""),
        (MessagesJoined(messages=(3,)), ""),
        (Failed(message="broken"), ""),
        (
            TurnEnded(status="waiting", error="429", error_class=ErrorClass.RATE_LIMIT, retry_in=12.0),
            "rate limited, again in 12 s\n",
        ),
        (TurnEnded(status="waiting", error="the line is dead", retry_in=5.0), "■ the line is dead; again in 5 s\n"),
        (TurnEnded(status="cancelled", error="cancelled by Eve"), "■ cancelled by Eve\n"),
        (
            ApprovalRequested(id="approval-12345678", category="tool", summary="demo wants [x]", risk="low"),
            "! demo wants [x]\n  /approve or /deny 12345678\n",
        ),
        (TurnEnded(status="parked"), "⏸ waiting for you (type the answer, or an option's number)\n"),
        (TurnEnded(status="parked", error_class=ErrorClass.BUDGET, error="all is spent"), "⏸ all is spent\n"),
        (TurnEnded(status="handed_over", error="x is down: going on with y"), "■ x is down: going on with y\n"),
        (TurnEnded(status="failed", error="no key"), "■ failed: no key (kept: longshore dead)\n"),
        (
            QuestionAsked(id="q", title="Tea?", text="Now.", options=("Yes", "[b]No"), seconds=5),
            "? Tea?\n  Now.\n  1 Yes\n  2 [b]No\n",
        ),
    ],
)
def test_a_line_reads_like_this(event: AnyEvent, line: str) -> None:
    assert Screen().show(event) == line


def test_a_tool_is_marked_when_it_is_done() -> None:
    call, result = ToolCall(id="1", name="clock", preview="UTC"), ToolResult(id="1", name="clock", ok=True)
    assert Screen().show(call, result) == "⚙ clock UTC … ✓\n"
    assert Screen().show(call) == "⚙ clock UTC … \n"


def test_a_tools_line_is_one_row_of_a_terminal() -> None:
    call = ToolCall(id="1", name="write_file", preview="path=tide.txt, content=The tide\ncomes in, the tide goes out")
    shown = Screen(terminal=True).show(call, ToolResult(id="1", name="write_file", ok=True))
    assert shown == "⚙ write_file path=tide.tx… … ✓\n"
    assert cell_len(shown.rstrip()) <= 40
    assert "goes out … ✓" in Screen().show(call, ToolResult(id="1", name="write_file", ok=True))


def test_the_time_a_tool_takes_stands_in_one_place() -> None:
    call, done = ToolCall(id="1", name="clock"), ToolResult(id="1", name="clock", ok=True)
    ticks = [ToolProgress(id="1", name="clock", elapsed=seconds) for seconds in (5.0, 10.0)]
    assert Screen(terminal=True).show(call, *ticks, done) == "⚙ clock … 5 s … \b\b\b\b\b\b10 s … ✓\n"
    assert Screen().show(call, *ticks, done) == "⚙ clock … 5 s … 10 s … ✓\n"


def test_what_happens_meanwhile_stands_after_the_line_that_is_being_written() -> None:
    files = FilesTouched(paths=("tide.txt",))
    sent = DeliveryChanged(message=2, status="delivered", channel="local", files=("page.txt",))
    call, result = ToolCall(id="1", name="send_file"), ToolResult(id="1", name="send_file", ok=True)
    assert Screen().show(call, files, result) == "⚙ send_file … ✓\n✎ tide.txt\n"
    text = (TextDelta(text="Here "), sent, TextDelta(text="it is."), Message(text="Here it is."), DONE)
    assert Screen().show(*text) == "│ Here it is.\n✉ page.txt\n"
    assert Screen().show(files) == "✎ tide.txt\n"


def test_tools_that_run_side_by_side_have_lines_of_their_own() -> None:
    calls = [ToolCall(id=n, name=f"tool{n}") for n in "12"]
    results = [ToolResult(id=n, name=f"tool{n}", ok=n == "1") for n in "12"]
    lines = [line.rstrip() for line in Screen().show(*calls, *results).splitlines()]
    assert lines == ["⚙ tool1 …", "⚙ tool2 …", "  ✓ tool1", "  ✗ tool2"]


def test_a_question_stands_for_the_call_that_asked_it() -> None:
    call = ToolCall(id="1", name="ask_user_question", preview="title=…")
    assert Screen().show(call, ToolResult(id="1", name="ask_user_question", ok=True)) == ""


def test_what_a_turn_took_stands_at_its_end() -> None:
    calls = [
        UsageReport(input_tokens=200, cache_read_tokens=1000, output_tokens=40, cost_usd=0.001),
        UsageReport(input_tokens=34, output_tokens=300, cost_usd=0.0021),
    ]
    assert Screen().show(TextDelta(text="Hi"), *calls, Result(text="Hi"), DONE) == (
        "│ Hi\n1.2k tokens in, 340 out, $0.0031\n"
    )


def test_thoughts_in_pieces_are_one_thought() -> None:
    assert (
        Screen().show(Thinking(text="Let "), Thinking(text="me see"), TextDelta(text="Yes")) == "… Let me see\n│ Yes\n"
    )


def test_a_terminal_gets_whole_words() -> None:
    text = "a sentence that is longer than forty cells is broken between words"
    shown = Screen(terminal=True).show(*(TextDelta(text=text[n : n + 5]) for n in range(0, len(text), 5)))
    assert shown == "│ a sentence that is longer than forty\ncells is broken between words\n"
    assert Screen().show(TextDelta(text=text)) == f"│ {text}\n"


def test_others_and_the_past() -> None:
    screen = Screen()
    screen.printer.history([Said(1, "you", "hi"), Said(2, None, "hello"), Said(3, "Eve", "x" * 500)])
    screen.printer.said(Said(4, "Eve", "[bold]\x1b[2J"))
    lines = screen.show().splitlines()
    assert lines[:2] == ["› hi", "│ hello"]
    assert lines[2] == "Eve › " + "x" * 399 + "…"
    assert lines[3] == "Eve › [bold]�[2J"
