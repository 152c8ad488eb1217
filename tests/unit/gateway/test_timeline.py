"""A timeline is made of events and rows, and is the same however often its reader was away."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.events import (
    AnyEvent,
    ApprovalRequested,
    Envelope,
    Message,
    MessagesJoined,
    Result,
    Thinking,
    ToolCall,
    ToolResult,
    TurnEnded,
    TurnStarted,
    UsageReport,
)
from gateway.console.timeline.entries import Asked, Attempt, Call, Entry, Note, Received, Said, Sent, Thought
from gateway.console.timeline.joining import join, turns_of
from gateway.console.timeline.turn_view import TurnView
from models.timeline import Rows

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
TURN = "t1"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def told(*events: AnyEvent) -> list[Envelope]:
    """One each second."""
    return [Envelope(session="s", turn=TURN, seq=n, at=at(n), event=event) for n, event in enumerate(events, 1)]


def view_of(*events: AnyEvent) -> TurnView:
    view = TurnView(TURN)
    for item in told(*events):
        view.feed(item)
    return view


def started(attempt: int = 1, worker: str = "w1", messages: tuple[int, ...] = (1,)) -> TurnStarted:
    return TurnStarted(number=3, attempt=attempt, provider="scripted", model="m", messages=messages, worker=worker)


def out(seq: int, text: str, key: str, **more: Any) -> Any:
    row = {"id": f"o{seq}", "seq": seq, "turn_id": TURN, "content": {"text": text}, "idempotency_key": key}
    return SimpleNamespace(**(row | {"created_at": at(0), "status": "delivered"} | more))


def rows(**given: list[Any]) -> Rows:
    return Rows(**given)


def kinds(view: TurnView) -> list[str]:
    return [entry.kind for entry in view.entries]


def only(view: TurnView, kind: type[Entry]) -> Any:
    [entry] = [entry for entry in view.entries if isinstance(entry, kind)]
    return entry


PLAIN = (
    started(),
    Thinking(text="They want "),
    Thinking(text="the time."),
    ToolCall(id="c1", name="clock", preview="timezone=UTC"),
    ToolResult(id="c1", name="clock", ok=True),
    UsageReport(input_tokens=10, cache_read_tokens=5, output_tokens=3, cost_usd=0.5),
    UsageReport(input_tokens=1),
    Result(text="noon"),
    TurnEnded(status="completed"),
)


def test_a_turn_has_what_happened_in_its_order() -> None:
    view = view_of(*PLAIN)
    assert kinds(view) == ["received", "attempt", "thought", "call", "sent"]
    assert (view.number, view.status, view.provider, view.model) == (3, "completed", "scripted", "m")
    assert only(view, Thought).text == "They want the time."
    assert (only(view, Call).state, only(view, Call).seconds) == ("ok", 1.0)
    assert (view.spent.read_tokens, view.spent.output_tokens) == (16, 3)
    assert (view.spent.cost_usd, view.spent.unpriced) == (0.5, 1)


def test_what_a_lost_worker_said_is_void() -> None:
    view = view_of(
        started(),
        ToolCall(id="c1", name="clock"),
        ToolResult(id="c1", name="clock", ok=True),
        Message(text="half of"),
        ToolCall(id="c2", name="clock"),
        started(attempt=2, worker="w2"),
        Message(text="half of it, again"),
    )
    first, second = (entry for entry in view.entries if isinstance(entry, Attempt))
    assert (first.lost, second.lost, second.worker) == (True, False, "w2")
    assert [entry.void for entry in view.entries if isinstance(entry, Said)] == [True, False]
    assert [entry.state for entry in view.entries if isinstance(entry, Call)] == ["ok", "unanswered"]
    assert view.worker == "w2"


def test_what_a_lost_worker_said_before_a_call_on_record_is_not_void() -> None:
    def view() -> TurnView:
        return view_of(
            started(),
            Message(text="first I look"),
            ToolCall(id="c1", name="clock"),
            ToolResult(id="c1", name="clock", ok=True),
            Message(text="half of"),
            started(attempt=2, worker="w2"),
            Message(text="half of it"),
        )

    for key, void in (("c1:clock", [False, True, False]), ("1:c1:clock", [True, True, False])):
        step = SimpleNamespace(id="s1", turn_id=TURN, key=key, started_at=at(3), ended_at=at(4))
        shown = view()
        join(shown, rows(steps=[step]))
        assert [entry.void for entry in shown.entries if isinstance(entry, Said)] == void


def test_a_call_that_waited_for_a_person_goes_on_as_the_same() -> None:
    view = view_of(
        started(),
        ToolCall(id="c1", name="launch"),
        ApprovalRequested(id="a1", category="tool", summary="launch it", risk="high"),
        TurnEnded(status="parked", error="launch waits for approval", retry_in=60),
    )
    assert (only(view, Call).state, view.status) == ("waiting", "parked")
    assert kinds(view)[-1] == "asked"  # and no line that says the same again
    for item in told(*[Message(text="")] * 4, started(attempt=2), ToolCall(id="c1", name="launch"))[4:]:
        view.feed(item)
    assert only(view, Call).state == "running"
    again = view.entries[-1]
    assert isinstance(again, Attempt)
    assert (again.again, again.lost) == (True, False)


def test_a_retry_says_when_it_comes() -> None:
    view = view_of(started(), TurnEnded(status="waiting", error="the line went dead", retry_in=5.5))
    note = only(view, Note)
    assert (note.text, note.due, view.due) == ("the line went dead", at(7.5), at(7.5))


def test_a_call_without_an_answer_is_not_running_for_ever() -> None:
    view = view_of(started(), ToolCall(id="c1", name="clock"), TurnEnded(status="cancelled", error="by ada"))
    assert only(view, Call).state == "unanswered"


@pytest.mark.parametrize("seen", range(len(PLAIN) + 1))
def test_a_reader_who_comes_back_anywhere_ends_with_the_same(seen: int) -> None:
    items = told(*PLAIN)
    whole, page = TurnView(TURN), {}
    for item in items[:seen]:
        for entry in whole.feed(item):
            page[entry.key] = entry
    back = TurnView(TURN)  # another gateway: it has read what this reader had seen
    for item in items[:seen]:
        back.feed(item)
    for item in items[seen:]:
        for entry in back.feed(item):
            page[entry.key] = entry
    assert list(page) == [entry.key for entry in view_of(*PLAIN).entries]
    assert back.entries == view_of(*PLAIN).entries


def test_an_answer_stands_where_its_event_is_and_never_twice() -> None:
    answer = out(2, "noon", f"{TURN}:1")
    view = view_of(*PLAIN[:5])
    assert join(view, rows(sent=[answer])) == []  # written, but its event is still to come
    for item in told(*PLAIN)[5:]:
        view.feed(item)
    assert join(view, rows(sent=[answer])) == [only(view, Sent)]
    assert only(view, Sent).row is answer
    assert join(view, rows(sent=[answer])) == []
    arrived = out(2, "noon", f"{TURN}:1", status="failed")
    assert join(view, rows(sent=[arrived])) == [only(view, Sent)]
    assert only(view, Sent).row.status == "failed"


def test_what_a_tool_sent_stands_after_its_call() -> None:
    view = view_of(*PLAIN)
    step: Any = SimpleNamespace(
        id="o2", turn_id=TURN, key="c1:clock", started_at=at(0), ended_at=at(0.25), said="12:00"
    )
    join(view, rows(steps=[step], sent=[out(2, "look", f"{TURN}:o2:1"), out(3, "noon", f"{TURN}:1")]))
    assert kinds(view) == ["received", "attempt", "thought", "call", "sent", "sent"]
    assert [entry.row.seq for entry in view.entries if isinstance(entry, Sent) and entry.row] == [2, 3]
    assert only(view, Call).seconds == 0.25


def test_a_question_is_shown_as_what_is_asked_and_not_as_a_message_too() -> None:
    view = view_of(started(), ApprovalRequested(id="a1", category="tool", summary="?", risk="low"))
    asks = out(2, "?", f"{TURN}:a1:question", content={"text": "?", "question": {}})
    approval: Any = SimpleNamespace(id="a1", status="pending")
    assert join(view, rows(sent=[asks], approvals=[approval])) == [only(view, Asked)]
    assert only(view, Asked).row is approval


def test_a_turn_of_long_ago_has_its_messages_without_events() -> None:
    turn: Any = SimpleNamespace(
        id=TURN,
        number=3,
        provider="p",
        model=None,
        status="completed",
        error=None,
        error_class=None,
        started_at=at(0),
        ended_at=at(9),
    )
    asked: Any = SimpleNamespace(seq=1, turn_id=TURN, created_at=at(0), content={"text": "when?"})
    [view] = turns_of(
        rows(turns=[turn], received=[asked], sent=[out(2, "noon", f"{TURN}:1", created_at=at(9))]), events=[]
    )
    assert kinds(view) == ["received", "sent"]
    assert (view.number, view.status) == (3, "completed")


def test_messages_that_joined_are_marked() -> None:
    view = view_of(started(), MessagesJoined(messages=(2,)))
    assert [(entry.number, entry.joined) for entry in view.entries if isinstance(entry, Received)] == [
        (1, False),
        (2, True),
    ]


def test_a_message_whose_row_is_seen_before_its_event_is_marked_all_the_same() -> None:
    view = view_of(started())
    asked: Any = SimpleNamespace(seq=2, turn_id=TURN, created_at=at(2), content={"text": "and?"})
    join(view, rows(received=[asked]))
    changed = view.feed(Envelope(session="s", turn=TURN, seq=9, at=at(3), event=MessagesJoined(messages=(2,))))
    assert [(entry.number, entry.joined) for entry in changed if isinstance(entry, Received)] == [(2, True)]
