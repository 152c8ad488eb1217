"""A line being typed, key by key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gateway.cli.line_editor import End, Line, LineEditor

pytestmark = pytest.mark.spec("G4")

LEFT, RIGHT, UP, DOWN = "\x1b[D", "\x1b[C", "\x1b[A", "\x1b[B"


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("hello", "hello"),
        ("helo" + LEFT + "l", "hello"),
        ("hallo" + "\x1b[H" + RIGHT * 2 + "\x7f" + "e", "hello"),
        ("hello world\x17", "hello "),
        ("one two\x01\x0b", ""),
        ("one two" + LEFT * 3 + "\x15", "two"),
        ("ab\x1b[H\x1b[3~", "b"),
        ("ab\x01\x04", "b"),
        ("one two" + "\x1b[1;5D" + "x", "one xtwo"),
        ("\x7f\x7f", ""),
        (LEFT + RIGHT + "a", "a"),
        ("a\x1b[99~b", "ab"),
        ("a\x07b", "ab"),
        ("a\x1b\rb", "a\nb"),
        ("日本\x7f", "日"),
    ],
)
def test_keys_edit_the_line(keys: str, text: str) -> None:
    whole, in_pieces = LineEditor(), LineEditor()
    assert whole.feed(keys) == []
    assert [line for key in keys for line in in_pieces.feed(key)] == []
    assert (whole.text, in_pieces.text) == (text, text)


def test_enter_sends_and_control_d_ends() -> None:
    editor = LineEditor()
    assert editor.feed("one\rtwo\n\x04") == [Line("one"), Line("two"), End()]
    assert editor.text == ""


def test_a_paste_of_many_lines_is_one_message_even_in_pieces() -> None:
    pasted = "\x1b[200~one\r\ntwo\rthree\x1b[31m\n\x1b[201~"
    for size in (1, 2, 3, 7, 100):
        editor = LineEditor()
        pieces = [pasted[start : start + size] for start in range(0, len(pasted), size)]
        assert [line for piece in pieces for line in editor.feed(piece)] == []
        assert editor.feed("end\r") == [Line("one\ntwo\nthree�[31m\nend")]


def test_arrows_recall_and_come_back_to_what_was_being_typed() -> None:
    editor = LineEditor(["first", "second"])
    editor.feed("draft" + UP)
    assert editor.text == "second"
    editor.feed(UP + UP)
    assert editor.text == "first"
    editor.feed(DOWN + DOWN + DOWN)
    assert editor.text == "draft"
    assert editor.feed("\r\r") == [Line("draft"), Line("")]
    assert editor.history == ["first", "second", "draft"]


@given(st.text(max_size=60), st.integers(0, 60), st.integers(2, 30))
def test_the_view_fits_and_holds_the_cursor(text: str, cursor: int, cells: int) -> None:
    editor = LineEditor()
    editor.insert(text)
    editor.cursor = min(cursor, len(text))
    shown, column = editor.view(cells)
    assert cell_len(shown) <= cells
    assert 0 <= column < max(cells, 1)
    assert "\n" not in shown


@given(st.lists(st.text(max_size=8), max_size=10))
def test_whatever_comes_from_a_keyboard_is_survived(pieces: list[str]) -> None:
    editor = LineEditor(["before"])
    for piece in pieces:
        editor.feed(piece)
        assert 0 <= editor.cursor <= len(editor.text)
