"""Streamed text is broken between words, wherever the pieces are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gateway.cli.wrapping import Wrapper

pytestmark = pytest.mark.spec("G4")


def wrapped(pieces: list[str], width: int = 10, column: int = 0) -> str:
    wrapper = Wrapper(width, column)
    return "".join(map(wrapper.feed, pieces)) + wrapper.flush()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three four", ["one two", "three four"]),
        ("a-word-that-is-longer than it", ["a-word-that-is-longer", "than it"]),
        ("  indented text", ["  indented", "text"]),
        ("one\n\ntwo", ["one", "", "two"]),
        ("```\nlong code stays\n```\nprose is broken", ["```", "long code stays", "```", "prose is", "broken"]),
    ],
)
def test_lines(text: str, lines: list[str]) -> None:
    assert wrapped([text]).split("\n") == lines
    assert wrapped(list(text)) == wrapped([text])


def test_what_stands_on_the_line_already_counts() -> None:
    assert wrapped(["one two x"], column=2) == "one two\nx"


@given(st.lists(st.text("ab 日\n", max_size=12), max_size=12))
def test_no_word_is_lost_and_no_line_too_long(pieces: list[str]) -> None:
    shown = wrapped(pieces)
    assert "".join(shown.split()) == "".join("".join(pieces).split())
    assert all(cell_len(line) <= 10 or " " not in line.strip() for line in shown.split("\n"))


def test_a_text_without_spaces_does_not_wait_for_one() -> None:
    wrapper = Wrapper(10)
    assert wrapper.feed("潮が満ちる。") == "潮が満ちる"
    assert wrapper.feed("潮が引く") == "\n。潮が引"
    address = Wrapper(10)
    assert address.feed("see https://harbour.example/") == "see\nhttps://harbour.example/"
    assert address.feed("tides now ") + address.flush() == "tides\nnow"
