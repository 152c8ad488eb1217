"""Dates as agents write them, for every tool that takes one: read alike, refused in the same words."""

from datetime import datetime
from typing import Final

from adapters.errors import ToolError

MAX_DATE: Final = 60
MAX_RECURRENCE: Final = 100
MAX_TIMEZONE: Final = 50


def read_date(text: str, parameter: str) -> datetime:
    """`parameter`: what the agent calls it."""
    try:
        date = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ToolError(
            f"{parameter}: {text!r} is not an ISO 8601 timestamp; write it like 2026-01-31T09:00:00+01:00"
        ) from None
    if date.tzinfo is None:
        raise ToolError(
            f"{parameter}: {text!r} does not say in which zone it is meant; add the offset, "
            f"for example {date.isoformat()}+01:00, or Z for UTC"
        )
    if not 1970 < date.year < 3000:
        raise ToolError(f"{parameter} must lie between the years 1971 and 2999")
    return date
