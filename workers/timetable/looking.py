"""Finding tasks: all of a scope, or the one that somebody names."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, storable
from models.series import find_series, terms_of
from models.spending import Mine
from models.task_lookup import (
    Scope,
    find_series_end,
    find_tasks,
    live_tasks,
    past_tasks,
    rows_named,
    runs_of_series,
    tasks_page,
)
from models.tasks import FINISHED, database_now, series_of, waits
from workers.refusals import RefusedError
from workers.task_dates import date_after, nominal
from workers.timetable.view import Run, Task

MIN_HANDLE: Final = 4  # characters


async def list_tasks(conn: AsyncConnection, scope: Scope, limit: int = 500) -> list[Task]:
    """Each task once, the next first."""
    return await _tasks_at(conn, await live_tasks(conn, scope, limit))


async def page_of_tasks(
    conn: AsyncConnection, mine: Mine, limit: int, after: str | None = None, agent_group_id: str | None = None
) -> list[Task]:
    """Each task once, by id; `after`: the last id that was seen."""
    return await _tasks_at(conn, await tasks_page(conn, mine, limit, after, agent_group_id))


async def task_by_id(conn: AsyncConnection, task_id: str) -> Task | None:
    """By its whole id; also one that is over."""
    found = await find_series_end(conn, task_id)
    return (await _tasks_at(conn, [found]))[0] if found is not None else None


async def find_task(conn: AsyncConnection, scope: Scope, handle: str) -> Task:
    """The one a handle means: the id of the task or of any run of it, or the end of one. RefusedError: there is none,
    or it may be one of several."""
    where = "" if scope.session_id is None else " in this conversation"
    handle = storable(handle.strip())
    found = await find_tasks(conn, scope, handle) if len(handle) >= MIN_HANDLE else []
    if not found:
        raise RefusedError(f"there is no scheduled task {handle!r}{where}", kind="nobody")
    if len(found) > 1:
        ids = ", ".join(map(series_of, found[:5]))
        raise RefusedError(f"{handle!r} may be one of several tasks; give the whole id: {ids}")
    [task] = await _tasks_at(conn, found)
    return task


async def find_past(conn: AsyncConnection, handle: str) -> Task:
    """The same among those that are over, for people who look back: there may be very many."""
    handle = storable(handle.strip())
    found = await past_tasks(conn, handle) if len(handle) >= MIN_HANDLE else []
    if len(found) != 1:
        why = "may be one of several tasks that are over" if found else "is no task"
        raise RefusedError(f"{handle!r} {why}", kind="nobody")
    [task] = await _tasks_at(conn, found)
    return task


async def _tasks_at(conn: AsyncConnection, rows: Sequence[AnyRow]) -> list[Task]:
    """The tasks that these rows are the live ends of."""
    if not rows:
        return []
    series = await find_series(conn, [series_of(row) for row in rows])
    last = await rows_named(conn, [row.last_id for row in rows if row.last_id is not None])
    at = await database_now(conn)
    return [_task(row, series.get(series_of(row)), last.get(row.last_id), at) for row in rows]


def _task(row: AnyRow, series: AnyRow | None, last: AnyRow | None, at: datetime) -> Task:
    terms = terms_of(series)
    goes_on = row.recurrence is not None and not row.recurred
    date: datetime | None = nominal(row)
    if not waits(row):
        try:
            date = date_after(row, terms, at) if goes_on else None
        except RefusedError:  # a row that got in otherwise: it is shown as it is
            date = nominal(row)
    return Task(
        id=series_of(row),
        agent=row.folder,
        agent_group_id=row.group_id,
        session_id=row.session_id,
        prompt=str(row.content.get("prompt") or ""),
        scheduled=date,
        recurrence=row.recurrence,
        timezone=row.timezone,
        status=row.status,
        under_way=not waits(row) and row.status not in FINISHED,
        goes_on=goes_on,
        terms=terms,
        failures=series.failures if series is not None else 0,
        error=row.error,
        last=_run(last) if last is not None else None,
        channel_type=row.channel_type,
        platform_id=row.platform_id,
        thread_id=row.thread_id,
        sender_id=row.sender_id,
        content=row.content,
        provider=terms.provider or row.session_provider or row.group_provider,
        written=row.created_at,
    )


async def runs_of(conn: AsyncConnection, task: Task, limit: int = 20) -> list[Run]:
    """The runs so far, the last first, with the one that is on."""
    rows = await runs_of_series(conn, task.id, limit)
    return [_run(row, row.started_at, float(row.usd) if row.usd is not None else None) for row in rows]


def _run(row: AnyRow, began: datetime | None = None, usd: float | None = None) -> Run:
    return Run(
        message_id=row.id,
        session_id=row.session_id,
        scheduled=nominal(row),
        status=row.status,
        began=began,
        ended=row.status_changed_at if row.status in FINISHED else None,
        error=row.error,
        error_class=row.error_class,
        turn_id=row.turn_id,
        usd=usd,
        extra=row.recurrence is None and row.recurred and row.scheduled_for is None,
    )
