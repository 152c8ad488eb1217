"""A Query whose talking is done by a task: its driver says events, whoever reads them takes them from here.

A driver writes `converse`: it says events (`await self.say(...)`), and returns when the agent is done or raises
ProviderError. Stopping cancels that task, and nothing of the attempt is left when `abort` returns."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Final

from adapters.contracts import QueryInput, QueryStatus
from adapters.errors import ProviderError
from adapters.events import Failed, ProviderEvent

# A reader that is behind holds the agent up, not our memory.
AHEAD: Final = 1000
LONGEST_TEXT: Final = 1 << 18  # characters


class TalkingQuery(ABC):
    def __init__(self, given: QueryInput) -> None:
        self.given: Final = given
        self.events: AsyncIterator[ProviderEvent] = self._read()
        self.status: QueryStatus = "starting"
        self.pid: int | None = None
        self._said: asyncio.Queue[ProviderEvent | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(AHEAD)
        self._task: asyncio.Task[None] | None = None
        self._is_heard = True

    @abstractmethod
    async def converse(self) -> None:
        """Talk with the agent until it is done."""

    @abstractmethod
    async def push(self, text: str) -> bool:
        """A follow-up. False: it comes too late, and the agent has not seen it."""

    async def say(self, event: ProviderEvent) -> None:
        if self._is_heard:  # else nobody would make room for it
            await self._room.acquire()
            self._said.put_nowait(_bounded(event))

    async def end(self) -> None:  # noqa: B027 - for none of them: an agent ends when it has answered what it was asked
        """No more input will come."""

    async def abort(self) -> None:
        if self.status in ("starting", "running"):
            self.status = "aborted"
        if self._task is not None:
            await self._stop(self._task)

    async def _read(self) -> AsyncIterator[ProviderEvent]:
        if self.status == "aborted":
            return
        self._task = asyncio.create_task(self._work())
        try:
            while (event := await self._said.get()) is not None:
                self._room.release()
                if self.status == "starting":
                    self.status = "running"
                yield event
            await self._task  # a driver's bug is the reader's to see
        finally:
            await self._stop(self._task)

    async def _stop(self, task: asyncio.Task[None]) -> None:
        self._is_heard = False
        task.cancel()
        await asyncio.wait({task})

    async def _work(self) -> None:
        try:
            await self.converse()
            ended: QueryStatus = "ended"
        except ProviderError as error:
            ended = "failed"
            failed = Failed(
                message=str(error),
                error_class=error.error_class,
                retryable=error.error_class.can_pass,
                retry_after=error.retry_after,
            )
            if self.status != "aborted":
                await self.say(failed)
        except asyncio.CancelledError:
            ended = "aborted"
        except Exception:
            ended = "failed"
            raise
        finally:
            if self.status != "aborted":
                self.status = ended
            self._said.put_nowait(None)


def _bounded(event: ProviderEvent) -> ProviderEvent:
    """Whatever a program makes of itself: everything that is told is searched for secrets, on everybody's loop."""
    text = getattr(event, "text", "")
    if len(text) <= LONGEST_TEXT:
        return event
    return event.model_copy(
        update={"text": f"{text[:LONGEST_TEXT]}\n[cut: {len(text) - LONGEST_TEXT} characters more]"}
    )
