"""The circuit breaker: a provider that keeps failing is left alone for a while, then one caller tries it again.

Its state is a row, so the whole fleet shares it and `longshore providers` shows it. What was read is remembered for a
moment; writing happens only when something changes."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import ErrorClass, ProviderError
from models.base import AnyRow
from models.database import Database
from models.fleet import health_of, may_probe, note_failure, note_limited, note_success

log = structlog.get_logger()

REMEMBER_SECONDS = 1.0
FAILURES = 5
PAUSE_SECONDS = 10.0
LONGEST_SECONDS = 300.0
# A probe that has not come back after this is taken for lost, and another caller may try.
PROBE_SECONDS = 60.0
# How long people are shown that a key was refused or an account is empty.
SHOWN_SECONDS = 300.0

Account = tuple[str, str]  # provider, fingerprint of the key


class Breaker:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[Account, tuple[float, AnyRow | None]] = {}
        # Hundreds of turns find the same memory stale at the same moment; one of them reads for all.
        self._reading = asyncio.Lock()

    async def wait(self, account: Account) -> float:
        """Seconds until the provider may be asked again; 0: it is not down, or somebody may try (`try_again`)."""
        return max(await self._remaining(account) or 0.0, 0.0)

    async def try_again(self, account: Account) -> float:
        """The last question before a call, since for one that is down it is answered with 0 once: to its probe."""
        remaining = await self._remaining(account)
        if remaining is None:
            return 0.0
        if remaining > 0:
            return remaining
        probes = await self._db.transact(lambda conn: may_probe(conn, *account, PROBE_SECONDS))
        self._known.pop(account, None)
        if probes:
            log.info("breaker.probe", provider=account[0])
            return 0.0
        # Somebody else tries. Come back soon rather than when the probe is given up: it will mostly succeed.
        remaining = await self._remaining(account)
        return 0.0 if remaining is None else min(max(remaining, 0.1), PAUSE_SECONDS)

    async def succeeded(self, account: Account) -> None:
        row = await self._state(account)
        if row is not None and (row.state != "ok" or row.failures):
            await self._note(account, lambda conn: note_success(conn, *account))

    async def failed(self, account: Account, error: ProviderError) -> None:
        match error.error_class:
            case ErrorClass.TRANSPORT | ErrorClass.PROVIDER_HANG:
                limits = {"threshold": FAILURES, "pause": PAUSE_SECONDS, "longest": LONGEST_SECONDS}
                await self._note(account, lambda conn: note_failure(conn, *account, str(error), **limits))  # type: ignore[arg-type]
            case ErrorClass.RATE_LIMIT | ErrorClass.QUOTA | ErrorClass.AUTH:
                seconds = error.retry_after or SHOWN_SECONDS
                await self._note(account, lambda conn: note_limited(conn, *account, str(error), seconds))
            case ErrorClass.INVALID_REQUEST | ErrorClass.CONTEXT_TOO_LONG:
                await self.succeeded(account)  # it has answered, whatever it said

    async def _note(self, account: Account, work: Callable[[AsyncConnection], Awaitable[None]]) -> None:
        await self._db.transact(work)
        self._known.pop(account, None)

    async def _remaining(self, account: Account) -> float | None:
        """None: it is not down."""
        row = await self._state(account)
        if row is None or row.state != "down" or row.until is None:
            return None
        return float((row.until - row.at).total_seconds()) - (time.monotonic() - self._known[account][0])

    async def _state(self, account: Account) -> AnyRow | None:
        if not self._remembers(account):
            async with self._reading:
                if not self._remembers(account):
                    row = await self._db.read(lambda conn: health_of(conn, *account))
                    # The time of the answer: on a busy loop it may have taken so long that the next would ask again.
                    self._known[account] = (time.monotonic(), row)
        return self._known[account][1]

    def _remembers(self, account: Account) -> bool:
        known = self._known.get(account)
        return known is not None and time.monotonic() - known[0] <= REMEMBER_SECONDS
