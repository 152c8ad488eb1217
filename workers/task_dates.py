"""When a task runs: which dates are taken, which comes first and which next, and all of them in words."""

from datetime import datetime, timedelta
from typing import Any, Final

from models.base import AnyRow
from models.series import DEFAULT_TERMS, Terms
from scheduler import following
from scheduler.recurrence import RecurrenceError, check_recurrence, check_timezone, jittered, next_after
from scheduler.words import next_runs, often
from workers.refusals import RefusedError
from workers.task_terms import conditions

# A date so little in the past is a clock's or a model's slowness, and due now; an older one is a mistake.
GRACE: Final = timedelta(minutes=5)
# Whoever works the same date out again may come to one that is so much earlier or later.
LEEWAY: Final = timedelta(minutes=2)


def slot(task_id: str, date: datetime, recurrence: str | None, timezone: str, terms: Terms) -> dict[str, Any]:
    """When a new task is due, as columns of messages_in. One that comes once is a series too if it has terms of its
    own: they are kept by the series' id."""
    is_series = recurrence is not None or terms != DEFAULT_TERMS
    return {
        "process_after": jittered(date, task_id, terms.jitter_seconds),
        "scheduled_for": date,
        "recurrence": recurrence,
        "timezone": timezone,
        "series_id": task_id if is_series else None,
    }


def first_date(date: datetime | None, recurrence: str | None, timezone: str, at: datetime) -> datetime:
    """The date that was given, else the next that the recurrence names."""
    if date is not None:
        return date
    return next_date(recurrence, at, timezone) if recurrence is not None else at


def next_date(recurrence: str, after: datetime, timezone: str) -> datetime:
    try:
        return next_after(recurrence, after, timezone)
    except RecurrenceError as error:
        raise RefusedError(str(error)) from None


def check_rhythm(recurrence: str | None, timezone: str) -> None:
    try:
        check_timezone(timezone)
        if recurrence is not None:
            check_recurrence(recurrence, timezone)
    except RecurrenceError as error:
        raise RefusedError(str(error)) from None


def check_date(date: datetime, at: datetime) -> None:
    if date < at - GRACE:
        raise RefusedError(f"{date.isoformat()} has passed: it is {at.isoformat(timespec='seconds')} now")


def is_same_again(date: datetime, before: datetime, since: timedelta) -> bool:
    """Whether somebody who worked out the date `before` so long ago, and now works it out again, means the same: the
    same hour of the day, or as far from now ("in 20 minutes")."""
    apart = date - before
    return abs(apart) <= LEEWAY or abs(apart - since) <= LEEWAY


def nominal(row: AnyRow) -> datetime:
    """The date its schedule names; rows of an earlier release have only the one they are due at."""
    date: datetime = row.scheduled_for or row.process_after
    return date


def date_after(row: AnyRow, terms: Terms, at: datetime) -> datetime:
    """When the next run is, if this one is over now (or was when it ended)."""
    ended = at if row.status in ("pending", "processing") else row.status_changed_at
    began = min(row.status_changed_at, ended)
    run = following.run_of(row, began, ended)
    try:
        return following.next_date(row.recurrence, row.timezone, run, catch_up=terms.catch_up, overlap=terms.overlap)
    except RecurrenceError as error:
        raise RefusedError(str(error)) from None


def plan_in_words(date: datetime, recurrence: str | None, timezone: str, terms: Terms, at: datetime) -> str:
    """Its next runs in words, and what is not as usual."""
    dates = next_runs(recurrence, date, timezone, terms.jitter_seconds, at=at)
    unusual = [words for words in conditions(terms) if not words.startswith("begins ")]  # the dates say that
    ends = [f"({'; '.join(unusual)})"] if unusual else []
    if recurrence is None:
        return "\n".join([dates[0], *ends])
    return "\n".join([f"{often(recurrence)} ({timezone}). Next runs:", *(f"- {date}" for date in dates), *ends])
