"""Reminders: rows of messages_out that have a date (`scheduled_for`), said once or again and again, by nobody's turn.

They answer no message, and name no turn unless they were due as they were noted: a turn that noted something for
tomorrow has said nothing yet, and whoever waits for its answer is not given the note. A series is a chain of rows, each
written when the one before has been said or given up. Its live end is the row that waits or is being sent; between two,
the one whose next is yet to be written."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, cast

from sqlalchemy import ColumnElement, Select, Table, and_, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, new_id, storable
from models.groups import AgentGroup
from models.outbox import REPEATING, MessageOut
from models.sessions import Session, living_session, take_numbers, take_numbers_of_many
from models.tasks import series_of
from models.upsert import insert_many_ignoring

# Rows are rung for when they are written. One with a date was not: so long ago that it is as soon as it is due.
NOT_RUNG: Final = timedelta(hours=1)

_table = cast(Table, MessageOut.__table__)
_IS_REMINDER = MessageOut.scheduled_for.is_not(None)
# Written out, as in the indexes that hold only these; with the table's name, since others have a status too.
_OPEN = text("messages_out.status IN ('pending', 'sending')")
_REPEATING = text(
    "messages_out.recurrence IS NOT NULL AND NOT messages_out.recurred"
    " AND messages_out.status IN ('delivered', 'failed', 'unknown')"
)
_LIVE = and_(_IS_REMINDER, or_(_OPEN, _REPEATING))


def reminder(row: dict[str, Any], date: datetime, at: datetime, **repeated: Any) -> dict[str, Any]:
    """An outbound row that is to be said at that date; `repeated`: its recurrence, timezone and series_id. `at`: the
    database's clock."""
    return row | {
        "turn_id": None,
        "in_reply_to": None,
        "deliver_after": date,
        "scheduled_for": date,
        "rung_at": at - NOT_RUNG,
        **repeated,
    }


