"""One run of a program, judged by every check that only looks at what it said: real programs take seconds to start.

What a query said is kept for the rest of the test process. A check that stops, pushes, kills or counts processes needs
a run of its own, and gets one."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from adapters.contracts import Query, QueryInput, QueryStatus
from adapters.events import ProviderEvent
from adapters.providers.conformance import ProbeBox
from adapters.station import ProgramProvider

Key = tuple[str, str, bool]
# How many of a check's queries may be played back: where two runs are compared, one must be new.
PLAYED_BACK: Final[Mapping[str, int]] = {
    "streams_its_answer": 1,
    "says_the_same_for_the_same_work": 1,
    "resumes_a_conversation": 2,
    "calls_our_tool": 1,
    "fails_with_a_class": 1,
    "what_it_cost_is_told": 1,
    "a_limit_is_told_with_its_date": 1,
}


@dataclass(frozen=True)
class Rehearsal:
    events: tuple[ProviderEvent, ...]
    status: QueryStatus
    calls: tuple[tuple[str, str], ...]


_REHEARSALS: Final[dict[Key, Rehearsal]] = {}


class Rehearsed:
    """A provider of which `check` sees what was seen before, as far as that does."""

    def __init__(self, provider: ProgramProvider, check: str) -> None:
        self._provider = provider
        self._left = PLAYED_BACK.get(check, 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def query(self, given: QueryInput) -> Query:
        key = self._provider.manifest.adapter_id, str(given.prompt), given.continuation is not None
        tools = given.tools
        if not isinstance(tools, ProbeBox) or not tools._ok:
            return self._provider.query(given)
        if self._left and key in _REHEARSALS:
            self._left -= 1
            tools.calls.extend(_REHEARSALS[key].calls)
            return _Played(_REHEARSALS[key])
        return _Kept(self._provider.query(given), key, tools)


class _Kept:
    """A query, of which the events are kept if it comes to its own end."""

    def __init__(self, query: Query, key: Key, tools: ProbeBox) -> None:
        self._query = query
        self._key = key
        self._tools = tools
        self.events = self._read()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    async def _read(self) -> AsyncIterator[ProviderEvent]:
        seen: list[ProviderEvent] = []
        async for event in self._query.events:
            seen.append(event)
            yield event
        if self._query.status in ("ended", "failed"):
            _REHEARSALS[self._key] = Rehearsal(tuple(seen), self._query.status, tuple(self._tools.calls))


class _Played:
    pid = None

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal
        self.status: QueryStatus = "starting"
        self.events = self._read()

    async def push(self, text: str) -> bool:
        raise AssertionError("a follow-up is for a program that runs")

    async def end(self) -> None:
        pass

    async def abort(self) -> None:
        pass

    async def _read(self) -> AsyncIterator[ProviderEvent]:
        for event in self._rehearsal.events:
            yield event
        self.status = self._rehearsal.status
