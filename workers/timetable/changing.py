"""Changing a task: pause, resume, cancel, run now, and other words, dates or terms.

Each locks the session's row and then the task's rows, and looks again before it writes: several callers at once, and a
sweep that is just writing the next row, act one after the other. What it says goes after "task X "."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, TypedDict

from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow
from models.inbox import MessageIn
from models.series import DEFAULT_TERMS, CatchUp, Overlap, Terms, change_series, find_series, terms_of
from models.sessions import living_session, mark_if_due
from models.task_lookup import lock_task
from models.tasks import (
    FINISHED,
    add_extra_run,
    change_task,
    database_now,
    end_series,
    goes_on,
    has_extra_run,
    is_taken,
    unfollowed,
    waits,
    write_next,
)
from scheduler.recurrence import jittered
from scheduler.recurring import follow
from workers.refusals import RefusedError
from workers.task_dates import check_date, check_rhythm, date_after, next_date, nominal, plan_in_words
from workers.task_terms import changed_terms, is_looser
from workers.timetable.view import Task

_OF_TERMS: Final = frozenset(asdict(DEFAULT_TERMS))
_OF_RHYTHM: Final = frozenset({"recurrence", "timezone"})
_NEEDS_ADMIN: Final = "needs an admin: ask one to do it, or whoever runs the fleet (longshore tasks update)"


class Changes(TypedDict, total=False):
    """What an update may name; what it does not name stays. None takes a recurrence, a script, a cap, a provider or a
    model away."""

    prompt: str
    process_after: datetime
    recurrence: str | None
    timezone: str
    catch_up: CatchUp
    overlap: Overlap
    jitter_seconds: int
    pause_after: int
    daily_usd: float | None
    provider: str | None
    model: str | None
    script: str | None


@dataclass(frozen=True)
class _Locked:
    """A task as it is now, and stays until the commit: the row it stands at, its session, and its terms."""

    id: str
    row: AnyRow
    session_id: str
    terms: Terms
    failures: int
    at: datetime

    @property
    def goes_on(self) -> bool:
        return self.row.recurrence is not None and not self.row.recurred


async def cancel(conn: AsyncConnection, task: Task) -> str:
    """It does not run again: `is cancelled`, or, while it runs, `runs now, and this is its last run`."""
    held = await _lock(conn, task, follow_up=False)
    await end_series(conn, held.id)
    under_way = held.row.status not in FINISHED and not waits(held.row)
    return "runs now, and this is its last run" if under_way else "is cancelled"


async def pause(conn: AsyncConnection, task: Task) -> str:
    """`is paused`, `is paused already`. RefusedError: it runs for the last time."""
    held = await _lock(conn, task)
    row = held.row
    if row.status == "paused":
        return "is paused already"
    if waits(row):
        await change_task(conn, row.id, status="paused")
    else:
        _check_goes_on(held)
        await _write_next(conn, held, date_after(row, held.terms, held.at), held.terms, status="paused")
    return "is paused"


async def resume(conn: AsyncConnection, task: Task) -> str:
    """It goes on, with no failures counted: `goes on: ...` and its dates, or `is not paused`.

    A week's pause must not make up for a week of runs: what recurs goes on with its next date to come. What comes once,
    and whose date has passed, runs at once."""
    held = await _lock(conn, task)
    row, at = held.row, held.at
    if row.status != "paused":
        return "is not paused"
    date = nominal(row)
    if held.goes_on and date <= at:
        date = next_date(row.recurrence, at, row.timezone)
    due = max(jittered(date, held.id, held.terms.jitter_seconds), at)
    await _check_free(conn, held, due)
    if held.failures:
        await change_series(conn, held.id, row.group_id, failures=0)
    await change_task(conn, row.id, status="pending", process_after=due, scheduled_for=date, error=None)
    return f"goes on: {plan_in_words(max(date, at), row.recurrence, row.timezone, held.terms, at)}"


async def run_now(conn: AsyncConnection, task: Task) -> tuple[str, str | None]:
    """One run more, now, besides its dates. Returns the session and its provider (None: the default one) to ring for,
    after the commit. RefusedError: one waits already."""
    held = await _lock(conn, task)
    if held.row.series_id is None:
        await change_task(conn, held.row.id, series_id=held.id)
    if await has_extra_run(conn, held.id) or not await add_extra_run(conn, held.row, held.session_id):
        raise RefusedError("a run of it that somebody asked for waits to begin already")
    await mark_if_due(conn, held.session_id)
    return held.session_id, held.terms.provider or held.row.session_provider or held.row.group_provider


async def update(
    conn: AsyncConnection, task: Task, changes: Changes, *, disown: bool = False, by_admin: bool = True
) -> str:
    """`is changed: ...` and its dates. `disown`: it runs in nobody's name from now on. `by_admin`: whoever wants this
    may loosen what others have set. RefusedError says which change makes no sense, or is not theirs to make; nothing is
    changed then."""
    held = await _lock(conn, task)
    row = held.row
    named: dict[str, Any] = dict(changes)
    recurrence = named.get("recurrence", row.recurrence if held.goes_on else None)
    wanted = _Wanted(
        date=named.get("process_after"),
        recurrence=recurrence,
        timezone=named.get("timezone", row.timezone),
        another_rhythm=recurrence is not None and held.goes_on and not named.keys().isdisjoint(_OF_RHYTHM),
        content=row.content | ({"prompt": named["prompt"]} if "prompt" in named else {}),
        sender_id=None if disown else row.sender_id,
        terms=changed_terms(held.terms, **{name: value for name, value in named.items() if name in _OF_TERMS}),
    )
    if not by_admin:
        _check_modest(held, wanted)
    check_rhythm(wanted.recurrence, wanted.timezone)
    if wanted.date is not None:
        check_date(wanted.date, held.at)
    if not waits(row):
        _check_goes_on(held)
    if wanted.terms != held.terms:
        await change_series(conn, held.id, row.group_id, **asdict(wanted.terms))
    if waits(row):
        return await _change_waiting(conn, held, wanted)
    return await _change_following(conn, held, wanted, only_terms=named.keys() <= _OF_TERMS)


@dataclass(frozen=True)
class _Wanted:
    """How a task is to be. `date`: the next, if one was named."""

    date: datetime | None
    recurrence: str | None
    timezone: str
    another_rhythm: bool
    content: dict[str, Any]
    sender_id: str | None
    terms: Terms

    def columns(self) -> dict[str, Any]:
        names = ("recurrence", "timezone", "content", "sender_id")
        return {name: getattr(self, name) for name in names}

    def next_date(self, at: datetime) -> datetime | None:
        """Where the change itself says it; None: it is as it was."""
        if self.date is None and self.another_rhythm:
            assert self.recurrence is not None
            return next_date(self.recurrence, at, self.timezone)
        return self.date

    def in_words(self, date: datetime, at: datetime) -> str:
        return plan_in_words(date, self.recurrence, self.timezone, self.terms, at)


async def _change_waiting(conn: AsyncConnection, held: _Locked, wanted: _Wanted) -> str:
    row, terms = held.row, wanted.terms
    date = wanted.next_date(held.at) or nominal(row)
    due = row.process_after
    if date != nominal(row) or terms.jitter_seconds != held.terms.jitter_seconds:
        due = jittered(date, held.id, terms.jitter_seconds)
        await _check_free(conn, held, due)
    is_series = row.series_id is not None or wanted.recurrence is not None or terms != DEFAULT_TERMS
    dates = {"process_after": due, "scheduled_for": date, "series_id": held.id if is_series else None}
    if row.recurred and not await goes_on(conn, held.id):  # a run that was to be the last and is tried again
        dates["recurred"] = False
    await change_task(conn, row.id, **dates, **wanted.columns())
    return f"is changed: {wanted.in_words(date, held.at)}"


async def _change_following(conn: AsyncConnection, held: _Locked, wanted: _Wanted, *, only_terms: bool) -> str:
    """It runs now, so the change is for the next run, whose row is written here."""
    row = held.row
    date = wanted.next_date(held.at)
    if date is None:
        if wanted.recurrence is None:
            await change_task(conn, row.id, recurred=True)
            return "runs now, and this is its last run"
        date = date_after(row, wanted.terms, held.at)
    if not only_terms or wanted.sender_id != row.sender_id:
        await _write_next(conn, held, date, wanted.terms, **wanted.columns())
    return f"is changed from its next run on: {wanted.in_words(date, held.at)}"


async def _lock(conn: AsyncConnection, task: Task, *, follow_up: bool = True) -> _Locked:
    """`follow_up`: if its last run is over and the sweep has not come by, the next row is written first."""
    session_id = await living_session(conn, task.session_id)
    row = await lock_task(conn, task.id)
    if row is not None and row.session_id not in (session_id, task.session_id):  # it has gone on elsewhere meanwhile
        session_id = await living_session(conn, row.session_id)
        row = await lock_task(conn, task.id)
    if row is not None and row.status in FINISHED and follow_up:
        over = await unfollowed(conn, MessageIn.id == row.id)
        await follow(conn, over, {row.session_id: session_id})  # the sweep rings for what it says
        row = await lock_task(conn, task.id)
    if row is None:
        raise RefusedError(f"task {task.handle} is over: it ran for the last time, or somebody has cancelled it")
    series = (await find_series(conn, [task.id])).get(task.id)
    failures = series.failures if series is not None else 0
    return _Locked(task.id, row, session_id, terms_of(series), failures, await database_now(conn))


def _check_modest(held: _Locked, wanted: _Wanted) -> None:
    """What anybody may change: not the limits of a task, but to tighten them, and not what is done with means that
    somebody else has lent it."""
    if is_looser(wanted.terms, than=held.terms):
        raise RefusedError(f"a limit of a task (dailyUsd, pauseAfter) may be tightened; to loosen it {_NEEDS_ADMIN}")
    row, terms = held.row, held.terms
    is_lent = (terms.script, terms.provider, terms.model) != (None, None, None)
    now = (row.content, row.recurrence if held.goes_on else None, row.timezone, terms.script)
    if is_lent and now != (wanted.content, wanted.recurrence, wanted.timezone, wanted.terms.script):
        what = "another prompt, rhythm or script"
        raise RefusedError(f"this task has a script, a provider or a model of its own, so {what} {_NEEDS_ADMIN}")


def _check_goes_on(held: _Locked) -> None:
    if not held.goes_on:
        raise RefusedError("that task runs now, for the last time; there is no later run. Schedule a new one instead")


async def _write_next(conn: AsyncConnection, held: _Locked, date: datetime, terms: Terms, **values: Any) -> None:
    """While the run before it is still on. How that one ends is not counted, since it is followed already; and the
    failures before it are forgotten, since it got as far as changing its own task."""
    due = jittered(date, held.id, terms.jitter_seconds)
    if held.failures:
        await change_series(conn, held.id, held.row.group_id, failures=0)
    if not await write_next(conn, held.row, held.session_id, date, process_after=due, **values):
        raise _taken(due)


async def _check_free(conn: AsyncConnection, held: _Locked, due: datetime) -> None:
    """A series has one row for a date: a second would not be written, and the series would end without a word."""
    if await is_taken(conn, held.id, due, held.row.id):
        raise _taken(due)


def _taken(due: datetime) -> RefusedError:
    return RefusedError(f"that task has had a run for {due.isoformat()} already; give it another date")
