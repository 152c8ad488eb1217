"""Events on a terminal: every type has its line or is silent on purpose, and a model's text cannot steer the screen."""

import io
from datetime import UTC, datetime

import pytest
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
    Progress,
    QuestionAsked,
    Result,
    Stderr,
    TextDelta,
    Thinking,
    ToolCall,
    ToolProgress,
    TurnEnded,
    TurnStarted,
    UsageReport,
)
from gateway.cli.stream import EventPrinter
from tests.support.sample_events import EVENTS

# Said by other lines, or of no use to somebody who reads along.
SILENT = {"screen_changed", "session_started", "usage"}
HOSTILE = "\x1b[2J\x1b]0;title\x07\x08\r\x00[bold]bracketed[/bold]\\"


class Screen:
    def __init__(self, *, prefix: bool = False, usage: bool = False) -> None:
        self._file = io.StringIO()
        console = Console(file=self._file, width=80, highlight=False, color_system=None)
        self._printer = EventPrinter(console, prefix=prefix, usage=usage)

    def show(self, *events: AnyEvent, turn: str = "t1", session: str = "session-12345678") -> "Screen":
        for event in events:
            self._printer.show(Envelope(session=session, turn=turn, at=datetime.now(UTC), event=event))
        return self

    @property
    def text(self) -> str:
        return self._file.getvalue()

    def close(self) -> str:
        self._printer.close()
        return self.text


@pytest.mark.spec("G4")
def test_a_question_is_told_once() -> None:
    call = ToolCall(id="1", name="ask_user_question", preview="title=Tea, question=What shall it be?")
    asked = QuestionAsked(id="question-12345678", title="Tea", text="What shall it be?", options=("Mint",), seconds=60)
    parked = TurnEnded(status="parked", error="Tea: What shall it be?")
    shown = Screen().show(call, asked, parked).text
    assert shown.count("What shall it be?") == 1
    assert shown.endswith("⏸ waiting for somebody's answer\n")
    # Who asks again later, says what for.
    assert Screen().show(call, asked, parked, parked).text.endswith("⏸ waiting: Tea: What shall it be?\n")


@pytest.mark.spec("G4")
def test_on_a_terminal_text_is_broken_between_words() -> None:
    file = io.StringIO()
    printer = EventPrinter(Console(file=file, width=20, highlight=False, color_system=None, force_terminal=True))
    for piece in ("Every message be", "comes a row, and ", "no row is lost"):
        event = TextDelta(text=piece)
        printer.show(Envelope(session="s", turn="t", at=datetime.now(UTC), event=event))
    printer.close()
    assert file.getvalue() == "│ Every message\nbecomes a row, and\nno row is lost\n"


@pytest.mark.spec("G4")
@pytest.mark.parametrize("name", EVENTS)
def test_every_event_has_a_line_or_is_silent_on_purpose(name: str) -> None:
    assert (Screen().show(EVENTS[name]).close() == "") == (name in SILENT)


