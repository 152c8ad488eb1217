"""A Query whose talking is done by a task: its driver says events, whoever reads them takes them from here.

A driver writes `converse`: it says events (`await self.say(...)`), and returns when the agent is done or raises
ProviderError. Stopping cancels that task, and nothing of the attempt is left when `abort` returns."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

from adapters.contracts import QueryInput, QueryStatus
from adapters.errors import ProviderError
from adapters.events import Failed, ProviderEvent
from adapters.uninterrupted import uninterrupted

# A reader that is behind holds the agent up, not our memory.
AHEAD: Final = 1000
LONGEST_TEXT: Final = 1 << 18  # characters
LONGEST_VALUE: Final = 1 << 21  # characters of what a call is given; a model writes less in one
CALLS: Final = 200  # that an agent has begun and not ended

T = TypeVar("T")


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
        if self._is_heard:  # once: what it does at its end is not to be interrupted as well
            self._is_heard = False
            task.cancel()
        await uninterrupted(asyncio.wait({task}))

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
        update={"text": f"{text[:LONGEST_TEXT]}\n[cut: it is longer than {LONGEST_TEXT:,} characters]"}
    )


def joined(said: str, more: str) -> str:
    """What comes in pieces, up to one character more than is told: by that it is seen to be cut when it is said."""
    return said if len(said) > LONGEST_TEXT else (said + more[: LONGEST_TEXT + 1])[: LONGEST_TEXT + 1]


def remember(known: dict[str, T], key: str, value: T) -> None:
    """The last ones that an agent has begun, and none that is larger than any should be."""
    if fits([key, value]):
        known[key] = value
    while len(known) > CALLS:
        del known[next(iter(known))]


def fits(value: Any, room: int = LONGEST_VALUE) -> bool:
    """Whether this (of JSON's kinds) has no more characters than that, with one for each thing in it."""
    waiting = [value]
    while waiting and room >= 0:
        one = waiting.pop()
        room -= 1 + (len(one) if isinstance(one, str | list | tuple | dict) else 0)
        if room >= 0 and isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif room >= 0 and isinstance(one, list | tuple):
            waiting += one
    return room >= 0
