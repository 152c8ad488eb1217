"""Keeping leases: one UPDATE per process and beat for all its sessions, whatever their providers do.

A lease that is gone (another worker took over while this process was frozen, or somebody gave the turn up), or that
could not be renewed in time, stops its turn; the fencing token makes sure that such a turn writes nothing more. A
nudge makes it look at once."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

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
        self._nudged: set[str] = set()
        self._look = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="longshore-leases")

    @contextmanager
    def hold(self, lease: Lease, job: Job) -> Iterator[Held]:
        """Keep a lease while a turn runs; stop the turn's job if the lease is lost."""
        if (before := self._held.get(lease.session_id)) is not None and not before.ending:
            before.job.stop(Stop.LEASE_LOST)  # it was taken from this process, and is this process's again
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
        """Somebody rang for a session, or has taken it; if it is one of ours, its turn is told, or stopped."""
        if (held := self._held.get(session_id)) is not None and not held.ending:
            held.on_mail()
            self._nudged.add(session_id)
            self._look.set()

    def control(self, session_id: str, raw: bytes) -> None:
        """Somebody wants something of a session's terminal; if it is one of ours, its turn is told."""
        if (held := self._held.get(session_id)) is not None and not held.ending:
            held.on_control(raw)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._try(self._beat)
            self._stop_expired()
            await self._until_next_beat()

    async def _beat(self) -> None:
        if self._held:
            await self._renew(dict(self._held), self._lease_seconds / 3)
        if self._report is not None:
            await self._report(self.running)

    async def _until_next_beat(self) -> None:
        """Meanwhile, those that are nudged are looked at, and not for long: the others must not wait."""
        end = time.monotonic() + self._lease_seconds / 3
        while True:
            try:
                async with asyncio.timeout(end - time.monotonic()):
                    await self._look.wait()
            except TimeoutError:
                return
            self._look.clear()
            nudged = {name: self._held[name] for name in self._nudged if name in self._held}
            self._nudged.clear()
            if nudged:
                await self._try(partial(self._renew, nudged, self._lease_seconds / 10))

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except StoreError as error:
            log.warning("leases.not_renewed", error=str(error))
        except Exception:  # whatever it is: a process that stops renewing loses all its sessions
            log.exception("leases.not_renewed")

    async def _renew(self, asked: Mapping[str, Held], patience: float) -> None:
        started = time.monotonic()
        ours = await self._db.transact(
            lambda conn: renew(conn, self._owner, list(asked), self._lease_seconds), patience=patience
        )
        for session_id, held in asked.items():
            if session_id in ours:
                held.renewed = started
                if ours[session_id] and not held.ending:  # the nudge may have been lost
                    held.on_mail()
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
