"""Dates and recurrences in words, for people and agents. Never fails: a row that got in with a recurrence or a time
zone nobody here knows must still be listed."""

import re
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from typing import Final

from cronsim import CronSim, CronSimError

from scheduler.recurrence import RecurrenceError, check_timezone, fields_of, upcoming

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
NEXT_DATES: Final = 5
# cronsim calls them `every second minute of every hour` and `at minute 0 past every second hour`.
_STEPS: Final = (
    (r"\*/([1-9][0-9]?) \* \* \* \*", HOUR // MINUTE, "minute"),
    (r"0 \*/([1-9][0-9]?) \* \* \*", DAY // HOUR, "hour"),
)


def when(date: datetime, timezone: str, at: datetime | None = None) -> str:
    """`Tue 17 Nov 2026, 09:00 CET`; with seconds if it has any, and with how far away it is if `at` says from when."""
    local = date.astimezone(zone_or_utc(timezone))
    time = local.strftime("%H:%M:%S" if local.second else "%H:%M")
    # Many zones have no letters, only +0545.
    zone = re.sub(r"^(?=[+-])", "UTC", local.strftime("%Z"))
    words = f"{local:%a} {local.day} {local:%b %Y}, {time} {zone}"
    return words if at is None else f"{words}, {distance(date, at)}"


def zone_or_utc(name: str) -> tzinfo:
    """To show dates in: UTC if nobody here knows the zone."""
    try:
        return check_timezone(name)
    except RecurrenceError:
        return UTC


def distance(date: datetime, at: datetime) -> str:
    """`in 14 hours`, `3 minutes ago`: in the largest unit of which there are two, rounded down."""
    seconds = (date - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    words = duration(abs(seconds))
    return f"in {words}" if seconds > 0 else f"{words} ago"


def duration(seconds: float) -> str:
    for unit, name in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if seconds >= 2 * unit or seconds == unit:
            return _counted(int(seconds // unit), name)
    return _counted(int(seconds), "second")


def often(recurrence: str | None) -> str:
    """`At 09:00 on Monday through Friday`; `Once` without a recurrence."""
    if recurrence is None:
        return "Once"
    expression = " ".join(fields_of(recurrence))
    for pattern, whole, unit in _STEPS:
        match = re.fullmatch(pattern, expression)
        if match and whole % int(match[1]) == 0:  # else the last step is a shorter one
            return f"Every {_counted(int(match[1]), unit).removeprefix('1 ')}"
    try:
        explained: str = CronSim(expression, datetime(2000, 1, 1)).explain()
    except (CronSimError, ValueError):
        return recurrence
    return re.sub(r"\b(\d*[02-9])?([123])th\b", _ordinal, explained)


def next_dates(recurrence: str | None, first: datetime, timezone: str, at: datetime | None = None) -> list[datetime]:
    """The next five dates, if each run is on time: `first`, which may be late, and those to come after `at`."""
    dates = [first]
    if recurrence is not None:
        with suppress(RecurrenceError):
            dates += upcoming(recurrence, max(first, at or first), timezone, NEXT_DATES - 1)
    return dates


def next_runs(
    recurrence: str | None, first: datetime, timezone: str, jitter_seconds: int = 0, at: datetime | None = None
) -> list[str]:
    """The same in words, a line each."""
    later = f" (begins up to {duration(jitter_seconds)} later)" if jitter_seconds > 0 else ""
    return [when(date, timezone, at) + later for date in next_dates(recurrence, first, timezone, at)]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ordinal(match: re.Match[str]) -> str:
    """cronsim says 21th."""
    return f"{match[1] or ''}{match[2]}{ {'1': 'st', '2': 'nd', '3': 'rd'}[match[2]] }"
