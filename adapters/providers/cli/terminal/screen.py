"""What a program has drawn on its terminal, kept by pyte. What it sends is hostile: nothing in here grows with it.

pyte keeps what it is told for as long as the program likes (titles, saved cursors, marks piled upon a letter), and
breaks over what it does not know. What has no part in the picture is left out before it gets there."""

import codecs
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyte
from wcwidth import wcwidth

from adapters.events import ScreenChanged

SLICE: Final = 1024  # characters that are drawn in one go: some milliseconds
_SAVED: Final = 16
_PILE: Final = 4
_LONGEST: Final = 64  # characters of a command's numbers
# Titles, colours of a palette, pictures: texts that end with BEL, ST, or by being broken off.
_STRING: Final = re.compile(r"\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f]")
_STRING_END: Final = re.compile(r"\x07|\x9c|\x1b\\|[\x18\x1a]")
_TOO_LONG: Final = re.compile(rf"(?:\x1b\[|\x9b)[\x20-\x3f]{{{_LONGEST},}}")
_UNFINISHED: Final = re.compile(rf"(?:\x1b|(?:\x1b\[|\x9b)[\x20-\x3f]{{0,{_LONGEST}}})\Z")
_PLAIN: Final = re.compile(r"(?:[^\x00-\x08\x0a-\x1f\x7f-\x9f]|\r\n)*")
_COLUMNS_OF_132: Final = 3  # a mode in which the screen would choose its own size


class Screen:
    """`answer` is told what a terminal answers to a program that asks it something."""

    def __init__(self, rows: int, columns: int, answer: Callable[[str], None]) -> None:
        self._drawn = _Drawn(columns, rows, answer)
        self._stream = pyte.Stream(self._drawn, strict=False)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._in_string = False

    @property
    def pastes(self) -> bool:
        """Whether the program wants to be told what is pasted rather than typed."""
        return 2004 << 5 in self._drawn.mode

    def slices(self, data: bytes) -> Iterator[str]:
        """What is to be drawn of this, in pieces that take a moment each."""
        text = self._cleaned(self._held + self._decoder.decode(data))
        if self._drawn.margins is None and _PLAIN.fullmatch(text):
            text = _last_lines(text, self._drawn.lines)
        for start in range(0, len(text), SLICE):
            yield text[start : start + SLICE]

    def draw(self, text: str) -> None:
        try:
            self._stream.feed(text)
        except Exception:  # noqa: BLE001 - whatever it does not know; what was drawn stays
            self._stream = pyte.Stream(self._drawn, strict=False)

    def resize(self, rows: int, columns: int) -> None:
        self._drawn.resize(rows, columns)

    def show(self) -> ScreenChanged:
        cursor = self._drawn.cursor
        lines = [self._drawn.line(y).rstrip() for y in range(self._drawn.lines)]
        while lines and not lines[-1]:
            lines.pop()
        return ScreenChanged(lines=tuple(lines), row=cursor.y, column=min(cursor.x, self._drawn.columns - 1))

    def _cleaned(self, text: str) -> str:
        kept: list[str] = []
        self._held = ""
        while text:
            if self._in_string:
                end = _STRING_END.search(text)
                if end is None:
                    self._held = "\x1b" if text.endswith("\x1b") else ""
                    text = ""
                else:
                    text, self._in_string = text[end.end() :], False
            else:
                start = _STRING.search(text)
                kept.append(text[: start.start()] if start else text)
                text, self._in_string = (text[start.end() :], True) if start else ("", False)
        clean = _TOO_LONG.sub("", "".join(kept))
        if not self._in_string and (rest := _UNFINISHED.search(clean)):
            self._held, clean = rest[0], clean[: rest.start()]
        return clean


class _Drawn(pyte.Screen):
    def __init__(self, columns: int, lines: int, answer: Callable[[str], None]) -> None:
        self._answer = answer
        self._pile = 0
        super().__init__(columns, lines)

    def line(self, y: int) -> str:
        """Like `display`, which breaks when half of a wide character was drawn over."""
        shown, second_half = [], False
        for x in range(self.columns):
            data = self.buffer[y][x].data
            if data or not second_half:
                shown.append(data or " ")
            second_half = bool(data) and wcwidth(data[0]) == 2
        return "".join(shown)

    def draw(self, data: str) -> None:
        super().draw(data if data.isascii() else "".join(self._without_piles(data)))

    def _without_piles(self, data: str) -> Iterator[str]:
        for char in data:
            self._pile = self._pile + 1 if unicodedata.combining(char) else 0
            if self._pile <= _PILE:
                yield char

    def save_cursor(self) -> None:
        del self.savepoints[:-_SAVED]
        super().save_cursor()

    def set_mode(self, *modes: int, **how: Any) -> None:
        super().set_mode(*_without_size(modes, **how), **how)

    def reset_mode(self, *modes: int, **how: Any) -> None:
        super().reset_mode(*_without_size(modes, **how), **how)

    def write_process_input(self, data: str) -> None:
        self._answer(data)


def _without_size(modes: tuple[int, ...], *, private: bool = False) -> tuple[int, ...]:
    return tuple(mode for mode in modes if not (private and mode == _COLUMNS_OF_132))


def _last_lines(text: str, lines: int) -> str:
    """Without what would scroll away before anybody sees it."""
    at = len(text)
    for _ in range(lines + 1):
        at = text.rfind("\r\n", 0, at)
        if at < 0:
            return text
    return text[at:]
