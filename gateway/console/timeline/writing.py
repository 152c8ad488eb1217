"""Text that is being written, for one reader: from its beginning, or not at all. Half a sentence that begins in the
middle of a word says less than that something is being written."""

from typing import Any

from adapters.events import TextDelta


class Writing:
    def __init__(self) -> None:
        self._turn: str | None = None
        self._has: int | None = 0  # characters of the text; None: it lacks some, which was said

    def take(self, turn: str | None, piece: TextDelta) -> dict[str, Any] | None:
        """What the page is told: `begins`, that this is another text; `partly`, that it is not shown. None: nothing."""
        if turn != self._turn:
            self._turn, self._has = turn, 0
        offset = (self._has or 0) if piece.offset is None else piece.offset  # None: of a worker of an earlier release
        told: dict[str, Any] = {"from": turn, "begins": offset == 0, "partly": False, "text": piece.text}
        if offset == 0 or offset == self._has:
            self._has = offset + len(piece.text)
            return told
        if self._has is None:
            return None
        self._has = None
        return told | {"begins": True, "partly": True, "text": ""}
