"""The dates a recurring row names: computed from the scheduled date, never from the clock, so they do not drift.

cronsim reads the expression and says which times of the wall clock it names. Which moments those are is decided here.
cronsim's own zones give a date that has passed when they are asked in an hour that the clock repeats, lose dates where
the clock is changed by half an hour (Australia/Lord_Howe), and have one too many where it skips midnight (Cairo)."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS: Final = 5
MAX_LENGTH: Final = 100  # the column's
# They mean something else on another machine, or count leap seconds.
NO_PLACES: Final = ("localtime", "posixrules", "right/")
# Any date will do: the calendar repeats itself within the fifty years that are searched.
SOME_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)
EXAMPLES: Final = (
    "write five fields (minute, hour, day of month, month, day of week), as in '0 9 * * 1-5', "
    "or @hourly, @daily, @weekly, @monthly or @yearly"
)
_MINUTE: Final = timedelta(minutes=1)
_INSTANT: Final = timedelta(microseconds=1)


class RecurrenceError(ValueError):
    """A cron expression or time zone that cannot be used."""


def next_after(expression: str, scheduled: datetime, timezone: str = "UTC") -> datetime:
    """The first date after `scheduled` that the expression names, in the task's own time zone; returned in UTC.

    A time that the clock skips is made up for as soon as it goes on, and one that it repeats comes the first time
    only. An expression whose minute or hour begins with `*` follows the clock instead: not while it skips, and twice
    while it repeats. That is Debian's rule."""
    zone = check_timezone(timezone)
    fields = fields_of(expression)
    follows_clock = len(fields) != FIELDS or fields[0].startswith("*") or fields[1].startswith("*")
    try:
        dates = _next_of_clock if follows_clock else _next_of_times
        return dates(" ".join(fields), scheduled.astimezone(UTC), zone)
    except StopIteration:
        raise _refusal(expression, "no such day in fifty years") from None
    except (CronSimError, ValueError, OverflowError) as error:  # an odd number; the end of the calendar
        raise _refusal(expression, str(error)) from None


def first_at_or_after(expression: str, moment: datetime, timezone: str = "UTC") -> datetime:
    return next_after(expression, moment - _INSTANT, timezone)


def upcoming(expression: str, after: datetime, timezone: str = "UTC", count: int = 5) -> list[datetime]:
    """The next dates after that one."""
    dates: list[datetime] = []
    for _ in range(count):
        dates.append(next_after(expression, dates[-1] if dates else after, timezone))
    return dates


def jittered(scheduled: datetime, series_id: str, jitter_seconds: int) -> datetime:
    """When a run begins that is scheduled for then: less than `jitter_seconds` later, so that a thousand tasks at
    nine do not all begin at nine. Whoever works it out gets the same: two sweeps must not write two rows."""
    if jitter_seconds <= 0:
        return scheduled
    digest = hashlib.sha256(f"{series_id} {int(scheduled.timestamp())}".encode()).digest()
    return scheduled + timedelta(seconds=int.from_bytes(digest[:8]) % jitter_seconds)


def check_recurrence(expression: str, timezone: str = "UTC") -> None:
    """Refuse what a task cannot be scheduled by, in words that say what to write instead."""
    if len(expression) > MAX_LENGTH:
        raise RecurrenceError(f"a recurrence has at most {MAX_LENGTH} characters; {EXAMPLES}")
    fields = fields_of(expression)
    if len(fields) > FIELDS:
        raise RecurrenceError(
            f"{expression!r} has {len(fields)} fields, and a task runs at most once a minute; {EXAMPLES}"
        )
    next_after(expression, SOME_DAY, timezone)


def check_timezone(name: str) -> ZoneInfo:
    try:
        if name.startswith(NO_PLACES):
            raise ValueError
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RecurrenceError(f"{name!r} is not a time zone; give an IANA name like Europe/Vienna") from None


def fields_of(expression: str) -> list[str]:
    """As cron writes it, also for an alias. Not checked."""
    given = expression.strip()
    return ALIASES.get(given.lower(), given).split()


def _next_of_times(expression: str, after: datetime, zone: ZoneInfo) -> datetime:
    for time in _times(expression, _wall(after, zone)):
        while (moment := _moment(time, zone)) is None:
            time += _MINUTE  # the clock skips it: the first minute that there is
        if moment > after:  # not in the second of two same hours: it came in the first
            return moment
    raise StopIteration


def _next_of_clock(expression: str, after: datetime, zone: ZoneInfo) -> datetime:
    wall = _wall(after, zone)
    # How far the clock is put back at the end of the hour (or so) that comes twice, if `after` is in one.
    repeated = _offset(wall, zone, fold=0) - _offset(wall, zone, fold=1)
    found: list[datetime] = []
    for fold in (0, 1) if repeated else (0,):
        moments = (_moment(time, zone, fold) for time in _times(expression, wall - repeated))
        found.append(next(moment for moment in moments if moment is not None and moment > after))
    return min(found)


def _times(expression: str, after: datetime) -> Iterator[datetime]:
    """Times on the wall clock, which knows no zone."""
    return iter(CronSim(expression, after))


def _moment(time: datetime, zone: ZoneInfo, fold: int = 0) -> datetime | None:
    """When the clock shows that, the first or the second time; None: it never does."""
    moment = time.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    return moment if _wall(moment, zone) == time else None


def _wall(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _offset(time: datetime, zone: ZoneInfo, fold: int) -> timedelta:
    return time.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0)


def _refusal(expression: str, why: str) -> RecurrenceError:
    if expression.strip().startswith("@"):
        why = "no such alias"
    return RecurrenceError(f"{expression!r} is not a cron expression that ever comes due ({why}); {EXAMPLES}")
