"""What every story must have come to, wherever its processes were killed. A scenario's own ledger adds what its story
promises. The judgement needs no database: `tests/chaos/test_boundary_ledger.py` shows that it sees each kind of fault.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import models
from tests.support.boundaries.marks import OVER
from tests.support.fleet import Fleet

# By what Evidence calls them.
TABLES = {
    "agents": models.AgentGroup, "sessions": models.Session, "inbox": models.MessageIn, "outbox": models.MessageOut,
    "turns": models.Turn, "steps": models.Step, "events": models.Event, "transcript": models.TranscriptItem,
    "approvals": models.Approval, "usage": models.Usage, "days": models.BudgetDay, "reservations": models.Reservation,
    "workflows": models.Workflow, "stages": models.Stage,
}  # fmt: skip
_ORDER = ("session_id", "seq", "position", "number", "id")
# What is looked at, what was found, and what it must be.
Fact = tuple[str, Any, Any]
Rows = Sequence[Any]


@dataclass(frozen=True)
class Death:
    """Of a process: where, what it had passed, and what was to be seen then."""

    boundary: str
    trace: Sequence[str] = ()
    effects: Sequence[str] = ()
    steps: Rows = ()
    approvals: Rows = ()
    branches: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Evidence(ABC):
    """`last`: what the last process passed, which was not killed. `effects`: of tools that count them. `shown`: what
    the platform was sent, in order. `left`: what lies about that belongs to nobody."""

    channel: ClassVar[str]  # the platform's
    scheduled: ClassVar[Sequence[Any]] = ()  # contents of messages for a date that does not come

    deaths: Sequence[Death] = ()
    last: Sequence[str] = (OVER,)
    effects: Sequence[str] = ()
    shown: Sequence[Mapping[str, Any]] = ()
    left: Sequence[str] = ()
    agents: Rows = ()
    sessions: Rows = ()
    inbox: Rows = ()
    outbox: Rows = ()
    turns: Rows = ()
    steps: Rows = ()
    events: Rows = ()
    transcript: Rows = ()
    approvals: Rows = ()
    usage: Rows = ()
    days: Rows = ()
    reservations: Rows = ()
    workflows: Rows = ()
    stages: Rows = ()

    async def read_rows(self, fleet: Fleet) -> None:
        for name, table in TABLES.items():
            columns = table.__table__.c
            setattr(self, name, await fleet.rows(table, *(columns[order] for order in _ORDER if order in columns)))

    def complaints(self) -> list[str]:
        deaths = [death.boundary for death in self.deaths] or ["no kill"]
        where = " and ".join(deaths) if len(deaths) < 3 else f"{len(deaths)} deaths, from {deaths[0]} to {deaths[-1]}"
        facts = (*self._ended(), *self._numbers(), *self.facts())
        return [f"[{where}] {what}: {found}, not {wanted}" for what, found, wanted in facts if found != wanted]

    @abstractmethod
    def facts(self) -> Iterator[Fact]:
        """What this story promises."""

    def unknown(self) -> set[str]:
        """Tools of which the agent must be told that nobody knows whether they were run."""
        return set()

    def _ended(self) -> Iterator[Fact]:
        yield "the last process passed at last", list(self.last[-1:]), [OVER]
        for row in self.inbox:
            status = "pending" if row.content in self.scheduled else "completed"
            yield f"the message {row.content} ({row.error})", row.status, status
        for row in self.outbox:
            yield f"to {row.channel_type}: {row.content} ({row.error})", row.status, "delivered"
        for turn in self.turns:
            yield f"turn {turn.id} ({turn.error})", turn.status, "completed"
        for row in self.sessions:
            held = (row.lease_owner, row.lease_expires_at, row.resume_after)
            yield f"lease and rest of session {row.id}", held, (None, None, None)
        unknown = self.unknown()
        for step in self.steps:
            status = "failed" if step.name in unknown else "finished"
            yield f"step {step.number} ({step.name}: {step.output})", step.status, status
        # What changes a card shows no message of its own.
        sent = [row for row in self.outbox if row.channel_type == self.channel and "operation" not in row.content]
        keys = Counter(row.idempotency_key for row in sent)
        yield f"keys of what was shown, {self.texts_shown()}", Counter(one["key"] for one in self.shown), keys
        yield "left behind", list(self.left), []

    def _numbers(self) -> Iterator[Fact]:
        for session in self.sessions:
            numbers = [event.seq for event in self.events if event.session_id == session.id]
            yield "event numbers of a session", numbers, list(range(1, session.event_seq + 1))
            taken = Counter(row.seq for row in (*self.inbox, *self.outbox) if row.session_id == session.id)
            yield "message numbers given out twice", [number for number in taken if taken[number] > 1], []

    def texts_shown(self, place: str | None = None) -> list[str]:
        return [one["text"] for one in self.shown if place in (None, one["place"])]


def within(found: int, least: int, most: int) -> int | str:
    """What to expect of a number that may lie between two."""
    return found if least <= found <= most else f"{least} to {most}"
