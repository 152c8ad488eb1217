"""Writes the parts of a timeline for one reader: the same macros make the page and what the stream adds to it."""

from collections.abc import Sequence
from typing import Any

from gateway.console.rendering.templates import environment
from gateway.console.timeline.entries import Entry
from gateway.console.timeline.turn_view import TurnView
from gateway.console.visitors import Guest
from gateway.session_words import standing
from models.base import AnyRow


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
        return str(self._macros.state(session, standing(session, session.at)))
