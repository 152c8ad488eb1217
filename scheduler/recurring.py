"""What follows the runs of recurring tasks that are over, and those that were missed.

Whoever writes the next row of a series has locked its session first, as everybody who changes a task has; so several
sweeps, and an agent that changes its task or begins anew meanwhile, write one next row together. It costs a few
statements for hundreds of rows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from sqlalchemy import ColumnElement, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.inbox import MessageIn
from models.lookup import short
from models.notices import owner_notices, store_notices
from models.outbox import notice
from models.people import owner_addresses
from models.quoting import one_line, quoted
from models.series import Series, Terms, find_series, set_failures, terms_of
from models.sessions import Session, living_session, take_numbers_of_many
from models.tasks import (
    database_now,
    lock_unfollowed,
    mark_followed,
    next_of,
    series_of,
    unfollowed,
    with_live_end,
)
from models.upsert import insert_many_ignoring
from scheduler.following import LATE_SECONDS, backoff_seconds, next_date, run_of
from scheduler.recurrence import RecurrenceError, jittered, next_after

log = structlog.get_logger()

SHOWN_PROMPT: Final = 80
# So many dates in a row that other runs have are passed over.
MAX_TAKEN: Final = 50
_MISSED: Final = f"missed: it could not begin within {LATE_SECONDS // 60} minutes of its date, and is not made up for"
_NO_LIMIT: Final = 2**31 - 1
# Written out, as in the indexes that hold only these.
_SKIPS: Final = text("task_series.catch_up = 'skip'")
_DUE_TASK: Final = text("messages_in.status = 'pending' AND messages_in.kind = 'task'")


@dataclass
class Followed:
    """`rows`: how many were looked at. `deliveries`: what was said about it, to ring for."""

    rows: int = 0
    deliveries: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Next:
    """What comes after a run. `failures`: in a row, with this run. `paused`: why the task goes on only when somebody
    resumes it; `detail` is for the owners. `not_before`: after a failure, also for a date that is made up for."""

    row: AnyRow
    terms: Terms
    date: datetime
    failures: int
    paused: str | None = None
    detail: str = ""
    not_before: datetime | None = None

    @property
    def series_id(self) -> str:
        return series_of(self.row)

    def later(self) -> "Next":
        """Its date is taken by another run: the date after that one."""
        try:
            date = next_after(self.row.recurrence, self.date, self.row.timezone)
        except RecurrenceError:  # it is paused for that; when, does not matter
            date = self.date + timedelta(microseconds=1)
        return replace(self, date=date)

    def values(self, session_id: str) -> dict[str, Any]:
        due = jittered(self.date, self.series_id, self.terms.jitter_seconds)
        due = max(due, self.not_before or due)
        changes = {"status": "paused", "error": f"paused: {self.paused} ({self.detail})"} if self.paused else {}
        return next_of(self.row, session_id, self.date, process_after=due, **changes)


async def follow_finished(conn: AsyncConnection, batch: int) -> Followed:
    """Write the next rows of finished runs. Those of a session that was closed meanwhile go on where it does."""
    locked = await lock_unfollowed(conn, batch)
    if not locked:
        return Followed()
    closed = sorted({row.session_id for row in locked if row.state != "active"})
    into = {session_id: await living_session(conn, session_id) for session_id in closed}
    rows = await unfollowed(conn, MessageIn.id.in_([row.id for row in locked]))
    return Followed(len(locked), await follow(conn, rows, into))


async def follow(conn: AsyncConnection, rows: list[AnyRow], into: Mapping[str, str]) -> list[str]:
    """Write the next row of each of these (see `unfollowed`), and mark them as followed, for whoever has locked their
    sessions. `into`: in which session it goes on, if that is another. Returns the notices to ring for.

    A date that another row of the series has is passed over, unless that row is the series' next already."""
    if not rows:
        return []
    known = await find_series(conn, [series_of(row) for row in rows])
    at = await database_now(conn)
    planned = [_plan(row, known.get(series_of(row)), at) for row in rows]
    owners = await owner_addresses(conn) if any(one.paused for one in planned) else []
    sessions = {one.row.id: into.get(one.row.session_id, one.row.session_id) for one in planned}
    numbers = await _take_numbers(conn, planned, sessions, 1 + len(owners))
    left = await _write(conn, planned, sessions, numbers)
    followed = [one for one in planned if one.row.id not in left]
    await mark_followed(conn, [one.row.id for one in followed])
    before = {series_id: series.failures for series_id, series in known.items()}
    changed = [one for one in followed if one.failures != before.get(one.series_id, 0)]
    await set_failures(conn, {one.series_id: (one.row.group_id, one.failures) for one in changed})
    paused = [one for one in followed if one.paused]
    said = [_notices(one, sessions[one.row.id], numbers[one.row.id] + 1, owners) for one in paused]
    return await store_notices(conn, [row for notices in said for row in notices])


