"""What any vendor's wire has in common: when to come back, and what it looks like when it breaks. Shared by both
vendors' error and reply mappings."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal

from adapters.errors import ErrorClass
from adapters.model_port import Allowance
from adapters.transcript import Returned

# What reading a stream raises when it holds something else than the protocol says: not JSON, or not the right fields.
NONSENSE: Final = (ValueError, TypeError, AttributeError, LookupError, RuntimeError, AssertionError)
# What a status means for every vendor. Of the others, those below 500 are the request's fault and the rest may pass.
BY_STATUS: Final = {
    401: ErrorClass.AUTH,
    402: ErrorClass.QUOTA,
    403: ErrorClass.AUTH,
    408: ErrorClass.TRANSPORT,
    409: ErrorClass.TRANSPORT,
    429: ErrorClass.RATE_LIMIT,
}
_KINDS: Final[tuple[Literal["requests", "tokens"], ...]] = ("requests", "tokens")
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class StreamFailedError(Exception):
    """The vendor said in the middle of a stream that it failed, and the SDK passes that on as an event."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message, code)
        self.code = code
        self.message = message


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


def result_text(result: Returned) -> str:
    """For wires that have no mark for a failed tool: the text says it."""
    return result.text if result.ok else f"[error] {result.text}"


def allowances(headers: Mapping[str, str]) -> tuple[Allowance, ...]:
    """What OpenAI's headers say is left. One that is not complete is none."""
    found: list[Allowance] = []
    for kind in _KINDS:
        limit = number(headers.get(f"x-ratelimit-limit-{kind}"))
        remaining = number(headers.get(f"x-ratelimit-remaining-{kind}"))
        reset = duration(headers.get(f"x-ratelimit-reset-{kind}", ""))
        if limit is not None and remaining is not None and reset is not None:
            found.append(Allowance(kind, limit, remaining, reset))
    return tuple(found)


def duration(text: str) -> float | None:
    """Seconds of `6m0s`, `1.5s`, `20ms` or a bare number; None for anything else."""
    if (seconds := number(text)) is not None:
        return seconds
    if not text or not re.fullmatch(rf"({_PART.pattern})+", text):
        return None
    return sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))
