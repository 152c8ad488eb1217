"""What a program sends to its terminal, drawn: whatever it is, it breaks nothing and nothing grows with it."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.events import ScreenChanged
from adapters.providers.cli.terminal.screen import Screen

pytestmark = pytest.mark.spec("P12")

ROWS, COLUMNS = 5, 20


def drawn(*parts: bytes, rows: int = ROWS, columns: int = COLUMNS, answers: list[str] | None = None) -> ScreenChanged:
    screen = Screen(rows, columns, (answers if answers is not None else []).append)
    for part in parts:
        for piece in screen.slices(part):
            screen.draw(piece)
    return screen.show()


def test_text_is_drawn_where_it_belongs() -> None:
    shown = drawn(b"one\r\ntwo\x1b[1;10Hthree\x1b[31m red\x1b[0m  ")
    assert shown.lines == ("one      three red", "two")
    assert (shown.row, shown.column) == (0, 19)
    assert drawn().lines == ()


def test_wide_characters_take_two_places() -> None:
    shown = drawn("漢字 é\u0301 🙂x\r\nnext".encode())
    assert shown.lines == ("漢字 é\u0301 🙂x", "next")
    assert drawn("漢字x".encode()).column == 5


def test_what_comes_in_pieces_is_the_same() -> None:
    sent = "\x1b[2J\x1b[Hé漢\x1b]0;title\x07\x1b[3;4Hx\x1bP1$r\x1b\\y\x1b[?25l".encode()
    assert drawn(*(sent[at : at + 1] for at in range(len(sent)))) == drawn(sent)


PARTS = st.sampled_from(
    (
        *(
            b"\n",
            b"\r\n",
            b"\x1b",
            b"\x1b[",
            b"\x1b]",
            b"\x07",
            b"\x1b\\",
            b";",
            b"9",
            b"H",
            b"m",
            b"h",
            b"l",
            b"J",
            b"r",
        ),
        *(
            b"r",
            b"A",
            b"L",
            b"?3",
            b"?6",
            b"\x1b7",
            b"\x1b8",
            b"\x1bM",
            b"\x1b#8",
            b"\t",
            b"\x08",
            b"\xc2\x9b",
            b"\xcc\x81",
        ),
    )
)


@given(st.lists(PARTS | st.binary(max_size=8), max_size=60).map(b"".join))
def test_nothing_that_is_sent_breaks_it(sent: bytes) -> None:
    shown = drawn(sent)
    assert len(shown.lines) <= ROWS
    assert 0 <= shown.row < ROWS
    assert 0 <= shown.column < COLUMNS


@given(st.lists(st.sampled_from(["\r\n", "\n", "\t", "a", "bc ", "漢", "x" * 30]), max_size=60).map("".join))
def test_what_scrolls_away_unseen_need_not_be_drawn(text: str) -> None:
    sent = text.encode()
    one_by_one = drawn(*(char.encode() for char in text))
    assert drawn(b"before\r\n", sent) == drawn(b"before\r\n", *(char.encode() for char in text))
    assert drawn(sent) == one_by_one


@pytest.mark.parametrize(
    "sent",
    [
        b"\x1b]0;" + b"t" * 100_000,  # a title without end
        b"\x1bP" + b"q" * 100_000,
        "\x9d".encode() + b"t" * 100_000,
        b"\x1b[" + b"1" * 100_000 + b"m",
        b"\x1b[" + b";" * 100_000 + b"m",
        b"\x1b7" * 50_000,
        b"e" + "\u0301".encode() * 50_000,
        b"\x1b[6n" * 20_000,
    ],
    ids=["title", "picture", "eight bits", "a number", "numbers", "saved cursors", "a pile of marks", "questions"],
)
def test_nothing_grows_with_what_is_sent(sent: bytes) -> None:
    screen = Screen(ROWS, COLUMNS, lambda answer: None)
    for piece in screen.slices(sent):
        screen.draw(piece)
    assert sum(map(sys.getsizeof, screen.show().lines)) < 5_000
    inside = vars(screen)
    assert len(inside["_held"]) < 100
    assert len(inside["_drawn"].savepoints) < 100


def test_a_program_that_asks_its_terminal_is_answered() -> None:
    answers: list[str] = []
    drawn(b"ab\x1b[6n", answers=answers)
    assert answers == ["\x1b[1;3R"]


def test_it_keeps_the_size_it_was_given() -> None:
    assert drawn(b"\x1b[?3h" + b"x" * 25).lines == ("x" * 20, "x" * 5)
    screen = Screen(ROWS, COLUMNS, lambda answer: None)
    screen.draw("x" * 20)
    screen.resize(3, 10)
    screen.draw("\r\ny")
    assert screen.show().lines == ("x" * 10, "y")
