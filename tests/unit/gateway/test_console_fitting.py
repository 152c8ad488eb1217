"""What an agent has said fits into a page, however much it is."""

from datetime import UTC, datetime, timedelta

import pytest

from gateway.console.chat.lines import CHARACTERS, LINES, SHORT, Line, shorten
from gateway.console.chat.lines import LONG as LONG_LINE
from gateway.console.timeline.entries import Call, Said
from gateway.console.timeline.fitting import LONG, ONE_TURN, PAGE, fit, size_of
from gateway.console.timeline.turn_view import TurnView

pytestmark = pytest.mark.spec("G3")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def turn(*sizes: int) -> TurnView:
    return TurnView("t", entries=[Said(f"e{n}", NOON, "x" * size) for n, size in enumerate(sizes)])


def shown(turns: list[TurnView]) -> list[int]:
    return [len(one.entries) - one.left_out for one in turns]


def test_turns_of_usual_size_are_shown_whole() -> None:
    turns = [turn(*[500] * 20) for _ in range(10)]
    fit(turns, PAGE)
    assert shown(turns) == [20] * 10


def test_of_a_turn_with_very_many_entries_the_last_are_shown() -> None:
    turns = [turn(*[10] * 1000)]
    fit(turns, PAGE)
    assert shown(turns) == [PAGE.entries]
    fit(turns, ONE_TURN)
    assert shown(turns) == [1000]


def test_all_turns_of_a_page_share_its_room() -> None:
    turns = [turn(*[50_000] * 150) for _ in range(10)]
    fit(turns, PAGE)
    assert shown(turns)[:-1] == [1] * 9
    sizes = [size_of(entry) for one in turns for entry in one.entries[one.left_out :]]
    assert sum(sizes) < PAGE.characters + 10 * (LONG + 200)


def test_what_is_no_text_has_a_size_too() -> None:
    assert size_of(Call("e1", NOON)) > 0


def test_of_a_long_chat_the_older_lines_are_short() -> None:
    lines = [Line(f"out{n}", NOON + timedelta(seconds=n), "x" * 50_000) for n in range(LINES)]
    shorten(lines)
    assert len(lines[-1].text) == LONG_LINE + 1
    assert len(lines[0].text) == SHORT + 1
    assert sum(len(line.text) for line in lines) < CHARACTERS + LONG_LINE + LINES * (SHORT + 1)
    usual = [Line("out1", NOON, "x" * 300)]
    shorten(usual)
    assert usual[0].text == "x" * 300
