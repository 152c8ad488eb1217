"""What a session's timeline is made of: the rows of some of its turns, read in a few statements however many there are.

Nothing here is on a message's path."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.consent import Approval, PendingQuestion
from models.conversation import Event
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.turns import Step, Turn

# Of one look: a turn may have any number of these, and nobody reads them all.
EVENTS: Final = 2000
ROWS: Final = 1000
PREVIEW: Final = 300


@dataclass(frozen=True)
class Rows:
    """What belongs to some turns, besides their events."""

    turns: list[AnyRow] = field(default_factory=list)
    received: list[AnyRow] = field(default_factory=list)
    sent: list[AnyRow] = field(default_factory=list)
    steps: list[AnyRow] = field(default_factory=list)
    approvals: list[AnyRow] = field(default_factory=list)
    questions: list[AnyRow] = field(default_factory=list)


async def latest_turns(conn: AsyncConnection, session_id: str, limit: int, before: int | None = None) -> list[AnyRow]:
    """The last ones (before a turn's number), in their order."""
    query = select(Turn.__table__).where(Turn.session_id == session_id)
    if before is not None:
        query = query.where(Turn.number < before)
    found = (await conn.execute(query.order_by(Turn.number.desc()).limit(limit))).all()
    return list(reversed(found))


async def find_turns(conn: AsyncConnection, turn_ids: Collection[str]) -> list[AnyRow]:
    return await _all(conn, select(Turn.__table__).where(Turn.id.in_(turn_ids)).order_by(Turn.number))


async def find_turn_numbered(conn: AsyncConnection, session_id: str, number: int) -> AnyRow | None:
    query = select(Turn.__table__).where(Turn.session_id == session_id, Turn.number == number)
    return (await conn.execute(query)).one_or_none()


async def turn_of_event(conn: AsyncConnection, session_id: str, seq: int) -> str | None:
    """In which turn a reader of the events was, who has seen them up to a number."""
    query = select(Event.turn_id).where(Event.session_id == session_id, Event.seq <= seq, Event.turn_id.is_not(None))
    return (await conn.execute(query.order_by(Event.seq.desc()).limit(1))).scalar_one_or_none()


async def events_of_turns(
    conn: AsyncConnection, session_id: str, turn_ids: Collection[str], through: int | None = None
) -> list[AnyRow]:
    """`through`: up to this number only. Of very many the last: what is left out is the beginning of a long turn."""
    query = select(Event.__table__).where(Event.session_id == session_id, Event.turn_id.in_(turn_ids))
    if through is not None:
        query = query.where(Event.seq <= through)
    return list(reversed((await conn.execute(query.order_by(Event.seq.desc()).limit(EVENTS))).all()))


async def rows_of_turns(
    conn: AsyncConnection,
    session_id: str,
    turns: list[AnyRow],
    numbers: Collection[int] = (),
    until: datetime | None = None,
) -> Rows:
    """`numbers`: of messages that belonged to these turns once. `until`: when the next turn began, if there is one."""
    if not turns:
        return Rows()
    ids = [turn.id for turn in turns]
    received = await _received(conn, session_id, ids, numbers)
    first = min((row.seq for row in received), default=0)
    return Rows(
        turns=turns,
        received=received,
        sent=await _sent(conn, session_id, ids, first, until),
        steps=await steps_shown(conn, ids),
        approvals=await _all(conn, select(Approval.__table__).where(Approval.turn_id.in_(ids))),
        questions=await _all(conn, select(PendingQuestion.__table__).where(PendingQuestion.turn_id.in_(ids))),
    )


async def _received(
    conn: AsyncConnection, session_id: str, turn_ids: Collection[str], numbers: Collection[int]
) -> list[AnyRow]:
    """What some turns were asked: theirs now, or theirs when they began. Two statements, each along an index."""
    inbox = select(MessageIn.__table__).where(MessageIn.session_id == session_id)
    found = await _all(conn, inbox.where(MessageIn.turn_id.in_(turn_ids)))
    found += await _all(conn, inbox.where(MessageIn.seq.in_(numbers)))
    return sorted({row.id: row for row in found}.values(), key=lambda row: int(row.seq))


async def _sent(
    conn: AsyncConnection, session_id: str, turn_ids: Collection[str], after: int, until: datetime | None
) -> list[AnyRow]:
    """What some turns sent, and what the fleet said in between, in no turn's name; all later than number `after`."""
    meanwhile: ColumnElement[bool] = MessageOut.turn_id.is_(None)
    if until is not None:
        meanwhile &= MessageOut.created_at < until
    query = select(MessageOut.__table__).where(
        MessageOut.session_id == session_id, MessageOut.seq > after, or_(MessageOut.turn_id.in_(turn_ids), meanwhile)
    )
    return await _all(conn, query.order_by(MessageOut.seq))


async def waiting_messages(conn: AsyncConnection, session_id: str) -> list[AnyRow]:
    """What no turn has taken yet; without what is scheduled for later."""
    query = select(MessageIn.__table__).where(
        MessageIn.session_id == session_id,
        MessageIn.status == "pending",
        MessageIn.turn_id.is_(None),
        MessageIn.process_after <= now(),
    )
    return await _all(conn, query.order_by(MessageIn.seq))


def _steps() -> Select[Any]:
    """Tool calls, with only the beginning of what came of each (`said`)."""
    return select(
        Step.id,
        Step.turn_id,
        Step.key,
        Step.name,
        Step.status,
        Step.started_at,
        Step.ended_at,
        func.substr(Step.output["text"].as_string(), 1, PREVIEW).label("said"),
    ).where(Step.kind == "tool")


async def steps_shown(conn: AsyncConnection, turn_ids: Collection[str]) -> list[AnyRow]:
    return await _all(conn, _steps().where(Step.turn_id.in_(turn_ids)).order_by(Step.turn_id, Step.number))


async def rows_of_call(conn: AsyncConnection, turn_id: str, call: str, name: str) -> Rows:
    """What one call of a turn came to, and what it sent."""
    ending = Step.key.endswith(f"{call}:{name}", autoescape=True)
    steps = await _all(conn, _steps().where(Step.turn_id == turn_id, ending).order_by(Step.number))
    sent = select(MessageOut.__table__).where(MessageOut.id.in_([step.id for step in steps]))
    return Rows(steps=steps, sent=await _all(conn, sent) if steps else [])


async def find_call(conn: AsyncConnection, session_id: str, step_id: str) -> AnyRow | None:
    """One call, whole."""
    query = select(Step.__table__, Turn.number.label("turn_number")).join(Turn, Turn.id == Step.turn_id)
    query = query.where(Step.id == step_id, Turn.session_id == session_id)
    return (await conn.execute(query)).one_or_none()


async def find_message_numbered(conn: AsyncConnection, session_id: str, number: int) -> AnyRow | None:
    """In either direction: they share one series of numbers."""
    for table in (MessageIn, MessageOut):
        query = select(table.__table__).where(table.session_id == session_id, table.seq == number)
        if (found := (await conn.execute(query)).one_or_none()) is not None:
            return found
    return None


async def _all(conn: AsyncConnection, query: Select[Any]) -> list[AnyRow]:
    return list((await conn.execute(query.limit(ROWS))).all())
