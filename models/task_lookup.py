"""Scheduled tasks as people and agents see them: by any id of theirs, at their live end, with the runs they have had.

A task is a chain of rows. Its live end is the row that waits for its date (or is paused); while the last one runs, or
has run and the sweep has not yet written the next, it is that one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, text, union_all
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import aliased

from models.base import AnyRow
from models.conversation import Usage
from models.groups import AgentGroup
from models.inbox import RECURRING, MessageIn
from models.sessions import Session
from models.spending import Mine
from models.tasks import FINISHED, of_series, series_of, waits
from models.turns import Turn

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
        .where(where, MessageIn.replay_of.is_(None))
    )


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


async def tasks_page(
    conn: AsyncConnection, mine: Mine, limit: int, after: str | None = None, agent_group_id: str | None = None
) -> list[AnyRow]:
    """The same by the id of the series, which sorts by when they were made; `after`: the last that was seen."""
    series = func.coalesce(MessageIn.series_id, MessageIn.id)
    narrow = (mine(Session.agent_group_id), series > (after or ""))
    query = _live(Scope(agent_group_id=agent_group_id)).where(*narrow).order_by(None)
    # Of none there are more than two rows: of the first `limit` all are among these.
    rows = (await conn.execute(query.order_by(series, MessageIn.id).limit(2 * limit))).all()
    return sorted(_ends(rows), key=series_of)[:limit]


async def find_series_end(conn: AsyncConnection, series_id: str) -> AnyRow | None:
    """The live end of a task, by its whole id; of one that is over, its last row."""
    live = (await conn.execute(_live(EVERYTHING, of_series(series_id)))).all()
    if live:
        return _ends(live)[0]
    of_task = and_(of_series(series_id), MessageIn.kind == "task")
    last = _rows(of_task).order_by(MessageIn.process_after.desc(), MessageIn.id).limit(1)
    found: AnyRow | None = (await conn.execute(last)).one_or_none()
    return found


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
    last = [_rows(of_series(one)).order_by(MessageIn.process_after.desc(), MessageIn.id).limit(1) for one in ids]
    return [row for query in last for row in (await conn.execute(query)).all()]


async def lock_task(conn: AsyncConnection, series_id: str) -> AnyRow | None:
    """The live end as it is now, for whoever holds the row of its session; its rows are locked until the commit. None:
    it is over."""
    rows = (await conn.execute(_live(EVERYTHING, of_series(series_id)).with_for_update(of=MessageIn))).all()
    ends = _ends([row for row in rows if row.status not in FINISHED or not row.recurred])
    return ends[0] if ends else None


async def runs_of_series(conn: AsyncConnection, series_id: str, limit: int) -> list[AnyRow]:
    """Those that have begun or are over, the last first, with when their turn began and what it cost."""
    cost = select(func.sum(Usage.cost_usd)).where(Usage.turn_id == MessageIn.turn_id).scalar_subquery()
    query = (
        select(MessageIn.__table__, Turn.started_at, cost.label("usd"))
        .outerjoin(Turn, Turn.id == MessageIn.turn_id)
        .where(of_series(series_id), or_(MessageIn.turn_id.is_not(None), MessageIn.status.in_(FINISHED)))
        .order_by(MessageIn.process_after.desc())
        .limit(limit)
    )
    return list((await conn.execute(query)).all())


async def rows_named(conn: AsyncConnection, ids: list[str]) -> dict[str, AnyRow]:
    query = select(MessageIn.__table__).where(MessageIn.id.in_(ids))
    return {row.id: row for row in (await conn.execute(query)).all()} if ids else {}