def _live() -> Select[Any]:
    return (
        select(_table, Session.agent_group_id, AgentGroup.folder)
        .join(Session, Session.id == MessageOut.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(_LIVE)
        .order_by(MessageOut.scheduled_for, MessageOut.id)
    )


async def reminders_of(
    conn: AsyncConnection, session_id: str | None = None, agent_group_id: str | None = None
) -> list[AnyRow]:
    """Those of a session, of an agent, or all: each series once, the next first, with the agent's `folder`."""
    query = _live()
    if session_id is not None:
        query = query.where(MessageOut.session_id == session_id)
    if agent_group_id is not None:
        query = query.where(Session.agent_group_id == agent_group_id)
    return _ends((await conn.execute(query)).all())


async def find_reminders(conn: AsyncConnection, session_id: str | None, handle: str) -> list[AnyRow]:
    """Those a handle may mean: the id of a row or of its series, or the end of one. Whole ids win over ends."""
    handle = storable(handle.strip())
    if not handle:
        return []
    whole = or_(MessageOut.id == handle, MessageOut.series_id == handle)
    part = or_(MessageOut.id.endswith(handle, autoescape=True), MessageOut.series_id.endswith(handle, autoescape=True))
    query = _live() if session_id is None else _live().where(MessageOut.session_id == session_id)
    for named in (whole, part):
        found = (await conn.execute(query.where(named))).all()
        if found:
            return _ends(found)
    return []


def _ends(rows: Sequence[AnyRow]) -> list[AnyRow]:
    """One row per series: not one that somebody had sent again although the next is written."""
    chosen: dict[str, AnyRow] = {}
    for row in sorted(rows, key=lambda row: row.recurred):
        chosen.setdefault(series_of(row), row)
    return sorted(chosen.values(), key=lambda row: (row.scheduled_for, row.id))


async def count_reminders(conn: AsyncConnection, session_id: str) -> int:
    query = select(func.count()).where(MessageOut.session_id == session_id, _LIVE)
    return int((await conn.execute(query)).scalar_one())


async def reminded_since(conn: AsyncConnection, session_id: str, number: int) -> list[AnyRow]:
    """Reminders of a session that were written after the message of that number, and not cancelled."""
    query = select(_table).where(
        MessageOut.session_id == session_id, MessageOut.seq > number, _IS_REMINDER, MessageOut.status != "cancelled"
    )
    return list((await conn.execute(query)).all())


async def cancel_reminder(conn: AsyncConnection, row: AnyRow) -> Literal["cancelled", "sending"]:
    """It is not said again. `sending`: somebody is just saying it, and this is the last time.

    Its session is locked first, as it is by whoever writes the next row: so that one is seen here, or not written. And
    then its rows, as they are by whoever sends them: one whose try has just failed is seen to wait again."""
    of_it = MessageOut.id == row.id
    if row.series_id is not None:
        of_it = or_(of_it, MessageOut.series_id == row.series_id)
    await _lock_sessions(conn, row.session_id, of_it)
    live = select(_table.c.id, _table.c.status).where(of_it, _LIVE).order_by(MessageOut.id)
    status = {row.id: row.status for row in (await conn.execute(live.with_for_update())).all()}
    waiting = [id for id in status if status[id] == "pending"]
    await conn.execute(update(_table).where(MessageOut.id.in_(status)).values(recurred=True))
    await conn.execute(update(_table).where(MessageOut.id.in_(waiting)).values(status="cancelled"))
    return "sending" if "sending" in status.values() else "cancelled"


async def _lock_sessions(conn: AsyncConnection, session_id: str, of_it: ColumnElement[bool]) -> None:
    """The session, and any other that a conversation which began anew has taken the reminder to."""
    locked: set[str] = set()
    wanted = {session_id}
    while wanted:
        await conn.execute(select(Session.id).where(Session.id.in_(wanted)).order_by(Session.id).with_for_update())
        locked |= wanted
        now_in = (await conn.execute(select(_table.c.session_id).where(of_it, _LIVE))).scalars()
        wanted = set(now_in) - locked


async def move_reminders(conn: AsyncConnection, old: str, new: str) -> None:
    """What waits for its date goes along to a new session, behind all that is there: where it can be seen and
    cancelled. What is being sent, or tried again, is said from the old one."""
    waiting = (
        select(_table.c.id)
        .where(MessageOut.session_id == old, _IS_REMINDER, MessageOut.status == "pending", MessageOut.claim_token == 0)
        .order_by(MessageOut.seq)
        .with_for_update()
    )
    ids = (await conn.execute(waiting)).scalars().all()
    if not ids:
        return
    first = await take_numbers(conn, new, len(ids)) - len(ids) + 1
    for seq, message_id in enumerate(ids, first):
        await conn.execute(update(_table).where(MessageOut.id == message_id).values(session_id=new, seq=seq))


# --- the next row of a series ---


async def lock_unrepeated(conn: AsyncConnection, batch: int) -> list[tuple[AnyRow, str]]:
    """Reminders that were said or given up and whose next row is yet to be written, each with the session where its
    conversation goes on. Both are locked, the sessions first; those of a session that somebody else has locked are left
    for the next time."""
    some = select(MessageOut.id, MessageOut.session_id).where(REPEATING).order_by(MessageOut.id).limit(batch)
    found = (await conn.execute(some)).all()
    if not found:
        return []
    sessions = {row.session_id for row in found}
    free = select(Session.id, Session.status).where(Session.id.in_(sessions)).order_by(Session.id)
    ours = {row.id: row.status for row in (await conn.execute(free.with_for_update(skip_locked=True))).all()}
    living = {id: id if status == "active" else await living_session(conn, id) for id, status in ours.items()}
    # By their ids, and looked at again: somebody else may have been here between.
    ids = [row.id for row in found if row.session_id in living]
    again = select(_table).where(MessageOut.id.in_(ids), REPEATING).order_by(MessageOut.session_id, MessageOut.seq)
    rows = (await conn.execute(again.with_for_update(skip_locked=True))).all()
    return [(row, living[row.session_id]) for row in rows]


async def write_repeated(conn: AsyncConnection, followed: Sequence[tuple[AnyRow, str, datetime]], at: datetime) -> None:
    """The next rows of series, each in that session and for that date, in a few statements. Whoever else writes one for
    the same date writes nothing."""
    numbers = await take_numbers_of_many(conn, Counter(session_id for _, session_id, _ in followed))
    rows: list[dict[str, Any]] = []
    # The last of a session first, since the last of its numbers is what is known.
    for row, session_id, date in reversed(followed):
        series_id = series_of(row)
        following = {
            "id": new_id(),
            "session_id": session_id,
            "seq": numbers[session_id],
            "kind": row.kind,
            "idempotency_key": f"{series_id}:{date.isoformat()}",
            "channel_type": row.channel_type,
            "platform_id": row.platform_id,
            "thread_id": row.thread_id,
            "content": row.content,
        }
        repeated = {"recurrence": row.recurrence, "timezone": row.timezone, "series_id": series_id}
        rows.append(reminder(following, date, at, **repeated))
        numbers[session_id] -= 1
    await insert_many_ignoring(conn, MessageOut, rows)


async def mark_repeated(conn: AsyncConnection, rows: Sequence[AnyRow]) -> None:
    """Their next rows are written, or they have none."""
    await conn.execute(update(_table).where(MessageOut.id.in_([row.id for row in rows])).values(recurred=True))


async def failed_in_a_row(conn: AsyncConnection, row: AnyRow, times: int) -> bool:
    """Whether this and those before it, so many together, were all given up."""
    query = (
        select(MessageOut.status)
        .where(MessageOut.series_id == series_of(row), MessageOut.scheduled_for <= row.scheduled_for)
        .order_by(MessageOut.scheduled_for.desc())
        .limit(times)
    )
    return list((await conn.execute(query)).scalars()) == ["failed"] * times
