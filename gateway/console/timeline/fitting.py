"""How much of some turns fits into one page: an agent may have said anything, and showing it takes time and room.

The latest is shown; what is left out is the beginning of a turn, which its page says, and whose link shows more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.console.timeline.entries import Asked, Entry, Note, Received, Said, Sent, Thought
from gateway.console.timeline.turn_view import TurnView

LONG: Final = 20_000  # characters of one entry, as the templates cut it
_FRAME: Final = 100  # what every entry has around its text


@dataclass(frozen=True)
class Measure:
    """`entries` of one turn, `characters` of all."""

    entries: int
    characters: int


PAGE: Final = Measure(150, 200_000)
ONE_TURN: Final = Measure(2000, 500_000)


def fit(turns: Sequence[TurnView], measure: Measure) -> None:
    """Says of each how many entries are left out; the last of each is shown at any rate."""
    room = measure.characters
    for turn in reversed(turns):
        shown = 0
        for entry in reversed(turn.entries[-measure.entries :]):
            room -= size_of(entry)
            if room < 0 and shown:
                break
            shown += 1
        turn.left_out = len(turn.entries) - shown


def size_of(entry: Entry) -> int:
    said: object = ""
    match entry:
        case Received(row=row) | Sent(row=row) if row is not None:
            said = row.content.get("text") or row.content.get("prompt")
        case Said() | Thought() | Sent() | Note() | Asked():
            said = entry.text
    return _FRAME + (min(len(said), LONG) if isinstance(said, str) else LONG)
