"""`parrot`: repeats what it hears, word by word. A message may begin with what the bird should do instead:

`use TOOL` calls a tool and repeats what it says; `listen` waits for a follow-up and repeats that; `moult` fails until
another day; `sleep` says nothing more; `fall` breaks in a way nobody planned. It keeps no state and starts nothing."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from adapters.contracts import Capabilities, Detection, Manifest, QueryInput, QueryStatus
from adapters.errors import ErrorClass, ProviderError
from adapters.events import (
    Failed,
    ProviderEvent,
    Result,
    SessionStarted,
    TextDelta,
    ToolCall,
    ToolResult,
    UsageReport,
)

VERSION = "1.0"
MAX_REMEMBERED = 200  # characters


class ParrotProvider:
    manifest = Manifest(
        adapter_id="parrot",
        version=VERSION,
        vendor="Example Aviaries",
        kind="scripted",
        models=("grey",),
        capabilities=Capabilities(streaming=True, tools=True, resume=True, push=True, replays_steps=True),
    )

    async def detect(self) -> Detection:
        return Detection(installed=True, version=VERSION, details="on its perch")

    def check(self, options: Mapping[str, Any]) -> None:
        """Option: `call`, the bird's first word."""
        if unknown := set(options) - {"call"}:
            raise ProviderError(
                f"parrot has no option {', '.join(sorted(unknown))}; it has: call", ErrorClass.INVALID_REQUEST
            )
        if not isinstance(options.get("call", ""), str):
            raise ProviderError("call: it must be a word", ErrorClass.INVALID_REQUEST)

    def query(self, given: QueryInput) -> "ParrotQuery":
        return ParrotQuery(given)


class ParrotQuery:
    pid: int | None = None

    def __init__(self, given: QueryInput) -> None:
        self._given = given
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self._stop = asyncio.Event()
        self.status: QueryStatus = "starting"
        self.events: AsyncIterator[ProviderEvent] = self._run()

    async def push(self, text: str) -> bool:
        if self.status not in ("starting", "running"):
            return False
        self._heard.put_nowait(text)
        return True

    async def end(self) -> None:
        """A parrot knows when to stop."""

    async def abort(self) -> None:
        self._stop.set()
        if self.status in ("starting", "running"):
            self.status = "aborted"

    async def _run(self) -> AsyncIterator[ProviderEvent]:
        if self._stop.is_set():
            return
        self.status = "running"
        try:
            async for event in self._perform():
                if self._stop.is_set():
                    return
                yield event
        except Exception:
            self.status = "failed"
            raise
        if self.status == "running" and not self._stop.is_set():
            self.status = "ended"

    async def _perform(self) -> AsyncIterator[ProviderEvent]:
        text = self._given.messages[-1] if self._given.messages else str(self._given.prompt)
        # What it remembers of a conversation is all in the continuation, so any machine can go on with it.
        yield SessionStarted(continuation=text[:MAX_REMEMBERED], version=VERSION)
        trick, _, rest = text.partition(" ")
        match trick:
            case "moult":
                self.status = "failed"
                error_class = ErrorClass.RATE_LIMIT
                yield Failed(
                    message="the bird is moulting",
                    error_class=error_class,
                    retryable=error_class.can_pass,
                    retry_after=7,
                )
                return
            case "fall":
                raise RuntimeError("the bird fell off its perch")
            case "sleep":
                await self._stop.wait()
                return
            case "listen":
                text = await self._follow_up()
            case "use":
                # The same number in every attempt, so that the fleet finds what was done before.
                yield ToolCall(id="call-1", name=rest)
                outcome = await self._given.tools.call("call-1", rest, {})
                yield ToolResult(id="call-1", name=rest, ok=outcome.ok)
                text = outcome.text
        async for event in self._say(text):
            yield event

    async def _say(self, text: str) -> AsyncIterator[ProviderEvent]:
        before = f" You said {self._given.continuation!r} before." if self._given.continuation else ""
        answer = f"{self._given.options.get('call', 'Squawk!')} {text}{before}"
        for word in answer.split(" "):
            yield TextDelta(text=f"{word} ")
        yield UsageReport(model="grey", input_tokens=len(text.split()), output_tokens=len(answer.split()), cost_usd=0)
        yield Result(text=answer)

    async def _follow_up(self) -> str:
        heard, stopped = asyncio.ensure_future(self._heard.get()), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([heard, stopped], return_when=asyncio.FIRST_COMPLETED)
            return heard.result() if heard.done() else ""
        finally:
            heard.cancel()
            stopped.cancel()
