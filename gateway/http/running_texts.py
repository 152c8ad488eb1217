"""What agents are just writing, in memory: pieces of text are kept nowhere, and whoever begins to read in the middle of
one is given what there was of it.

Best effort, and bounded. What was not heard from its beginning, or is very long, is not here; a text that is whole, or
void, is not here any more, but in the table."""

from typing import Final

from adapters.events import Envelope, Message, Result, TextDelta, TurnEnded, TurnStarted

TEXTS: Final = 1000
CHARACTERS: Final = 100_000  # of one text
_ENDS: Final = (Message, Result, TurnStarted, TurnEnded)


class RunningTexts:
    def __init__(self) -> None:
        # By session: the last piece's envelope, and all the text so far.
        self._running: dict[str, tuple[Envelope, str]] = {}

    def hear(self, item: Envelope) -> None:
        if isinstance(item.event, TextDelta):
            self._go_on(item, item.event)
        elif isinstance(item.event, _ENDS):
            self._running.pop(item.session, None)

    def _go_on(self, item: Envelope, piece: TextDelta) -> None:
        last, text = self._running.pop(item.session, (item, ""))
        if last.turn != item.turn or not piece.offset:
            text = ""
        whole = text + piece.text
        if piece.offset == len(text) and len(whole) <= CHARACTERS:
            self._running[item.session] = (item, whole)
            if len(self._running) > TEXTS:
                del self._running[next(iter(self._running))]  # the one that has been silent for longest

    def so_far(self, session_id: str) -> Envelope | None:
        """As one piece."""
        if session_id not in self._running:
            return None
        last, text = self._running[session_id]
        return last.model_copy(update={"event": TextDelta(text=text, offset=0)})

    def clear(self) -> None:
        self._running.clear()