@pytest.mark.spec("G4")
@pytest.mark.parametrize(
    ("event", "line"),
    [
        (TurnStarted(number=2, attempt=1, provider="scripted"), "▶ turn 2 on scripted\n"),
        (TurnStarted(number=2, attempt=3, provider="scripted"), "▶ turn 2 on scripted, attempt 3\n"),
        (TurnEnded(status="completed"), "■ done\n"),
        (TurnEnded(status="waiting", error="busy", retry_in=5.0), "■ busy; again in 5 s\n"),
        (TurnEnded(status="handed_over"), "■ handed over to another worker\n"),
        (TurnEnded(status="handed_over", error="x is down: going on with y"), "■ x is down: going on with y\n"),
        (
            ApprovalRequested(id="0" * 28 + "17a6a115", category="tool", summary="demo wants x()", risk="high"),
            "! demo wants x()\n  longshore approve 17a6a115 (or deny)\n",
        ),
        (ApprovalRequested(category="deploy", summary="release", risk="low"), "! release\n"),
        (ToolProgress(id="c", name="run_command", elapsed=5), "  … run_command 5 s\n"),
        (DeliveryChanged(message=2, status="delivered", channel="local", files=("a/b.txt",)), "✉ a/b.txt\n"),
        (TurnEnded(status="parked", error="Tea?"), "⏸ waiting: Tea?\n"),
        (TurnEnded(status="parked"), "⏸ waiting\n"),
        (TurnEnded(status="parked", error="spent", error_class=ErrorClass.BUDGET), "⏸ spent\n"),
        (
            QuestionAsked(id="question-12345678", title="Tea?", text="Now.", options=("Yes", "No"), seconds=5),
            "? Tea? Now.\n  1 Yes\n  2 No\n  longshore answer 12345678 TEXT\n",
        ),
        (MessagesJoined(messages=(3, 4)), "+ message 3, 4\n"),
        (TurnEnded(status="failed", error="no key", error_class=ErrorClass.AUTH), "■ failed: no key\n"),
        (TurnEnded(status="cancelled"), "■ cancelled\n"),
        (ToolCall(id="1", name="clock", preview="timezone=UTC"), "⚙ clock timezone=UTC\n"),
        (EVENTS["tool_result"], "  ✗ clock\n"),
        (EVENTS["files_touched"], "✎ a.txt, b c.txt\n"),
        (Thinking(text="hm"), "… hm\n"),
        (Message(text="on it"), "│ on it\n"),
        (Progress(text="half"), "· half\n"),
        (Stderr(text="oops"), "· oops\n"),
        (Failed(message="broken"), "✗ broken\n"),
        (DeliveryChanged(message=1, status="failed", channel="webhook", error="404"), "✉ failed (webhook): 404\n"),
        (DeliveryChanged(message=1, status="delivered", channel="webhook"), ""),
    ],
)
def test_a_line_reads_like_this(event: AnyEvent, line: str) -> None:
    assert Screen().show(event).close() == line


@pytest.mark.spec("G4")
def test_text_appears_as_it_is_written_and_is_not_repeated() -> None:
    screen = Screen().show(TextDelta(text="Good "), TextDelta(text="morning"))
    assert screen.text == "│ Good morning"
    screen.show(Result(text="Good morning"), TurnEnded(status="completed"))
    assert screen.close() == "│ Good morning\n■ done\n"


@pytest.mark.spec("G4")
def test_a_result_nobody_saw_being_written_is_shown_whole() -> None:
    assert Screen().show(Result(text="Good morning")).close() == "│ Good morning\n"


@pytest.mark.spec("G4")
def test_a_result_that_was_seen_being_written_is_not_shown_again_at_the_end() -> None:
    screen = Screen().show(TextDelta(text="All "), TextDelta(text="done."), FilesTouched(paths=("a.txt",)))
    assert screen.show(Result(text="All done."), TurnEnded(status="completed")).close().count("All done.") == 1
    assert screen.show(Result(text="All done."), turn="t2").close().count("All done.") == 2


@pytest.mark.spec("G4")
@pytest.mark.parametrize("whole", [Message(text="13 tide.txt"), Result(text="13 tide.txt")])
@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(("13 ",), id="the end missed"),
        pytest.param(("13 ", ".txt"), id="the middle missed"),
        pytest.param(("tide", ".txt"), id="the beginning missed"),
    ],
)
def test_a_reader_who_misses_pieces_of_a_text_has_it_in_the_end(whole: AnyEvent, pieces: tuple[str, ...]) -> None:
    screen = Screen().show(*(TextDelta(text=piece) for piece in pieces), whole)
    assert screen.close().count("│ 13 tide.txt\n") == 1


@pytest.mark.spec("G4")
@pytest.mark.parametrize("between", [(), (Thinking(text="and now"),)])
def test_an_answer_of_two_texts_is_shown_once(between: tuple[AnyEvent, ...]) -> None:
    """The pieces of two texts that the model wrote say nothing of the empty line that stands between them."""
    screen = Screen().show(TextDelta(text="First."), *between, TextDelta(text="Second."))
    shown = screen.show(Result(text="First.\n\nSecond."), TurnEnded(status="completed")).close()
    assert (shown.count("First."), shown.count("Second.")) == (1, 1)


