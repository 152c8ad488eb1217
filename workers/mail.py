"""Mail for a turn that runs: somebody has rung for its session, and the agent is to hear of it.

In our own loop a message joins before the next model call anyway; only one that cannot wait for that interrupts.
Another agent is told, if it listens; one that cannot wait stops a program, whose next attempt goes on with it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from adapters.contracts import Query
from models.database import Database
from models.errors import LeaseLostError, StoreError
from models.inbox import waits_to_interrupt
from workers.follow_ups import FollowUps
from workers.programs import ProgramRun
from workers.tool_loop import ToolLoop

log = structlog.get_logger()

# So long an ending turn waits for a follow-up that the agent was told of to be written down.
JOIN_SECONDS: Final = 10.0


class Mail:
    """`cut_short`: the attempt was stopped for the sake of a message, and the turn goes on at once with it."""

    def __init__(self, db: Database, session_id: str) -> None:
        self._db = db
        self._session_id = session_id
        self._bring: Callable[[], Awaitable[None]] | None = None
        self._is_told = False
        self._rung = False
        self._looking: asyncio.Task[None] | None = None
        self.cut_short = False

    def for_loop(self, loop: ToolLoop) -> None:
        async def bring() -> None:
            call = loop.number
            if await self._cannot_wait() and loop.number == call:  # else it has joined the call that runs now
                loop.interrupt()

        self._bring = bring

    def for_agent(self, query: Query, follow_ups: FollowUps, program: ProgramRun | None) -> None:
        async def bring() -> None:
            if program is not None and program.parked is not None:
                return  # what it says now is no answer; it will be asked when it goes on
            if program is not None and program.remembers and await self._cannot_wait():
                await self._cut_short(query, follow_ups)
            else:
                await follow_ups.pass_on(query)

        self._bring, self._is_told = bring, True

    def ring(self) -> None:
        """Also while the last ring is being looked after."""
        self._rung = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def close(self) -> None:
        """What the agent was told is to be the turn's. (It may be waiting for a program that never answers.) Raises
        LeaseLostError; whatever else went wrong, the message has its turn later."""
        looking = self._looking
        if looking is None or not self._is_told:
            return
        await asyncio.wait({looking}, timeout=JOIN_SECONDS)
        looking.cancel()
        await asyncio.wait({looking})
        error = None if looking.cancelled() else looking.exception()
        if isinstance(error, LeaseLostError):
            raise error
        if error is not None:
            log.warning("turn.mail_not_passed_on", session=self._session_id, error=repr(error))

    def cancel(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        while self._rung and self._bring is not None:
            self._rung = False
            await self._bring()

    async def _cannot_wait(self) -> bool:
        return await self._db.read(lambda conn: waits_to_interrupt(conn, self._session_id))

    async def _cut_short(self, query: Query, follow_ups: FollowUps) -> None:
        self.cut_short = True  # before: a turn that has taken a message must not end without it
        try:
            self.cut_short = await follow_ups.take()
        except StoreError:
            self.cut_short = False
            raise
        if self.cut_short:
            await query.abort()
