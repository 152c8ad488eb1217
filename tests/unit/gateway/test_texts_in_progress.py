"""Texts that are being written: what the gateway has of them, and what a reader is told."""

from datetime import UTC, datetime

from adapters.events import AnyEvent, Envelope, Message, TextDelta, Thinking, TurnEnded
from gateway.console.timeline.writing import Writing
from gateway.http import running_texts
from gateway.http.running_texts import RunningTexts

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def heard(event: AnyEvent, session: str = "s1", turn: str = "t1") -> Envelope:
    return Envelope(session=session, turn=turn, after=3, at=NOON, event=event)


def so_far(texts: RunningTexts, session: str = "s1") -> str | None:
    item = texts.so_far(session)
    if item is None:
        return None
    assert isinstance(item.event, TextDelta)
    assert (item.turn, item.after, item.event.offset) == ("t1", 3, 0)
    return item.event.text


def test_a_text_is_there_until_it_is_whole() -> None:
    texts = RunningTexts()
    assert so_far(texts) is None
    for event in (TextDelta(text="Good ", offset=0), Thinking(text="hm"), TextDelta(text="morning", offset=5)):
        texts.hear(heard(event))
    assert so_far(texts) == "Good morning"
    texts.hear(heard(TextDelta(text="another's", offset=0), "s2"))
    texts.hear(heard(Message(text="Good morning")))
    assert (so_far(texts), so_far(texts, "s2")) == (None, "another's")
    texts.hear(heard(TurnEnded(status="failed"), "s2"))
    assert so_far(texts, "s2") is None


def test_a_text_that_was_not_heard_from_its_beginning_is_not_there() -> None:
    texts = RunningTexts()
    for event in (TextDelta(text="ning", offset=8), TextDelta(text=" all", offset=12)):
        texts.hear(heard(event))
        assert so_far(texts) is None
    texts.hear(heard(TextDelta(text="Good ", offset=0)))
    texts.hear(heard(TextDelta(text="ning", offset=8)))  # something between was lost
    assert so_far(texts) is None
    texts.hear(heard(TextDelta(text="of an earlier release")))
    assert so_far(texts) is None
    texts.hear(heard(TextDelta(text="Good ", offset=0)))
    texts.hear(heard(TextDelta(text="day", offset=5), turn="t2"))
    assert so_far(texts) is None


def test_neither_a_long_text_nor_many_fill_the_memory() -> None:
    texts = RunningTexts()
    texts.hear(heard(TextDelta(text="x" * running_texts.CHARACTERS, offset=0)))
    assert so_far(texts) is not None
    texts.hear(heard(TextDelta(text="x", offset=running_texts.CHARACTERS)))
    assert so_far(texts) is None
    for number in range(running_texts.TEXTS + 1):
        texts.hear(heard(TextDelta(text="x", offset=0), f"s{number}"))
    assert (so_far(texts, "s0"), so_far(texts, "s1")) == (None, "x")


def told(writing: Writing, text: str, offset: int | None, turn: str = "t1") -> tuple[str, bool, bool] | None:
    piece = writing.take(turn, TextDelta(text=text, offset=offset))
    return None if piece is None else (piece["text"], piece["begins"], piece["partly"])


def test_a_reader_is_told_a_text_from_its_beginning_or_that_there_is_one() -> None:
    writing = Writing()
    assert told(writing, "ning", 8) == ("", True, True)
    assert told(writing, " all", 12) is None
    assert told(writing, "How ", 0) == ("How ", True, False)
    assert told(writing, "are you?", 4) == ("are you?", False, False)
    assert told(writing, "lost", 99) == ("", True, True)
    assert told(writing, "Ⅷ 🚢", 0, "t2") == ("Ⅷ 🚢", True, False)
    assert told(writing, "!", 3, "t2") == ("!", False, False)


def test_pieces_of_an_earlier_release_are_taken_as_they_come() -> None:
    writing = Writing()
    assert told(writing, "Good ", None) == ("Good ", True, False)
    assert told(writing, "day", None) == ("day", False, False)