@pytest.mark.spec("G4")
def test_what_others_tell_while_a_text_is_written_stands_after_it() -> None:
    """Deliveries and changed files are told by others than the one who writes."""
    sent = DeliveryChanged(message=2, status="delivered", channel="local", files=("page.txt",))
    screen = Screen().show(TextDelta(text="13 "), FilesTouched(paths=("tide.txt",)), sent, TextDelta(text="tide.txt"))
    assert screen.show(Message(text="13 tide.txt")).close() == "│ 13 tide.txt\n✎ tide.txt\n✉ page.txt\n"


@pytest.mark.spec("G4")
def test_a_tool_in_the_middle_of_a_text_gets_a_line_of_its_own() -> None:
    screen = Screen().show(TextDelta(text="let me see"), ToolCall(id="1", name="clock"), TextDelta(text="it is nine"))
    assert [line.rstrip() for line in screen.close().splitlines()] == ["│ let me see", "⚙ clock", "│ it is nine"]


@pytest.mark.spec("G4")
def test_thoughts_in_pieces_are_one_line() -> None:
    pieces = Thinking(text="Let "), Thinking(text="me see")
    assert Screen().show(*pieces, Result(text="Yes")).close() == "… Let me see\n│ Yes\n"
    assert Screen(prefix=True).show(*pieces, Result(text="Yes")).close() == "12345678 … Let me see\n12345678 │ Yes\n"


@pytest.mark.spec("G4", "P21")
def test_what_a_turn_took_is_shown_to_whoever_sent_it() -> None:
    used = UsageReport(input_tokens=1200, output_tokens=34, cost_usd=0.0031), UsageReport(output_tokens=306)
    ends = TurnEnded(status="completed")
    assert Screen().show(*used, ends).close() == "■ done\n"
    assert Screen(usage=True).show(*used, ends).close() == "■ done  1.2k tokens in, 340 out, at least $0.0031\n"


@pytest.mark.spec("G4")
def test_a_reader_of_many_sees_which_session_speaks() -> None:
    screen = Screen(prefix=True)
    screen.show(TextDelta(text="one"), turn="t1", session="session-aaaaaaaa")
    screen.show(TextDelta(text="two"), turn="t2", session="session-bbbbbbbb")
    screen.show(DeliveryChanged(message=1, status="delivered", channel="local"), session="session-aaaaaaaa")
    assert screen.close().splitlines() == ["aaaaaaaa ✉ delivered (local)"]


@pytest.mark.spec("G4")
@pytest.mark.parametrize(
    "event",
    [
        TextDelta(text=HOSTILE),
        Message(text=HOSTILE),
        Result(text=HOSTILE),
        Thinking(text=HOSTILE),
        Progress(text=HOSTILE),
        Stderr(text=HOSTILE),
        Failed(message=HOSTILE),
        ToolCall(id="1", name="clock", preview=HOSTILE),
        TurnEnded(status="failed", error=HOSTILE),
        DeliveryChanged(message=1, status="failed", channel="x", error=HOSTILE),
    ],
    ids=lambda event: event.type,
)
def test_control_characters_and_markup_do_not_reach_the_terminal(event: AnyEvent) -> None:
    shown = Screen().show(event).close()
    assert [char for char in shown if char < " " and char != "\n"] == []
    assert "[bold]bracketed[/bold]\\" in shown


@pytest.mark.spec("G4")
def test_a_reader_of_many_sees_whose_it_is() -> None:
    file = io.StringIO()
    printer = EventPrinter(Console(file=file, width=40, color_system=None, force_terminal=True), prefix=True)
    text = "a sentence that is broken between words"
    printer.show(Envelope(session="session-12345678", at=datetime.now(UTC), event=Message(text=text)), "demo")
    assert file.getvalue() == "12345678 demo │ a sentence that is \nbroken between words\n"
