"""A line of text being typed: keys in, finished lines out, and what of it fits on a terminal's row.

Knows nothing of the terminal itself, so it can be tested key by key. A pasted text stays one line here, however many
it has: nothing is sent before Enter is pressed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import get_character_cell_size

from gateway.cli.desk import visible

HISTORY_LIMIT = 500
NEWLINE_MARK = "⏎"
_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[@-~]|[^\[O])")
_KEYS = {
    "\x01": "home", "\x05": "end", "\x02": "left", "\x06": "right", "\x10": "up", "\x0e": "down",
    "\x7f": "backspace", "\x08": "backspace", "\x15": "cut_left", "\x0b": "cut_right", "\x17": "cut_word",
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1b[H": "home", "\x1b[F": "end",
    "\x1bOA": "up", "\x1bOB": "down", "\x1bOC": "right", "\x1bOD": "left", "\x1bOH": "home", "\x1bOF": "end",
    "\x1b[1~": "home", "\x1b[7~": "home", "\x1b[4~": "end", "\x1b[8~": "end", "\x1b[3~": "delete",
    "\x1b[1;5C": "word_right", "\x1b[1;5D": "word_left", "\x1bf": "word_right", "\x1bb": "word_left",
    "\x1b\x7f": "cut_word", "\x1b\r": "newline", "\x1b\n": "newline",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """Enter was pressed."""

    text: str


@dataclass(frozen=True)
class End:
    """Ctrl-D on an empty line."""


class LineEditor:
    def __init__(self, history: Sequence[str] = ()) -> None:
        self.text = ""
        self.cursor = 0
        self.history = list(history)[-HISTORY_LIMIT:]
        self._place = len(self.history)  # where in the history the arrows are
        self._draft = ""
        self._waiting = ""  # the beginning of a sequence whose rest has not come yet
        self._pasting = False

    def feed(self, typed: str) -> list[Line | End]:
        """Take what came from the keyboard, in pieces of any length."""
        done: list[Line | End] = []
        data, self._waiting = self._waiting + typed, ""
        while data:
            if self._pasting:
                data = self._paste(data)
                continue
            if data[0] == "\x1b":
                found = _SEQUENCE.match(data)
                if found is None:
                    self._waiting = data
                    break
                key, data = found.group(), data[found.end() :]
                if key == _PASTE_BEGINS:
                    self._pasting = True
                else:
                    self._press(key)
                continue
            key, data = data[0], data[1:]
            if key in "\r\n":
                done.append(Line(self._finish()))
            elif key == "\x04":
                if self.text:
                    self.delete()
                else:
                    done.append(End())
            else:
                self._press(key)
        return done

    def clear(self) -> None:
        self.text, self.cursor, self._place, self._draft = "", 0, len(self.history), ""

    def view(self, cells: int) -> tuple[str, int]:
        """The part of the text around the cursor that fits into so many cells, and the cursor's place in it."""
        text = visible(self.text.replace("\n", NEWLINE_MARK).replace("\t", " "))
        start, before = self.cursor, 0
        while start > 0 and before + (size := get_character_cell_size(text[start - 1])) < cells:
            before, start = before + size, start - 1
        stop, used = self.cursor, before
        while stop < len(text) and used + (size := get_character_cell_size(text[stop])) <= cells:
            used, stop = used + size, stop + 1
        return text[start:stop], before

    def insert(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def delete(self) -> None:
        self._cut(self.cursor, self.cursor + 1)

    def _press(self, key: str) -> None:
        match _KEYS.get(key):
            case None if key == "\t" or key >= " ":
                # A sequence nobody knows is longer than one character; it is no text.
                self.insert(key if len(key) == 1 else "")
            case "left":
                self.cursor = max(self.cursor - 1, 0)
            case "right":
                self.cursor = min(self.cursor + 1, len(self.text))
            case "home":
                self.cursor = 0
            case "end":
                self.cursor = len(self.text)
            case "word_left":
                self.cursor = self._word_start()
            case "word_right":
                found = re.compile(r"\s*\S+").match(self.text, self.cursor)
                self.cursor = found.end() if found else len(self.text)
            case "backspace":
                self._cut(self.cursor - 1, self.cursor)
            case "delete":
                self.delete()
            case "cut_left":
                self._cut(0, self.cursor)
            case "cut_right":
                self._cut(self.cursor, len(self.text))
            case "cut_word":
                self._cut(self._word_start(), self.cursor)
            case "newline":
                self.insert("\n")
            case "up":
                self._recall(self._place - 1)
            case "down":
                self._recall(self._place + 1)

    def _paste(self, data: str) -> str:
        """Take pasted text up to its end; returns what is left of the data."""
        pasted, end, rest = data.partition(_PASTE_ENDS)
        if end:
            self._pasting = False
        else:
            # The mark of the end may be cut in two, and so may the end of a line.
            keep = next((n for n in range(len(_PASTE_ENDS) - 1, 0, -1) if data.endswith(_PASTE_ENDS[:n])), 0)
            keep = keep or int(data.endswith("\r"))
            pasted, self._waiting = data[: len(data) - keep], data[len(data) - keep :]
        self.insert(visible(pasted.replace("\r\n", "\n").replace("\r", "\n")))
        return rest

    def _finish(self) -> str:
        text = self.text
        if text.strip() and text != (self.history[-1] if self.history else None):
            self.history = [*self.history, text][-HISTORY_LIMIT:]
        self.clear()
        return text

    def _recall(self, place: int) -> None:
        if not 0 <= place <= len(self.history) or place == self._place:
            return
        if self._place == len(self.history):
            self._draft = self.text
        self._place = place
        self.text = self._draft if place == len(self.history) else self.history[place]
        self.cursor = len(self.text)

    def _word_start(self) -> int:
        before = self.text[: self.cursor].rstrip()
        return max(before.rfind(" "), before.rfind("\n")) + 1

    def _cut(self, start: int, stop: int) -> None:
        start = max(start, 0)
        self.text = self.text[:start] + self.text[stop:]
        self.cursor = min(start, len(self.text))
