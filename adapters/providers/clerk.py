"""`clerk`: does what needs no judgement. It is told which tool to call, and what to have approved before, calls it, and
says what came of it. The fleet's own stages (`workers/workflows`) run on it like any agent's: leased, journaled, tried
again, parked while somebody decides, seen in the timeline.

It decides nothing: a tool that fails is tried again by the next attempt at the turn, under an id of its own; a no is
final."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters.contracts import Capabilities, Detection, Manifest, QueryInput, QueryStatus, ToolOutcome
from adapters.errors import ErrorClass, ProviderError
from adapters.events import Failed, ProviderEvent, Result, SessionStarted, ToolCall, ToolResult

VERSION: Final = "1"
MOST_TRIES: Final = 100


class Ask(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Orders(BaseModel):
    """`asks`: calls that must all be answered with a yes before."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str
    asks: tuple[Ask, ...] = ()

    def text(self) -> str:
        """As it is told in a message."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False)


class ClerkProvider:
    manifest = Manifest(
        adapter_id="clerk",
        version=VERSION,
        vendor="longshore",
        kind="scripted",
        capabilities=Capabilities(tools=True, replays_steps=True, plain_texts=True),
    )

    async def detect(self) -> Detection:
        return Detection(installed=True, version=VERSION, details="built in")

    def check(self, options: Mapping[str, Any]) -> None:
        if options:
            raise ProviderError("the clerk has no options", ErrorClass.INVALID_REQUEST)

    def query(self, given: QueryInput) -> "ClerkQuery":
        return ClerkQuery(given)


class ClerkQuery:
    pid: int | None = None

    def __init__(self, given: QueryInput) -> None:
        self._given = given
        self.status: QueryStatus = "starting"
        self.events: AsyncIterator[ProviderEvent] = self._run()

    async def push(self, text: str) -> bool:
        return False

    async def end(self) -> None:
        """It ends by itself."""

    async def abort(self) -> None:
        if self.status in ("starting", "running"):
            self.status = "aborted"

    async def _run(self) -> AsyncIterator[ProviderEvent]:
        if self.status == "aborted":
            return
        self.status = "running"
        yield SessionStarted(continuation="clerk", version=VERSION)
        try:
            orders = Orders.model_validate_json(self._given.messages[-1])
        except (ValidationError, IndexError):
            self.status = "ended"
            yield Result(text="I only do what a workflow tells me to. Write to one of the agents instead.")
            return
        for number, ask in enumerate(orders.asks, 1):
            call_id = f"ask-{number}"
            async for event in self._call(call_id, ask.tool, ask.arguments):
                yield event
            if not self._outcome.ok:
                self.status = "ended"
                yield Result(text=self._outcome.text)
                return
        for number in range(1, MOST_TRIES):
            async for event in self._call(f"do-{number}", orders.tool, {}):
                yield event
            if self._outcome.ok or not self._outcome.replayed:  # else it failed before, and is done anew
                break
        if self._outcome.ok:
            self.status = "ended"
            yield Result(text=self._outcome.text)
        else:
            self.status = "failed"
            yield Failed(message=self._outcome.text, error_class=ErrorClass.TOOL, retryable=True)

    async def _call(self, call_id: str, name: str, arguments: dict[str, Any]) -> AsyncIterator[ProviderEvent]:
        if call_id not in self._given.called:
            yield ToolCall(id=call_id, name=name, preview=", ".join(f"{key}={arguments[key]}" for key in arguments))
        self._outcome: ToolOutcome = await self._given.tools.call(call_id, name, arguments)
        if not self._outcome.replayed:
            yield ToolResult(id=call_id, name=name, ok=self._outcome.ok)
