"""Text that comes in pieces, broken between words and not in them. What stands between ``` keeps its lines."""

import re

from rich.cells import cell_len

_PIECES = re.compile(r"\n|[^\S\n]+|\S+")
_FENCE = "```"


class Wrapper:
    def __init__(self, width: int, column: int = 0) -> None:
        self._width = width
        self._column = column
        self._space = ""
        self._word = ""  # may go on in the next piece
        self._in_code = False

    def feed(self, text: str) -> str:
        """What can be shown now: all but the last word."""
        pieces = _PIECES.findall(self._word + text)
        self._word = pieces.pop() if pieces and not pieces[-1].isspace() else ""
        return "".join(map(self._place, pieces))

    def flush(self) -> str:
        word, self._word = self._word, ""
        return self._place(word) if word else ""

    def _place(self, piece: str) -> str:
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
        if self._column and not self._in_code and self._column + cell_len(space) + size > self._width:
            self._column = size
            return f"\n{piece}"
        self._column += cell_len(space) + size
        return space + piece
