"""Writes the parts of a timeline for one reader: the same macros make the page and what the stream adds to it."""

from collections.abc import Sequence
from typing import Any

from gateway.console.rendering.templates import environment
from gateway.console.timeline.entries import Entry
from gateway.console.timeline.turn_view import TurnView
from gateway.console.visitors import Guest
from models.base import AnyRow
from models.browsing import state_of


class Pen:
    def __init__(self, guest: Guest, session: AnyRow) -> None:
        self.session = session
        template = environment().get_template("timeline.html")
        self._macros: Any = template.make_module({"guest": guest, "session": session})

    def turn(self, turn: TurnView, *, whole: bool = False) -> str:
        return str(self._macros.turn(turn, whole))

    def head(self, turn: TurnView) -> str:
        return str(self._macros.head(turn))

    def entry(self, entry: Entry, turn: TurnView) -> str:
        return str(self._macros.entry(entry, turn))

    def waiting(self, rows: Sequence[AnyRow]) -> str:
        return str(self._macros.waiting(rows))

    def state(self, session: AnyRow) -> str:
        return str(self._macros.state(session, *state_in_words(session)))


def state_in_words(session: AnyRow) -> tuple[str, str, str, Any]:
    """A word, its colour, what it is at, and since when (or until when, if that is ahead)."""
    match state_of(session):
        case "working":
            return "at work", "busy", session.activity or "", session.activity_since
        case "worker lost":
            return "worker lost", "bad", "another goes on when its time has run out", session.lease_expires_at
        case "resting":
            return "resting", "warn", session.activity or "", session.resume_after
        case "waiting":
            return "waiting", "warn", "for a worker", session.woken_at
        case "closed":
            return "closed", "quiet", "", session.activity_since
        case _:
            return "idle", "quiet", "", session.last_active
