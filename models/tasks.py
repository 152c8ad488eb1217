"""Scheduled work among messages_in, as agents see and change it: the live end of each series.

A series is a chain of rows. Its live end is the row that waits for its date (or is paused); while the last one runs, or
has run and the sweep has not yet written the next, it is that one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, text, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import aliased

from models.base import AnyRow, new_id, now
from models.conversation import Usage
from models.groups import AgentGroup
from models.inbox import RECURRING, MessageIn
from models.sessions import Session, take_numbers
from models.turns import Turn
from models.upsert import insert_ignoring

WAITING: Final = ("pending", "paused")
FINISHED: Final = ("completed", "failed", "discarded")
# One that somebody asked for besides the schedule is no end of a series: nothing follows it.
_NO_EXTRA: Final = "kind = 'task' AND (recurrence IS NOT NULL OR NOT recurred)"
# Each is answered by an index of its own that holds only unfinished rows.
_LIVE: Final = (
    text(f"{_NO_EXTRA} AND status = 'pending'"),
    text(f"{_NO_EXTRA} AND status = 'paused'"),
    # SQLite uses the index of unfinished rows only where its own words stand.
    text(f"{_NO_EXTRA} AND status IN ('pending', 'processing') AND status = 'processing'"),
    and_(text("kind = 'task'"), RECURRING),
)
_earlier = aliased(MessageIn)
_LAST = (
    select(_earlier.id)
    .where(_earlier.series_id == MessageIn.series_id, _earlier.status.in_(FINISHED), _earlier.id != MessageIn.id)
    .order_by(_earlier.process_after.desc())
    .limit(1)
    .scalar_subquery()
)


@dataclass(frozen=True)
class Scope:
    """Whose tasks are meant: those of one session (an agent's own view), of one agent, or (neither) all."""

    session_id: str | None = None
    agent_group_id: str | None = None

    @property
    def where(self) -> list[ColumnElement[bool]]:
        narrow = [MessageIn.session_id == self.session_id] if self.session_id is not None else []
        if self.agent_group_id is not None:
            sessions = select(Session.id).where(Session.agent_group_id == self.agent_group_id)
            narrow.append(MessageIn.session_id.in_(sessions))
        return narrow


EVERYTHING: Final = Scope()


def _live(of: Scope, *named: ColumnElement[bool]) -> Select[Any]:
    ids = union_all(*(select(MessageIn.id).where(state, *of.where, *named) for state in _LIVE))
    return _rows(MessageIn.id.in_(ids)).order_by(MessageIn.process_after, MessageIn.id)


def _rows(where: ColumnElement[bool]) -> Select[Any]:
    """Rows of tasks, with the agent (`folder`, `group_provider`) and the last run (`last_id`)."""
    return (
        select(
            MessageIn.__table__,
            AgentGroup.id.label("group_id"),
            AgentGroup.folder,
            AgentGroup.provider.label("group_provider"),
            Session.provider.label("session_provider"),
            _LAST.label("last_id"),
        )
        .join(Session, Session.id == MessageIn.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(where)
    )


def waits(row: AnyRow) -> bool:
    """For its date, or to be resumed. One that has a turn has begun, and waits only to go on."""
    return row.status in WAITING and row.turn_id is None


def series_of(row: AnyRow) -> str:
    """By what a task is known, whichever row of it this is."""
    return str(row.series_id or row.id)


def _ends(rows: Sequence[AnyRow]) -> list[AnyRow]:
    """One row per series: a waiting one, else one that will be followed, else the one that runs."""
    chosen: dict[str, AnyRow] = {}
    for row in sorted(rows, key=lambda row: (not waits(row), row.recurred)):
        chosen.setdefault(series_of(row), row)
    return sorted(chosen.values(), key=lambda row: (row.process_after, row.id))


async def live_tasks(conn: AsyncConnection, of: Scope, limit: int) -> list[AnyRow]:
    """The live end of each task, the next first."""
    # Of a series there may be two rows: the one that runs, and the one that waits.
    return _ends((await conn.execute(_live(of).limit(2 * limit))).all())[:limit]


async def find_tasks(conn: AsyncConnection, of: Scope, handle: str) -> list[AnyRow]:
    """The live ends of those that a handle may mean: the id of any row of a series, or the end of one. Whole ids win
    over ends, and rows that live over those of the past."""
    past = select(MessageIn.series_id).where(MessageIn.series_id.is_not(None))
    if of.session_id is not None:  # else all that ever ran is looked at
        ours = union_all(*(select(MessageIn.series_id).where(state, *of.where) for state in _LIVE))
        past = past.where(MessageIn.series_id.in_(ours))
    ends = MessageIn.id.endswith(handle, autoescape=True)
    for named in (
        or_(MessageIn.id == handle, MessageIn.series_id == handle),
        MessageIn.series_id.in_(past.where(MessageIn.id == handle)),
        or_(ends, MessageIn.series_id.endswith(handle, autoescape=True)),
        MessageIn.series_id.in_(past.where(ends)),
    ):
        found = (await conn.execute(_live(of, named))).all()
        if found:
            return _ends(found)
    return []


async def past_tasks(conn: AsyncConnection, handle: str, limit: int = 5) -> list[AnyRow]:
    """The last row of each task that is over and that a handle may mean. All that ever ran is looked at."""
    series = func.coalesce(MessageIn.series_id, MessageIn.id)
    named = select(series).where(MessageIn.kind == "task", MessageIn.id.endswith(handle, autoescape=True))
    ids = list((await conn.execute(named.distinct().limit(limit))).scalars())
    last = [_rows(_of_series(one)).order_by(MessageIn.process_after.desc(), MessageIn.id).limit(1) for one in ids]
    return [row for query in last for row in (await conn.execute(query)).all()]


async def lock_task(conn: AsyncConnection, series_id: str) -> AnyRow | None:
    """The live end as it is now, for whoever holds the row of its session; its rows are locked until the commit. None:
    it is over."""
    rows = (await conn.execute(_live(EVERYTHING, _of_series(series_id)).with_for_update(of=MessageIn))).all()
    ends = _ends([row for row in rows if row.status not in FINISHED or not row.recurred])
    return ends[0] if ends else None


def _of_series(series_id: str) -> ColumnElement[bool]:
    return or_(MessageIn.series_id == series_id, and_(MessageIn.id == series_id, MessageIn.series_id.is_(None)))


async def end_series(conn: AsyncConnection, series_id: str) -> None:
    """What waits is discarded, extra runs too; what runs or has run is not followed."""
    waiting = and_(MessageIn.status.in_(WAITING), MessageIn.turn_id.is_(None))
    over = {"status": "discarded", "status_changed_at": now(), "recurred": True}
    of_it = (MessageIn.kind == "task", _of_series(series_id))
    await conn.execute(update(MessageIn).where(*of_it, waiting).values(**over))
    await conn.execute(update(MessageIn).where(*of_it, ~MessageIn.recurred).values(recurred=True))


async def has_extra(conn: AsyncConnection, series_id: str) -> bool:
    """Whether a run that somebody asked for waits to begin."""
    query = select(MessageIn.id).where(
        MessageIn.series_id == series_id,
        MessageIn.status == "pending",
        MessageIn.turn_id.is_(None),
        MessageIn.recurrence.is_(None),
        MessageIn.recurred,
    )
    return bool((await conn.execute(select(query.exists()))).scalar_one())


async def add_extra(conn: AsyncConnection, row: AnyRow, series_id: str, session_id: str) -> bool:
    """One run more, now, of the task that `row` is of. False: there is one of this very moment."""
    extra = {
        "id": new_id(),
        "session_id": session_id,
        "agent_group_id": row.agent_group_id,
        "seq": await take_numbers(conn, session_id, 1),
        "kind": "task",
        "process_after": await database_now(conn),
        "timezone": row.timezone,
        "series_id": series_id,
        "recurred": True,
        "channel_type": row.channel_type,
        "platform_id": row.platform_id,
        "thread_id": row.thread_id,
        "sender_id": row.sender_id,
        "content": row.content,
    }
    return await insert_ignoring(conn, MessageIn, **extra)


async def runs_of_series(conn: AsyncConnection, series_id: str, limit: int) -> list[AnyRow]:
    """Those that have begun or are over, the last first, with when their turn began and what it cost."""
    cost = select(func.sum(Usage.cost_usd)).where(Usage.turn_id == MessageIn.turn_id).scalar_subquery()
    query = (
        select(MessageIn.__table__, Turn.started_at, Turn.ended_at, cost.label("usd"))
        .outerjoin(Turn, Turn.id == MessageIn.turn_id)
        .where(_of_series(series_id), or_(MessageIn.turn_id.is_not(None), MessageIn.status.in_(FINISHED)))
        .order_by(MessageIn.process_after.desc())
        .limit(limit)
    )
    return list((await conn.execute(query)).all())


async def rows_named(conn: AsyncConnection, ids: list[str]) -> dict[str, AnyRow]:
    query = select(MessageIn.__table__).where(MessageIn.id.in_(ids))
    return {row.id: row for row in (await conn.execute(query)).all()} if ids else {}


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
        "series_id": row.series_id or row.id,
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
