"""Cron a second time, as slowly and simply as can be: look at the clock on the wall in every minute there is.

It shares nothing with `scheduler.recurrence` but what an expression means, and is what that one is compared with."""

import calendar
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
NAMES = {name: str(MONTHS.index(name) + 1) for name in MONTHS} | {name: str(DAYS.index(name)) for name in DAYS}


class Cron:
    def __init__(self, expression: str) -> None:
        minute, hour, self.day, month, self.weekday = expression.upper().split()
        self.minutes, self.hours, self.months = numbers(minute, 0, 59), numbers(hour, 0, 23), numbers(month, 1, 12)
        self.follows_clock = minute.startswith("*") or hour.startswith("*")
        self._days: dict[tuple[int, int, int], bool] = {}

    def names(self, wall: datetime) -> bool:
        """Whether it names that time on the wall."""
        if wall.minute not in self.minutes or wall.hour not in self.hours:
            return False
        day = (wall.year, wall.month, wall.day)
        if day not in self._days:
            self._days[day] = wall.month in self.months and self._names_day(*day)
        return self._days[day]

    def _names_day(self, year: int, month: int, day: int) -> bool:
        found = [
            any(_is_day(item, year, month, day) for item in self.day.split(",")),
            any(_is_weekday(item, year, month, day) for item in self.weekday.split(",")),
        ]
        # Both fields restrict: either is enough. One is (or begins with) a star: both are needed.
        starred = self.day.startswith("*") or self.weekday.startswith("*")
        return all(found) if starred else any(found)

    def dates(self, after: datetime, until: datetime, zone: str, every: timedelta = MINUTE) -> list[datetime]:
        """All later than `after`, none later than `until`, in UTC. `every`: how often to look; half an hour is enough
        for what comes at full and half hours only, in zones that are whole and half hours from UTC."""
        looks = walls(zone, after - timedelta(hours=3), until, every)  # no clock is put back by more
        if self.follows_clock:
            return [moment for moment, wall in looks if moment > after and self.names(wall)]
        found = []
        _, highest = next(looks)  # the clock has shown all up to this
        for moment, wall in looks:
            # One as a rule; none while the clock repeats itself; those it has skipped as well when it goes on.
            new = [highest + every * step for step in range(1, (wall - highest) // every + 1)]
            if moment > after and any(map(self.names, new)):
                found.append(moment)
            highest = max(highest, wall)
        return found


def walls(zone: str, after: datetime, until: datetime, every: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """Every minute after that, and what the clock shows then."""
    place = ZoneInfo(zone)
    moment = after.astimezone(UTC).replace(second=0, microsecond=0) + MINUTE
    moment += (datetime.min.replace(tzinfo=UTC) - moment) % every
    while moment <= until:
        yield moment, moment.astimezone(place).replace(tzinfo=None)
        moment += every


@cache
def clock_changes(zone: str, year: int) -> list[datetime]:
    """The moments of that year at which the clock is put forward or back."""
    first = datetime(year, 1, 1, tzinfo=UTC)
    days = [first + timedelta(days=day) for day in range(366)]
    changed = [day for day in days if _offset(zone, day) != _offset(zone, day + timedelta(days=1))]
    halves = [day + timedelta(minutes=30) * half for day in changed for half in range(1, 49)]
    return [moment for moment in halves if _offset(zone, moment) != _offset(zone, moment - timedelta(minutes=30))]


def _offset(zone: str, moment: datetime) -> timedelta | None:
    return moment.astimezone(ZoneInfo(zone)).utcoffset()


@cache
def numbers(field: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        if span == "*":
            low, high = least, most
        else:
            first, _, last = span.partition("-")
            low = int(NAMES.get(first, first))
            high = int(NAMES.get(last, last)) if last else most if step else low
        found |= set(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def _is_day(item: str, year: int, month: int, day: int) -> bool:
    length = calendar.monthrange(year, month)[1]
    if item == "L":
        return day == length
    if item == "LW":
        working = [one for one in range(1, length + 1) if calendar.weekday(year, month, one) < calendar.SATURDAY]
        return day == working[-1]
    return day in numbers(item, 1, 31)


def _is_weekday(item: str, year: int, month: int, day: int) -> bool:
    sunday_first = (calendar.weekday(year, month, day) + 1) % 7
    if item.endswith("L"):
        name, in_week = item[:-1], day + 7 > calendar.monthrange(year, month)[1]
    else:
        name, _, which = item.partition("#")
        in_week = not which or (day - 1) // 7 + 1 == int(which)
    return in_week and sunday_first in {number % 7 for number in numbers(name, 0, 7)}
