"""Keeping leases: one UPDATE per process and beat for all its sessions, whatever their providers do.

A lease that is gone (another worker took over while this process was frozen), or that could not be renewed in time,
stops its turn; the fencing token makes sure that such a turn writes nothing more."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from models.database import Database
from models.errors import StoreError
from models.sessions import Lease, renew
from workers.loop import Job, Stop

log = structlog.get_logger()


@dataclass
class Held:
    """A lease being kept. `ending`: the turn lets go by itself, so a lease that is gone was not lost."""

    job: Job
    renewed: float  # by this machine's monotonic clock
    ending: bool = False
    on_mail: Callable[[], None] = lambda: None  # somebody rang for the session meanwhile
    on_control: Callable[[bytes], None] = lambda raw: None  # somebody sits at its terminal


class LeaseKeeper:
    def __init__(
        self, db: Database, owner: str, lease_seconds: float, report: Callable[[int], Awaitable[None]] | None = None
    ) -> None:
        """`report` is told at each beat how many sessions this process runs."""
        self._db = db
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._report = report
        self._held: dict[str, Held] = {}
        self._task = asyncio.create_task(self._run(), name="longshore-leases")

    @contextmanager
    def hold(self, lease: Lease, job: Job) -> Iterator[Held]:
        """Keep a lease while a turn runs; stop the turn's job if the lease is lost."""
        held = self._held[lease.session_id] = Held(job, time.monotonic())
        try:
            yield held
        finally:
            if self._held.get(lease.session_id) is held:
                del self._held[lease.session_id]

    @property
    def running(self) -> int:
        """How many sessions this process runs."""
        return len(self._held)

    def mail(self, session_id: str) -> None:
        """Somebody rang for a session; if it is one of ours, its turn is told."""
        if (held := self._held.get(session_id)) is not None and not held.ending:
            held.on_mail()

    def control(self, session_id: str, raw: bytes) -> None:
        """Somebody wants something of a session's terminal; if it is one of ours, its turn is told."""
        if (held := self._held.get(session_id)) is not None and not held.ending:
            held.on_control(raw)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                if self._held:
                    await self._renew()
                if self._report is not None:
                    await self._report(self.running)
            except StoreError as error:
                log.warning("leases.not_renewed", error=str(error))
            except Exception:  # whatever it is: a process that stops renewing loses all its sessions
                log.exception("leases.not_renewed")
            self._stop_expired()
            await asyncio.sleep(self._lease_seconds / 3)

    async def _renew(self) -> None:
        asked = dict(self._held)
        started = time.monotonic()
        ours = await self._db.transact(
            lambda conn: renew(conn, self._owner, list(asked), self._lease_seconds), patience=self._lease_seconds / 3
        )
        for session_id, held in asked.items():
            if session_id in ours:
                held.renewed = started
                if ours[session_id]:  # the nudge may have been lost
                    self.mail(session_id)
            elif not held.ending and self._held.get(session_id) is held:
                log.warning("lease.lost", session=session_id)
                held.job.stop(Stop.LEASE_LOST)

    def _stop_expired(self) -> None:
        """The database may be away so long that others may believe us dead: then we behave as if we were."""
        limit = time.monotonic() - self._lease_seconds
        for session_id, held in list(self._held.items()):
            if held.renewed < limit and not held.ending:
                log.warning("lease.expired", session=session_id)
                held.job.stop(Stop.LEASE_LOST)
