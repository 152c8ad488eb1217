"""The next date of a recurring row: computed from the scheduled date, never from the clock, so it does not drift."""

from datetime import UTC, datetime
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


class RecurrenceError(ValueError):
    """A cron expression or time zone that cannot be used."""


def next_after(expression: str, scheduled: datetime, timezone: str = "UTC") -> datetime:
    """The first date after `scheduled` that the expression names, in the task's own time zone; returned in UTC."""
    zone = check_timezone(timezone)
    try:
        following = next(CronSim(ALIASES.get(expression, expression), scheduled.astimezone(zone)))
    except (CronSimError, StopIteration) as error:
        raise RecurrenceError(f"{expression!r} is not a cron expression that ever comes due ({error})") from None
    return following.astimezone(UTC)


def check_timezone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RecurrenceError(f"{name!r} is not a time zone; give an IANA name like Europe/Vienna") from None
