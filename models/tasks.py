"""Rows of scheduled work among messages_in, one for each run of a task: what its next row is, and how they are changed
and ended. Finding the row where a task stands is `models.task_lookup`."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, new_id, now
from models.groups import AgentGroup
from models.inbox import MessageIn
from models.series import Series
from models.sessions import Session, take_numbers
from models.turns import Turn
from models.upsert import insert_ignoring

WAITING: Final = ("pending", "paused")
FINISHED: Final = ("completed", "failed", "discarded")


def waits(row: AnyRow) -> bool:
    """For its date, or to be resumed. One that has a turn has begun, and waits only to go on."""
    return row.status in WAITING and row.turn_id is None


def series_of(row: AnyRow) -> str:
    """By what a task or a reminder is known, whichever row of it this is."""
    return str(row.series_id or row.id)


def of_series(series_id: str) -> ColumnElement[bool]:
    """All rows of a task, also of one that comes once and names no series."""
    return or_(MessageIn.series_id == series_id, and_(MessageIn.id == series_id, MessageIn.series_id.is_(None)))


async def is_series(conn: AsyncConnection, row_id: str) -> bool:
    """Whether the id of a row is that of a task which other rows are of, or which has terms."""
    runs = select(MessageIn.id).where(MessageIn.series_id == row_id, MessageIn.id != row_id)
    terms = select(Series.id).where(Series.id == row_id)
    return bool((await conn.execute(select(or_(runs.exists(), terms.exists())))).scalar_one())


async def end_series(conn: AsyncConnection, series_id: str) -> None:
    """What waits is discarded, extra runs too; what runs or has run is not followed."""
    waiting = and_(MessageIn.status.in_(WAITING), MessageIn.turn_id.is_(None))
    over = {"status": "discarded", "status_changed_at": now(), "recurred": True}
    of_it = (MessageIn.kind == "task", of_series(series_id))
    await conn.execute(update(MessageIn).where(*of_it, waiting).values(**over))
    await conn.execute(update(MessageIn).where(*of_it, ~MessageIn.recurred).values(recurred=True))


async def count_waiting(conn: AsyncConnection, session_id: str) -> int:
    query = select(func.count()).where(
        MessageIn.session_id == session_id, MessageIn.kind == "task", MessageIn.status.in_(WAITING)
    )
    return int((await conn.execute(query)).scalar_one())


async def is_taken(conn: AsyncConnection, series_id: str, date: datetime, except_id: str) -> bool:
    """Whether a series has had another run at that very moment: it has one at a time."""
    query = select(MessageIn.id).where(
        MessageIn.series_id == series_id, MessageIn.process_after == date, MessageIn.id != except_id
    )
    return bool((await conn.execute(select(query.exists()))).scalar_one())


async def goes_on(conn: AsyncConnection, series_id: str) -> bool:
    """Whether a row of it will be followed."""
    query = select(MessageIn.id).where(of_series(series_id), MessageIn.recurrence.is_not(None), ~MessageIn.recurred)
    return bool((await conn.execute(select(query.exists()))).scalar_one())


async def change_task(conn: AsyncConnection, task_id: str, **changes: Any) -> None:
    if "status" in changes:
        changes |= {"status_changed_at": now()}
    await conn.execute(update(MessageIn).where(MessageIn.id == task_id).values(**changes))


def next_of(row: AnyRow, session_id: str, due: datetime, **changes: Any) -> dict[str, Any]:
    """The next row of a series, in that session; all that belongs to its runs goes along. Its number is yet to come."""
    return {
        "id": new_id(),
        "session_id": session_id,
        "agent_group_id": row.agent_group_id,
        "kind": row.kind,
        "status": "pending",
        "wakes": row.wakes,
        "follow_up": row.follow_up,
        "process_after": due,
        "scheduled_for": due,
        "recurrence": row.recurrence,
        "timezone": row.timezone,
        "series_id": series_of(row),
        "channel_type": row.channel_type,
        "platform_id": row.platform_id,
        "thread_id": row.thread_id,
        "sender_id": row.sender_id,
        "content": row.content,
        "error": None,
    } | changes


async def write_next(conn: AsyncConnection, row: AnyRow, session_id: str, due: datetime, **changes: Any) -> bool:
    """Write the next row of a series now, in that session, and mark this one as followed: the sweep leaves it alone.
    False: there is one of that date."""
    following = next_of(row, session_id, due, seq=await take_numbers(conn, session_id, 1), **changes)
    await change_task(conn, row.id, recurred=True)
    return await insert_ignoring(conn, MessageIn, **following)


async def has_extra_run(conn: AsyncConnection, series_id: str) -> bool:
    """Whether a run that somebody asked for waits to begin."""
    query = select(MessageIn.id).where(
        MessageIn.series_id == series_id,
        MessageIn.status == "pending",
        MessageIn.turn_id.is_(None),
        MessageIn.recurrence.is_(None),
        MessageIn.recurred,
    )
    return bool((await conn.execute(select(query.exists()))).scalar_one())


async def add_extra_run(conn: AsyncConnection, row: AnyRow, session_id: str) -> bool:
    """One run more, now, of the task that `row` is of. False: there is one of this very moment."""
    besides = {"wakes": True, "scheduled_for": None, "recurrence": None, "recurred": True}
    seq = await take_numbers(conn, session_id, 1)
    extra = next_of(row, session_id, await database_now(conn), seq=seq, **besides)
    return await insert_ignoring(conn, MessageIn, **extra)


# As RECURRING, where other tables have a status too.
_UNFOLLOWED: Final = text(
    "messages_in.recurrence IS NOT NULL AND NOT messages_in.recurred"
    " AND messages_in.status IN ('completed', 'failed', 'discarded')"
)


async def lock_unfollowed(conn: AsyncConnection, batch: int) -> list[AnyRow]:
    """Some finished rows of recurring work whose next row is not written yet (`id`, `session_id`, and the `state` of
    the session). Their sessions are locked until the commit; those that somebody else has locked are left to them."""
    query = (
        select(MessageIn.id, MessageIn.session_id, Session.status.label("state"))
        .join(Session, Session.id == MessageIn.session_id)
        .where(_UNFOLLOWED)
        .order_by(MessageIn.id)
        .limit(batch)
        .with_for_update(of=Session, skip_locked=True)
    )
    return list((await conn.execute(query)).all())


async def unfollowed(conn: AsyncConnection, which: ColumnElement[bool]) -> list[AnyRow]:
    """Those of the named rows that are finished and not followed yet, as they are now, for whoever holds the rows of
    their sessions; with the agent (`folder`, `group_id`) and when their turn began (`began`; None: they had none)."""
    query = (
        select(MessageIn.__table__, Turn.started_at.label("began"), AgentGroup.id.label("group_id"), AgentGroup.folder)
        .join(Session, Session.id == MessageIn.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .outerjoin(Turn, Turn.id == MessageIn.turn_id)
        .where(which, _UNFOLLOWED)
        .order_by(MessageIn.session_id, MessageIn.seq)
        .with_for_update(of=MessageIn)
    )
    return list((await conn.execute(query)).all())


async def mark_followed(conn: AsyncConnection, ids: list[str]) -> None:
    await conn.execute(update(MessageIn).where(MessageIn.id.in_(ids)).values(recurred=True))


async def with_live_end(conn: AsyncConnection, series_ids: list[str]) -> set[str]:
    """Those of the series that have a row which waits, is paused or runs, and will be followed."""
    query = select(MessageIn.series_id).where(
        MessageIn.series_id.in_(series_ids),
        MessageIn.status.in_([*WAITING, "processing"]),
        MessageIn.recurrence.is_not(None),
        ~MessageIn.recurred,
    )
    return {str(series_id) for series_id in (await conn.execute(query)).scalars()}


async def database_now(conn: AsyncConnection) -> datetime:
    """Dates are compared with the clock they will be compared with when they come."""
    return (await conn.execute(select(now()))).scalar_one()
