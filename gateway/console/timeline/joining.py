"""Adding to a timeline what events do not say: the texts of messages and how their delivery stands, what tools
answered, and what became of approvals and questions. Rows may be joined again whenever they have changed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from adapters.events import Envelope
from gateway.console.timeline.entries import Asked, Attempt, Call, Entry, Received, Said, Sent, Thought
from gateway.console.timeline.turn_view import TurnView
from models.base import AnyRow
from models.timeline import Rows

# What one transaction writes has times that are a little apart.
_AT_ONCE: Final = timedelta(seconds=0.1)


def turns_of(rows: Rows, events: Sequence[Envelope]) -> list[TurnView]:
    """The turns of some rows, in their order, with everything that belongs to them."""
    turns = {turn.id: TurnView(turn.id) for turn in rows.turns}
    for item in events:
        if item.turn in turns:
            turns[item.turn].feed(item)
    views = list(turns.values())
    for row, view, after in zip(rows.turns, views, [*rows.turns[1:], None], strict=True):
        until = after.started_at if after is not None else None
        join(view, replace(rows, sent=[one for one in rows.sent if _is_of(one, row, until)]))
    return views


def _is_of(sent: AnyRow, turn: AnyRow, until: datetime | None) -> bool:
    """Whether a message was sent by a turn, or by the fleet after it began and before the next did."""
    if sent.turn_id is not None:
        return bool(sent.turn_id == turn.id)
    return bool(sent.created_at >= turn.started_at and (until is None or sent.created_at < until))


def join(view: TurnView, rows: Rows) -> list[Entry]:
    """What is new or has changed by it. What the fleet said in no turn's name is taken as said of this one."""
    for row in rows.turns:
        if row.id == view.id and not view.number:  # its events are gone: long ago, by retention
            view.number, view.provider, view.model = row.number, row.provider, row.model
            view.status, view.error, view.error_class = row.status, row.error, row.error_class
            view.began, view.ended = row.started_at, row.ended_at
    changed = _received(view, rows.received)
    changed += _steps(view, [step for step in rows.steps if step.turn_id == view.id])
    changed += _not_void(view)
    changed += _sent(view, rows.sent)
    asked = {row.id: row for row in [*rows.approvals, *rows.questions]}
    for entry in view.entries:
        if isinstance(entry, Asked) and entry.subject in asked and entry.row != asked[entry.subject]:
            entry.row = asked[entry.subject]
            changed.append(entry)
    return changed


def _received(view: TurnView, rows: Sequence[AnyRow]) -> list[Entry]:
    changed: list[Entry] = []
    for row in rows:
        entry = view.by_key.get(f"in{row.seq}")
        if entry is None and row.turn_id == view.id:
            entry = view.put(Received(f"in{row.seq}", row.created_at, row.seq), _later_than(view, row.created_at))
        if isinstance(entry, Received) and entry.row != row:
            entry.row = row
            changed.append(entry)
    return changed


def _steps(view: TurnView, steps: Sequence[AnyRow]) -> list[Entry]:
    changed: list[Entry] = []
    for entry in view.entries:
        if isinstance(entry, Call):
            # A key may begin with the attempt: of several, the latest is the one that counts.
            of_call = [step for step in steps if step.key.endswith(f"{entry.call}:{entry.name}")]
            if of_call and entry.step != of_call[-1]:
                entry.step = of_call[-1]
                changed.append(entry)
    return changed


def _not_void(view: TurnView) -> list[Entry]:
    """What a lost attempt had said before a call that is on record: the next goes on behind that call, and does not say
    it again. (A program, which begins anew, calls under ids that no step has.)"""
    changed: list[Entry] = []
    said: list[Said | Thought] = []
    for entry in view.entries:
        match entry:
            case Attempt():
                said = []
            case Said() | Thought() if entry.void:
                said.append(entry)
            case Call(step=step) if step is not None and step.key == f"{entry.call}:{entry.name}":
                for one in said:
                    one.void = False
                changed += said
                said = []
    return changed


def _sent(view: TurnView, rows: Sequence[AnyRow]) -> list[Entry]:
    """Answers stand where their events are, and are not shown before; what a tool sent, after its call; all else, by
    its time."""
    changed: list[Entry] = []
    known = {entry.row.id: entry for entry in view.entries if isinstance(entry, Sent) and entry.row is not None}
    answers = [entry for entry in view.entries if isinstance(entry, Sent) and entry.row is None]
    for row in rows:
        entry = known.get(row.id)
        if entry is None and view.fed and _is_answer(row):
            if not answers:
                continue  # its event is still to come
            entry = answers.pop(0)
        if entry is None and "question" not in row.content and "operation" not in row.content:
            # A question is shown as what is asked, and a change to it by how that stands.
            entry = Sent(f"out{row.seq}", row.created_at)
            view.put(entry, _place_of(view, row))
        if entry is not None and entry.row != row:
            entry.row = row
            changed.append(entry)
    return changed


def _is_answer(row: AnyRow) -> bool:
    """Its key tells: `turn:number` or `turn:attempt:number`; what a tool sends has its step in it."""
    _, *parts = row.idempotency_key.split(":")
    return row.turn_id is not None and all(part.isdigit() for part in parts)


def _place_of(view: TurnView, row: AnyRow) -> Entry | None:
    """Before which entry a message belongs; None: at the end."""
    for place, entry in enumerate(view.entries):
        if isinstance(entry, Call) and entry.step is not None and entry.step.id == row.id:
            return view.entries[place + 1] if place + 1 < len(view.entries) else None
    return _later_than(view, row.created_at)


def _later_than(view: TurnView, at: datetime) -> Entry | None:
    return next((entry for entry in view.entries if entry.at > at + _AT_ONCE), None)
