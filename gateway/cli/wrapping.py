"""Text that comes in pieces, broken between words and not in them. What stands between ``` keeps its lines.

Scripts that write without spaces are broken between characters; no part of a text waits for a space to come."""

import re

from rich.cells import cell_len

# East Asian scripts and emoji: the characters that take two cells.
_WIDE = (
    "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\U0001f300-\U0003fffd"
)
_PIECES = rf"\n|[^\S\n]+|[{_WIDE}]|[^\s{_WIDE}]+"
_FENCE = "```"


class Wrapper:
    def __init__(self, width: int, column: int = 0) -> None:
        self._pieces = re.compile(_PIECES)  # here, since it takes a moment, and few commands wrap what they say
        self._width = width
        self._column = column
        self._space = ""
        self._word = ""  # may go on in the next piece
        self._in_long_word = False  # longer than a line: its end follows its beginning, wherever that is
        self._in_code = False

    def feed(self, text: str) -> str:
        """What can be shown now: all but the last word."""
        pieces = self._pieces.findall(self._word + text)
        self._word = pieces.pop() if pieces and not pieces[-1].isspace() else ""
        shown = "".join(map(self._place, pieces))
        if cell_len(self._word) >= self._width:
            shown += self.flush()
            self._in_long_word = True
        return shown

    def flush(self) -> str:
        word, self._word = self._word, ""
        return self._place(word) if word else ""

    def _place(self, piece: str) -> str:
        goes_on, self._in_long_word = self._in_long_word, False
        if piece == "\n":
            self._column, self._space = 0, ""
            return "\n"
        if piece.isspace():
            self._space += piece
            return ""
        if piece.startswith(_FENCE):
            self._in_code = not self._in_code
        space, self._space = self._space, ""
        size = cell_len(piece)
        if self._column and not goes_on and not self._in_code and self._column + cell_len(space) + size > self._width:
            self._column = size
            return f"\n{piece}"
        self._column += cell_len(space) + size
        return space + piece
