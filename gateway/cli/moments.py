"""When, as people type it: `2026-12-01 09:00`, `tomorrow 09:00`, `in 20 minutes`; and for how long: `10m`.

Only what can be read in one way is taken. A time that a zone's clocks skip, or show twice, is asked about rather than
guessed. `at` is the database's clock: the one that the date will be compared with."""

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

FORMS: Final = "`2026-12-01 09:00`, `2026-12-01T09:00+01:00`, `09:00`, `tomorrow 09:00`, or `in 20 minutes`"
_DAYS: Final = {"today": 0, "tomorrow": 1}
_UNITS: Final = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3_600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}
# A unit is read to its end, which an `and` is not taken from: so each text can be read in one way only.
_SPAN: Final = re.compile(r"(?:\d{1,9}\s*[a-z]++\s*(?:,\s*|and\s+)?)+", re.ASCII)
_PART: Final = re.compile(r"(\d+)\s*([a-z]+)", re.ASCII)
_CLOCK: Final = re.compile(r"(?:(today|tomorrow)\s+(?:at\s+)?)?(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
_CALENDAR: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,6})?)?\s*(?:Z|[+-]\d{2}:?\d{2})?", re.ASCII | re.IGNORECASE
)


class MomentError(ValueError):
    """It does not say when, or says it in more than one way."""


def parse_moment(text: str, at: datetime, zone: ZoneInfo) -> datetime:
    """In UTC. What names no offset of its own is the time on the clocks of `zone`."""
    words = " ".join(text.split()).lower()
    try:
        if words == "now":
            return at.astimezone(UTC)
        if words.startswith("in "):
            return at.astimezone(UTC) + timedelta(seconds=parse_span(words.removeprefix("in ")))
        if clock := _CLOCK.fullmatch(words):
            return _on_the_clock(clock, at, zone)
        if _CALENDAR.fullmatch(words):
            moment = datetime.fromisoformat(words.upper().replace(" +", "+").replace(" -", "-").replace(" Z", "Z"))
            return _of_zone(moment, zone) if moment.tzinfo is None else moment.astimezone(UTC)
    except MomentError:
        raise
    except (ValueError, OverflowError):  # an hour 25, a 30th of February, a year 10000
        raise MomentError(f"{text!r} is not a date there is") from None
    raise MomentError(f"{text!r} does not say when; write it like {FORMS}")


def parse_span(text: str) -> int:
    """Seconds. A day is 24 hours; a month is no length of time."""
    words = " ".join(text.split()).lower()
    parts = _PART.findall(words)
    if not _SPAN.fullmatch(words) or any(unit not in _UNITS for _, unit in parts):
        raise MomentError(f"{text!r} is not a length of time; write it like `90s`, `10m`, `2 hours` or `1 day`")
    return sum(int(count) * _UNITS[unit] for count, unit in parts)


def _on_the_clock(clock: re.Match[str], at: datetime, zone: ZoneInfo) -> datetime:
    day, hour, minute, second = clock.groups()
    shown = time(int(hour), int(minute), int(second or 0))
    here = at.astimezone(zone)
    # Without a day it is the next time that the clocks show it.
    days = _DAYS[day] if day is not None else 0 if shown > here.time() else 1
    return _of_zone(datetime.combine(here.date() + timedelta(days=days), shown), zone)


def _of_zone(local: datetime, zone: ZoneInfo) -> datetime:
    first, second = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local:
        raise MomentError(f"{local:%Y-%m-%d %H:%M} is skipped in {zone.key}: its clocks go forward over it")
    if first.utcoffset() != second.utcoffset():
        either = " or ".join(moment.isoformat(timespec="minutes") for moment in (first, second))
        raise MomentError(f"{local:%Y-%m-%d %H:%M} comes twice in {zone.key}, when its clocks go back: write {either}")
    return first.astimezone(UTC)
