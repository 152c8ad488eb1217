"""What any vendor's wire has in common: when to come back, and what it looks like when it breaks. Shared by both
vendors' error and reply mappings."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

# What reading a stream raises when it holds something else than the protocol says: not JSON, or not the right fields.
NONSENSE: Final = (ValueError, TypeError, AttributeError, LookupError, RuntimeError, AssertionError)


def is_broken_connection(error: Exception) -> bool:
    """Whether it is an error of the HTTP client: the SDKs let some through in the middle of a stream."""
    import aiohttp  # only now: both are slow to import, and whoever gets here has them
    import httpx2

    return isinstance(error, httpx2.HTTPError | httpx2.StreamError | aiohttp.ClientError | TimeoutError | OSError)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from `retry-after-ms` or `retry-after` (seconds or a date); None if the vendor did not say."""
    if (milliseconds := number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    given = headers.get("retry-after")
    if (seconds := number(given)) is not None:
        return seconds
    try:
        date = parsedate_to_datetime(given or "")
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def number(text: str | None) -> float | None:
    """A finite number, not below zero, or None."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None
