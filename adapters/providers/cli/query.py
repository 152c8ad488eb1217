"""One attempt of a CLI agent, as the Query contract wants it: a task does the talking, its events come out here.

A driver writes `converse`: it starts its program, says events (`await self.say(...)`), and returns when the agent is
done or raises ProviderError. Stopping cancels that task, and nothing of the program is left when `abort` returns."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from adapters.contracts import QueryInput, QueryStatus
from adapters.errors import ProviderError
from adapters.events import ApprovalRequested, Failed, ProviderEvent, SessionStarted, Stderr
from adapters.providers.cli.installation import Installation
from adapters.providers.cli.key_proxy import Pass
from adapters.providers.cli.program import Program, started, station_of
from adapters.risk import Intent
from adapters.sandbox.port import Door
from adapters.station import Permission

# A reader that is behind holds the program up, not our memory.
AHEAD: Final = 1000
LONGEST_TEXT: Final = 1 << 18  # characters


class ProgramQuery(ABC):
    def __init__(self, given: QueryInput) -> None:
        self.given: Final = given
        self.events: AsyncIterator[ProviderEvent] = self._read()
        self.status: QueryStatus = "starting"
        self.pid: int | None = None
        self.waits = False  # a person was asked: the program is to end as soon as it can
        self._said: asyncio.Queue[ProviderEvent | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(AHEAD)
        self._task: asyncio.Task[None] | None = None
        self._begun = False
        self._early: list[Stderr] = []

    @abstractmethod
    async def converse(self) -> None:
        """Talk with the program until the agent is done."""

    @abstractmethod
    async def push(self, text: str) -> bool:
        """A follow-up. False: it comes too late, and the agent has not seen it."""

    @asynccontextmanager
    async def start(
        self,
        installation: Installation,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        doors: Sequence[Door],
        files: Mapping[str, str] | None = None,
        outside: bool = False,
    ) -> AsyncIterator[Program]:
        """The program, with its stderr among the events; gone when this is left (`program.started`)."""
        async with started(
            installation, arguments, self.given, self.say, env=env, doors=doors, files=files, outside=outside
        ) as program:
            self.pid = program.pid
            yield program

    async def say(self, event: ProviderEvent) -> None:
        """What a program prints on stderr while it starts comes after the first event."""
        if isinstance(event, Stderr) and not self._begun:
            self._early.append(event)
            return
        await self._room.acquire()
        self._said.put_nowait(_bounded(event))

    async def begin(self, continuation: str, version: str) -> None:
        """The first event; said once, however often a program announces its session."""
        if not self._begun:
            self._begun = True
            await self.say(SessionStarted(continuation=continuation, version=version))
            await self._say_early()

    async def _say_early(self) -> None:
        self._begun = True
        early, self._early = self._early, []
        for event in early:
            await self.say(event)

    async def ask(self, intent: Intent) -> Permission:
        """Whether the program may do what it says. If a person has to say so, that is an event as well."""
        permission = await station_of(self.given).guard.ask(intent)
        if permission.word == "wait":
            self.waits = True
            await self.say(
                ApprovalRequested(category=permission.category, summary=permission.summary, risk=permission.risk)
            )
        return permission

    async def end(self) -> None:  # noqa: B027 - for none of them: an agent ends when it has answered what it was asked
        """No more input will come."""

    async def abort(self) -> None:
        if self.status in ("starting", "running"):
            self.status = "aborted"
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

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
            self._task.cancel()
            await asyncio.wait({self._task})

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
                await self._say_early()
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


def with_trouble(error: ProviderError, admitted: Pass) -> ProviderError:
    """What the model's server said is nearer to the truth than how a program retells it."""
    return admitted.trouble or error
