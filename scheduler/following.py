"""Which date a recurring task runs at after a run is over, whatever happened meanwhile: downtime, a long run, failures.

Pure: dates in, a date out. The sweep calls it once for each finished run, so it costs a few looks at the cron
expression, also when a year of minutes was missed."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from models.base import AnyRow
from models.series import CatchUp, Overlap
from scheduler.recurrence import first_at_or_after, next_after

# So late a run is not made any more when its task asks for that (`catch_up` is `skip`). A sweep, a deployment or a
# full queue takes less; a downtime takes more.
LATE_SECONDS: Final = 900
FIRST_BACKOFF_SECONDS: Final = 60.0
MAX_BACKOFF_SECONDS: Final = 24 * 3600.0
_DOUBLINGS: Final = 16  # more than it takes to a day


@dataclass(frozen=True)
class Run:
    """One run of a series. `scheduled`: the date it had. `could_begin`: from when on its row was there and due.
    `began`: when its turn started; the same as `ended` if it never did."""

    scheduled: datetime
    could_begin: datetime
    began: datetime
    ended: datetime


def run_of(row: AnyRow, began: datetime, ended: datetime) -> Run:
    """The run that a row of messages_in is of. A task may be made after its first date: those from then until it was
    made do not count, since nobody can have missed them. (A later row is written late because the one before it took
    long; that does count.) Rows of an earlier release have only the date they are due at."""
    scheduled, is_first = row.scheduled_for or row.process_after, row.id == row.series_id
    return Run(
        scheduled=max(scheduled, row.created_at) if is_first else scheduled,
        could_begin=max(row.process_after, row.created_at),
        began=began,
        ended=ended,
    )


def next_date(
    recurrence: str,
    timezone: str,
    run: Run,
    *,
    catch_up: CatchUp,
    overlap: Overlap,
    not_before: datetime | None = None,
) -> datetime:
    """The date of the run that follows: always a later one that the expression names.

    A date that has passed is returned only if it is to be made up for: because it came while nobody could run the
    task (`catch_up` is `all`) or while the task was running (`overlap` is `queue`). `not_before` passes over dates to
    come; those that are made up for keep their date, and are due no sooner than that."""
    date = next_after(recurrence, run.scheduled, timezone)
    # A row that was written late was behind an earlier run. What came until then waits as well, whether it came while
    # that one was on or while the fleet was down: nobody can tell any more. Unless the run came too late itself.
    too_late = catch_up == "skip" and is_late(run.could_begin, run.began)
    if date <= run.could_begin and overlap == "queue" and not too_late:
        return date
    if date <= run.began:
        if catch_up == "all":
            return date
        date = next_after(recurrence, run.began, timezone)
    if date <= run.ended:
        if overlap == "queue":
            return date
        date = next_after(recurrence, run.ended, timezone)
    if not_before is not None and date < not_before:
        date = first_at_or_after(recurrence, not_before, timezone)
    return date


def is_missed(process_after: datetime, created_at: datetime, status_changed_at: datetime, at: datetime) -> bool:
    """Whether a run that has not begun is so late that a task with `catch_up` `skip` does without it. One that
    somebody has resumed or given another try could begin only then."""
    return is_late(max(process_after, created_at, status_changed_at), at)


def is_late(could_begin: datetime, at: datetime) -> bool:
    return at - could_begin > timedelta(seconds=LATE_SECONDS)


def backoff_seconds(failures: int) -> float:
    """How long after its end a run is not repeated that failed for the `failures`-th time in a row: a minute, two,
    four, at most a day. Dates that come sooner are passed over."""
    if failures <= 0:
        return 0.0
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, _DOUBLINGS), MAX_BACKOFF_SECONDS)
