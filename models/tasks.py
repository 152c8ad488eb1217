"""Scheduled work among messages_in, as agents see and change it: the live end of each series.

A series is a chain of rows. Its live end is the row that waits for its date (or is paused); while the last one runs, or
has run and the sweep has not yet written the next, it is that one."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, new_id, now
from models.inbox import RECURRING, MessageIn
from models.sessions import take_numbers
from models.upsert import insert_ignoring

WAITING: Final = ("pending", "paused")


def _ends(session_id: str, turn_id: str) -> ColumnElement[bool]:
    running = and_(MessageIn.status == "processing", MessageIn.turn_id == turn_id)
    state = or_(MessageIn.status.in_(WAITING), running, RECURRING)
    return and_(MessageIn.session_id == session_id, MessageIn.kind == "task", state)


async def tasks_of(conn: AsyncConnection, session_id: str, turn_id: str) -> list[AnyRow]:
    """The tasks of a session, each series once, the next first. `turn_id`: the turn that asks; what it runs counts."""
    query = select(MessageIn.__table__).where(_ends(session_id, turn_id)).order_by(MessageIn.process_after)
    return list(_live_ends((await conn.execute(query)).all()).values())


async def find_tasks(conn: AsyncConnection, session_id: str, turn_id: str, handle: str) -> list[AnyRow]:
    """Those a handle may mean: the id of any row of a series, or the end of one. Whole ids win over ends."""
    ends = _ends(session_id, turn_id)
    whole = or_(MessageIn.id == handle, MessageIn.series_id == handle)
    part = or_(MessageIn.id.endswith(handle, autoescape=True), MessageIn.series_id.endswith(handle, autoescape=True))
    for named in (whole, part):
        found = (await conn.execute(select(MessageIn.__table__).where(ends, named))).all()
        if found:
            return list(_live_ends(found).values())
    return []


def _live_ends(rows: Sequence[AnyRow]) -> dict[str, AnyRow]:
    """One row per series: a waiting one, else one that will be followed, else the one that runs."""
    chosen: dict[str, AnyRow] = {}
    for row in sorted(rows, key=lambda row: (row.status not in WAITING, row.recurred)):
        chosen.setdefault(row.series_id or row.id, row)
    return dict(sorted(chosen.items(), key=lambda item: item[1].process_after))


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


async def change_task(conn: AsyncConnection, task_id: str, **changes: Any) -> None:
    if "status" in changes:
        changes |= {"status_changed_at": now()}
    await conn.execute(update(MessageIn).where(MessageIn.id == task_id).values(**changes))


async def write_next(conn: AsyncConnection, row: AnyRow, session_id: str, due: datetime, **changes: Any) -> bool:
    """Write the next row of a series now, in that session, and mark this one as followed: the sweep leaves it alone.
    False: there is one of that date."""
    values = {
        "id": new_id(),
        "session_id": session_id,
        "agent_group_id": row.agent_group_id,
        "seq": await take_numbers(conn, session_id, 1),
        "kind": row.kind,
        "process_after": due,
        "recurrence": row.recurrence,
        "timezone": row.timezone,
        "series_id": row.series_id or row.id,
        "channel_type": row.channel_type,
        "platform_id": row.platform_id,
        "thread_id": row.thread_id,
        "sender_id": row.sender_id,
        "content": row.content,
    }
    await change_task(conn, row.id, recurred=True)
    return await insert_ignoring(conn, MessageIn, **values | changes)


async def unfollowed(conn: AsyncConnection, session_id: str) -> list[AnyRow]:
    """Finished rows of recurring work whose next row is not written yet."""
    query = select(MessageIn.__table__).where(MessageIn.session_id == session_id, RECURRING)
    return list((await conn.execute(query)).all())


async def database_now(conn: AsyncConnection) -> datetime:
    """Dates are compared with the clock they will be compared with when they come."""
    return (await conn.execute(select(now()))).scalar_one()
