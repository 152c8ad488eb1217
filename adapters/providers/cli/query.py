"""One attempt of a CLI agent, as the Query contract wants it (`adapters/providers/talking.py`).

A driver writes `converse`: it starts its program, says events, and returns when the agent is done or raises
ProviderError. Nothing of the program is left when `abort` returns."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from adapters.contracts import QueryInput
from adapters.errors import ProviderError
from adapters.events import ApprovalRequested, Failed, ProviderEvent, SessionStarted, Stderr
from adapters.providers.cli.installation import Installation
from adapters.providers.cli.key_proxy import Pass
from adapters.providers.cli.program import Program, started, station_of
from adapters.providers.talking import TalkingQuery
from adapters.risk import Intent
from adapters.sandbox.port import Door
from adapters.station import Permission


class ProgramQuery(TalkingQuery):
    def __init__(self, given: QueryInput) -> None:
        super().__init__(given)
        self.waits = False  # a person was asked: the program is to end as soon as it can
        self._begun = False
        self._early: list[Stderr] = []

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
        if isinstance(event, Failed):
            await self._say_early()
        await super().say(event)

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


def with_trouble(error: ProviderError, admitted: Pass) -> ProviderError:
    """What the model's server said is nearer to the truth than how a program retells it."""
    return admitted.trouble or error
