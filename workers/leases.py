"""Keeping leases: one UPDATE per process and beat for all its sessions, whatever their providers do.

A lease that is gone (another worker took over while this process was frozen), or that could not be renewed in time,
stops its turn; the fencing token makes sure that such a turn writes nothing more."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from models.database import Database
from models.errors import StoreError
from models.sessions import Lease, renew
from workers.loop import Job, Stop

log = structlog.get_logger()


class LeaseKeeper:
    def __init__(
        self, db: Database, owner: str, lease_seconds: float, report: Callable[[int], Awaitable[None]] | None = None
    ) -> None:
        """`report` is told at each beat how many sessions this process runs."""
        self._db = db
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._report = report
        self._held: dict[str, tuple[Job, float]] = {}  # session -> its job, and when its lease was last good
        self._task = asyncio.create_task(self._run(), name="longshore-leases")

    def hold(self, lease: Lease, job: Job) -> None:
        self._held[lease.session_id] = (job, time.monotonic())

    def drop(self, lease: Lease) -> None:
        self._held.pop(lease.session_id, None)

    @property
    def count(self) -> int:
        return len(self._held)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                if self._held:
                    await self._renew()
                if self._report is not None:
                    await self._report(len(self._held))
            except StoreError as error:
                log.warning("leases.not_renewed", error=str(error))
            self._stop_expired()
            await asyncio.sleep(self._lease_seconds / 3)

    async def _renew(self) -> None:
        asked = list(self._held)
        started = time.monotonic()
        ours = await self._db.transact(
            lambda conn: renew(conn, self._owner, asked, self._lease_seconds), patience=self._lease_seconds / 3
        )
        for session_id in asked:
            if session_id not in self._held:
                continue  # ended meanwhile
            job, since = self._held[session_id]
            if session_id in ours:
                self._held[session_id] = (job, started)
            elif since < started:
                log.warning("lease.lost", session=session_id)
                job.stop(Stop.LEASE_LOST)

    def _stop_expired(self) -> None:
        """The database may be away so long that others may believe us dead: then we behave as if we were."""
        limit = time.monotonic() - self._lease_seconds
        for session_id, (job, since) in list(self._held.items()):
            if since < limit:
                log.warning("lease.expired", session=session_id)
                job.stop(Stop.LEASE_LOST)