def _plan(row: AnyRow, series: AnyRow | None, at: datetime) -> Next:
    """A task that fails again and again is paused, and so is one whose dates cannot be worked out (its time zone is not
    known on this machine, say): the series waits for somebody instead of ending without a word."""
    terms, ended = terms_of(series), row.status_changed_at
    failures = series.failures if series is not None else 0
    failed = row.status == "failed" or (row.status == "discarded" and row.error_class is not None)
    if failed:
        failures += 1
    elif row.status == "completed":
        failures = 0
    run = run_of(row, row.began or ended, ended)
    not_before = ended + timedelta(seconds=backoff_seconds(failures)) if failed else None
    try:
        date = next_date(
            row.recurrence,
            row.timezone,
            run,
            catch_up=terms.catch_up,
            overlap=terms.overlap,
            not_before=not_before,
        )
    except RecurrenceError as error:
        log.warning("task.dateless", task=series_of(row), error=str(error))
        return Next(row, terms, at, failures, "its next date cannot be worked out", str(error))
    if failed and 0 < terms.pause_after <= failures:
        why = "it failed" if failures == 1 else f"it failed {failures} times in a row"
        return Next(row, terms, date, failures, why, f"the last time: {row.error_class}: {row.error}")
    return Next(row, terms, date, failures, not_before=not_before)


def _notices(one: Next, session_id: str, first: int, owners: list[tuple[str, str]]) -> list[dict[str, Any]]:
    row, handle = one.row, short(one.series_id)
    log.warning("task.paused", task=one.series_id, agent=row.folder, failures=one.failures)
    prompt = quoted(one_line(str(row.content.get("prompt") or ""), SHOWN_PROMPT))
    key = f"{one.series_id}:paused:{row.id}"
    said = notice(
        session_id=session_id,
        seq=first,
        key=key,
        channel_type=row.channel_type,
        platform_id=row.platform_id,
        thread_id=row.thread_id,
        content={"text": f"I have paused a scheduled task, because {one.paused}: {prompt} (task {handle})"},
    )
    told = f"{row.folder}: task {handle} is paused, because {one.paused} ({quoted(one.detail)}): {prompt}"
    told = f"{told}\nLet it go on: longshore tasks resume {handle}"
    return [said, *owner_notices(owners, session_id=session_id, first_seq=first + 1, key=key, text=told)]


async def _take_numbers(
    conn: AsyncConnection, planned: list[Next], sessions: Mapping[str, str], notices: int
) -> dict[str, int]:
    """The number of each next row; those of its notices, if it is paused, come after it."""
    counts = {one.row.id: 1 + (notices if one.paused else 0) for one in planned}
    wanted: Counter[str] = Counter()
    for row_id, count in counts.items():
        wanted[sessions[row_id]] += count
    last = await take_numbers_of_many(conn, wanted)
    free = {session_id: last[session_id] - count + 1 for session_id, count in wanted.items()}
    numbers: dict[str, int] = {}
    for row_id, count in counts.items():
        numbers[row_id] = free[sessions[row_id]]
        free[sessions[row_id]] += count
    return numbers


async def _write(
    conn: AsyncConnection, planned: list[Next], sessions: Mapping[str, str], numbers: Mapping[str, int]
) -> set[str]:
    """Returns the rows that could not be followed; the next sweep tries again, with other numbers."""
    for _ in range(MAX_TAKEN):
        rows = [one.values(sessions[one.row.id]) | {"seq": numbers[one.row.id]} for one in planned]
        written = await insert_many_ignoring(conn, MessageIn, rows)
        left = [one for one, values in zip(planned, rows, strict=True) if values["id"] not in written]
        going_on = await with_live_end(conn, [one.series_id for one in left]) if left else set()
        planned = [one.later() for one in left if one.series_id not in going_on]
        if not planned:
            return set()
    log.error("task.not_followed", tasks=[one.series_id for one in planned])
    return {one.row.id for one in planned}


async def discard_missed(conn: AsyncConnection, batch: int) -> int:
    """Runs that are so late that their task does without them (`catch_up` is `skip`) are put away. Returns how many;
    the series goes on when they are followed."""
    # Asked on its own: where no task does so, a hundred thousand late rows are not looked at for it.
    some = select(Series.id).where(_SKIPS).exists()
    late = (
        select(MessageIn.id, MessageIn.session_id, MessageIn.series_id, MessageIn.turn_id, MessageIn.process_after)
        .where(some, _DUE_TASK, *_late())
        .order_by(MessageIn.process_after)
        # With a limit it is asked first, over the index of due tasks. Else a database may begin at the other end, with
        # all that never had a turn or all runs there ever were of a series.
        .limit(_NO_LIMIT)
        .subquery()
    )
    chosen = (
        select(late.c.id)
        .join(Series, Series.id == late.c.series_id)
        .join(Session, Session.id == late.c.session_id)
        .where(_SKIPS, late.c.turn_id.is_(None))
        .order_by(late.c.process_after)
        .limit(batch)
        .with_for_update(of=Session, skip_locked=True)
    )
    ids = list((await conn.execute(chosen)).scalars())
    if not ids:
        return 0
    # All of it again: whoever changed the task, or began it, before its session was locked has done so since the look.
    skips = select(Series.id).where(Series.id == MessageIn.series_id, _SKIPS).exists()
    missed = update(MessageIn).where(MessageIn.id.in_(ids), _DUE_TASK, *_late(), MessageIn.turn_id.is_(None), skips)
    await conn.execute(missed.values(status="discarded", status_changed_at=now(), error=_MISSED))
    return len(ids)


def _late() -> tuple[ColumnElement[bool], ...]:
    """As `is_missed`. An extra run, that somebody asked for besides the dates, is never too late."""
    dates = (MessageIn.process_after, MessageIn.created_at, MessageIn.status_changed_at)
    has_date = or_(MessageIn.recurrence.is_not(None), ~MessageIn.recurred)
    return *(date < now(-LATE_SECONDS) for date in dates), MessageIn.tries == 0, has_date
