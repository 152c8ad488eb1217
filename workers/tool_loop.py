"""The one tool loop of all API providers: ask the model, run the tools it wants, tell it what they said, until it ends.

It knows no vendor and no database. What it asks and hears goes through a `Notebook`: an attempt that begins anew walks
through what earlier ones had finished and goes on behind it. A `Gate` says when a call may be made."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final, Protocol

from adapters.contracts import ParkedError, QueryInput, QueryStatus, ToolOutcome
from adapters.errors import ErrorClass, ProviderError
from adapters.events import (
    Failed,
    Message,
    Progress,
    ProviderEvent,
    Result,
    SessionStarted,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    UsageReport,
)
from adapters.model_port import ModelFacts, ModelProvider, ModelReply, ModelRequest
from adapters.transcript import Called, Item, ReplyItem, Returned, Said, Shown
from workers.compaction import Compactor
from workers.context import estimate, shrink
from workers.notebook import Notebook, Opened, remembered

DEFAULT_MAX_TOKENS: Final = 8192
# Pieces of text that come within this time are shown as one: a reader sees no difference, the wire does.
GATHER_SECONDS: Final = 0.1
REFUSED: Final = "The model declined to answer this."
PREVIEW_LIMIT: Final = 200
LEAST_SUMMARISED: Final = 500


Piece = TextDelta | Thinking | ModelReply | None


class Gate(Protocol):
    """Who may call a model now. Raises ProviderError(asked=False) with `retry_after` when it is not the time."""

    async def enter(self, number: int, request: ModelRequest, facts: ModelFacts) -> None: ...

    async def leave(self, number: int, request: ModelRequest, reply: ModelReply) -> None: ...

    async def failed(self, request: ModelRequest, error: ProviderError) -> None: ...


class OpenGate:
    """Everybody may always call."""

    async def enter(self, number: int, request: ModelRequest, facts: ModelFacts) -> None: ...

    async def leave(self, number: int, request: ModelRequest, reply: ModelReply) -> None: ...

    async def failed(self, request: ModelRequest, error: ProviderError) -> None: ...


class _Aborted(Exception):  # noqa: N818 - a way out, not an error
    """Somebody called abort()."""


class ToolLoop:
    """A `Query` over a `ModelProvider`."""

    pid: int | None = None

    def __init__(
        self,
        provider: ModelProvider,
        given: QueryInput,
        notebook: Notebook,
        gate: Gate | None = None,
        compactor: Compactor | None = None,
        alive: Callable[[], None] = lambda: None,
        load: Callable[[tuple[Item, ...]], Awaitable[tuple[Item, ...]]] | None = None,
        wants_room: Callable[[], bool] = lambda: False,
    ) -> None:
        """`alive` is called whenever the model gives a sign of life, also one that shows nothing. `load` fills in what
        is shown (pictures) for the time of one call: it is large, and never kept. `wants_room`: whether somebody wants
        earlier turns to be summed up although there is room."""
        self._provider = provider
        self._given = given
        self._notebook = notebook
        self._gate = gate or OpenGate()
        self._compactor = compactor
        self._alive = alive
        self._load = load
        self._wants_room = wants_room
        self._model = given.model or provider.default_model
        self._facts = provider.facts(self._model, given.options)
        self._max_tokens = int(given.options.get("max_tokens", DEFAULT_MAX_TOKENS))
        self._iterations = int(given.options.get("iterations", given.limits.iterations))
        self._history: tuple[Item, ...] = notebook.history
        self._pushed: list[str] = []
        self._waiting: asyncio.Timeout | None = None
        self._asking = self._interrupted = False
        self._tools: list[asyncio.Task[ToolOutcome]] = []
        # Cut tool results of this turn down to so many tokens; set when the conversation is too long even so.
        self._squeeze: int | None = None
        # The model call under way, or the last one.
        self.number = 0
        # What was said in this turn, the prompt included: its part of the transcript.
        self.said: list[Item] = []
        self.status: QueryStatus = "starting"
        self.events: AsyncGenerator[ProviderEvent, None] = self._run()

    async def push(self, text: str) -> bool:
        self._pushed.append(text)
        return self.status in ("starting", "running")

    async def end(self) -> None:
        """It ends when the model has said its last word."""

    async def abort(self) -> None:
        if self.status in ("starting", "running"):
            self.status = "aborted"
            self._wake_reader()
            for task in self._tools:
                task.cancel()
        with suppress(RuntimeError):  # somebody is reading: they end it
            await self.events.aclose()

    def interrupt(self) -> None:
        """Stop what the model is saying, keep what it has said, and go on with what users have said since."""
        if self._asking:
            self._interrupted = True
            self._wake_reader()

    def _is_aborted(self) -> bool:
        return self.status == "aborted"

    def _wake_reader(self) -> None:
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def _run(self) -> AsyncGenerator[ProviderEvent, None]:
        if self.status == "aborted":
            return
        self.status = "running"
        yield SessionStarted(continuation=self._notebook.conversation, version=self._provider.manifest.version)
        try:
            async with aclosing(self._converse()) as events:
                async for event in events:
                    yield event
                    if self._is_aborted():
                        return
        except _Aborted:
            return
        except ProviderError as error:
            self.status = "failed"
            yield Failed(
                message=str(error),
                error_class=error.error_class,
                retryable=error.error_class.can_pass,
                retry_after=error.retry_after,
                asked=error.asked,
            )
            return
        except Exception:
            self.status = "failed"
            raise
        if self.status == "running":
            self.status = "ended"

    async def _converse(self) -> AsyncGenerator[ProviderEvent, None]:
        last_word = False
        while True:
            self.number = number = self.number + 1
            if number > self._iterations:
                raise ProviderError(
                    f"the agent did not come to an end within {self._iterations} model calls; "
                    "if it needs more, raise the group's option `iterations`",
                    ErrorClass.INVALID_REQUEST,
                )
            pushed, self._pushed = self._pushed, []
            opened = await self._notebook.begin(number, pushed=pushed, only_if_asked=last_word)
            if last_word and not opened.joined:
                if self._last.stop == "interrupted" and (text := _text(self._last)):
                    yield Result(text=text)  # nobody has said anything after all: it was the answer
                return
            self.said += opened.joined
            async with aclosing(self._reply(number, opened)) as events:
                async for event in events:
                    yield event
            reply = self._last
            self.said += reply.items
            calls = [item for item in reply.items if isinstance(item, Called)]
            if calls:
                async with aclosing(self._run_tools(calls)) as events:
                    async for event in events:
                        yield event
                last_word = False
                continue
            interrupted = reply.stop == "interrupted"
            text = _text(reply) or (REFUSED if reply.stop == "refused" else "")
            if text and not interrupted:
                yield Result(text=text)
            elif text and opened.reply is None:
                yield Message(text=text)
            if opened.reply is None and not self._pushed and not interrupted:
                return
            last_word = True

    async def _reply(self, number: int, opened: Opened) -> AsyncGenerator[ProviderEvent, None]:
        """The model's next message, in `self._last`: from the notebook, or by asking."""
        if opened.reply is not None:
            self._last = opened.reply
            return
        self._asking, self._interrupted = True, False
        try:
            async with aclosing(self._ask(number)) as events:
                async for event in events:
                    yield event
        finally:
            self._asking = False
        self._last = reply = self._named(number, self._last)
        if reply.stop == "length":
            yield Progress(text=f"cut at {self._max_tokens} tokens (the group's option max_tokens)")
        if any(isinstance(item, Called) for item in reply.items):
            if text := _text(reply):
                yield Message(text=text)
            for item in reply.items:
                if isinstance(item, Called):
                    yield ToolCall(id=item.id, name=item.name, preview=_preview(item))
        yield reply.usage
        await self._notebook.finish(number, reply)

    async def _ask(self, number: int) -> AsyncGenerator[ProviderEvent, None]:
        """One call; when the conversation is too long for the model, room is made and the call repeated."""
        wanted = self._compactor is not None and len(self._history) > 1 and self._wants_room()
        if wanted or estimate(self._items(), self._given.system_prompt) > self._room():
            async with aclosing(self._make_room(number)) as events:
                async for event in events:
                    yield event
        while True:
            try:
                async with aclosing(self._call_model(number, self._request())) as events:
                    async for event in events:
                        yield event
                return
            except ProviderError as error:
                if error.error_class is not ErrorClass.CONTEXT_TOO_LONG:
                    raise
                size = estimate(self._items())
                async with aclosing(self._make_room(number)) as events:
                    async for event in events:
                        yield event
                if estimate(self._items()) >= size:
                    raise

    async def _call_model(self, number: int, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        """Through the gate, once. What came of it is in `self._last`."""
        if self._interrupted:
            self._last = ModelReply((), "interrupted", UsageReport(model=request.model))
            return
        await self._gate.enter(number, request, self._facts)
        try:
            async with aclosing(self._stream(request)) as events:
                async for event in events:
                    yield event
        except ProviderError as error:
            await self._gate.failed(request, error)
            raise
        await self._gate.leave(number, request, self._last)

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        said: list[str] = []
        thought = ""
        unshown = ""
        shown_at = 0.0
        if self._load is not None and any(isinstance(item, Shown) for item in request.items):
            request = replace(request, items=await self._load(request.items))
        async with aclosing(self._provider.stream(request)) as stream:
            async for piece in self._pieces(stream):
                self._alive()
                if thought and isinstance(piece, TextDelta | ModelReply):
                    yield Thinking(text=thought)  # whole: it is kept, and a row for each piece would be a flood
                    thought = ""
                match piece:
                    case TextDelta(text=text):
                        said.append(text)
                        unshown += text
                        if (now := time.monotonic()) - shown_at >= GATHER_SECONDS:
                            shown_at = now
                            yield TextDelta(text=unshown)
                            unshown = ""
                    case Thinking(text=text):
                        thought += text
                    case ModelReply():
                        if unshown:
                            yield TextDelta(text=unshown)
                        self._last = piece
                        return
        if unshown:
            yield TextDelta(text=unshown)
        if self._is_aborted():
            raise _Aborted
        if not self._interrupted:
            raise ProviderError("the stream ended without a whole message", ErrorClass.TRANSPORT)
        self._last = self._broken_off(request, "".join(said))

    async def _pieces(self, stream: AsyncGenerator[Piece, None]) -> AsyncGenerator[Piece, None]:
        """The stream's pieces, until it ends or somebody interrupts. The time-out is set off by hand: it stands around
        the waiting alone, so that it never tears a reader out of anything else."""
        while True:
            try:
                async with asyncio.timeout(None) as self._waiting:
                    if self._interrupted or self._is_aborted():
                        return
                    piece = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if self._interrupted or self._is_aborted():
                    return
                raise
            finally:
                self._waiting = None
            yield piece

    def _broken_off(self, request: ModelRequest, text: str) -> ModelReply:
        """What an interrupted call is worth: the words, and an estimate of what the vendor will charge for them."""
        usage = UsageReport(
            model=request.model,
            input_tokens=estimate(request.items, request.system),
            output_tokens=estimate((), text),
            cost_usd=_cost(self._facts, estimate(request.items, request.system), estimate((), text)),
        )
        return ModelReply((Said("assistant", text),) if text.strip() else (), "interrupted", usage)

    async def _run_tools(self, calls: list[Called]) -> AsyncGenerator[ProviderEvent, None]:
        """All calls of one message at once, each journaled by the tool box; results keep the order of the calls.

        One that waits for a person lets the others finish first."""
        tasks = self._tools = [asyncio.create_task(self._call(call)) for call in calls]
        parked: list[ParkedError] = []
        try:
            left = set(tasks)
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if task.cancelled():
                        raise _Aborted
                    if isinstance(error := task.exception(), ParkedError):
                        parked.append(error)
                        continue
                    outcome, call = task.result(), calls[tasks.index(task)]
                    if not outcome.replayed:
                        yield ToolResult(id=call.id, name=call.name, ok=outcome.ok)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tools = []
        if parked:
            raise min(parked, key=lambda error: error.seconds)
        for call, task in zip(calls, tasks, strict=True):
            self.said.append(Returned(call.id, call.name, task.result().text, task.result().ok))

    async def _call(self, call: Called) -> ToolOutcome:
        if call.broken:
            return ToolOutcome(f"the arguments are not a JSON object: {call.broken[:200]}", ok=False)
        return await self._given.tools.call(call.id, call.name, call.arguments)

    async def _make_room(self, number: int) -> AsyncGenerator[ProviderEvent, None]:
        """Earlier turns become a summary; when there are none left, long tool results of this one are cut."""
        if self._compactor is not None and len(self._history) > 1:
            yield Progress(text="the conversation has become long: archiving and summarising it")
            archive = await self._compactor.archive(self._history)
            summary = await self._summarise(number, self._compactor, self._room() // 2)
            yield self._last.usage
            await self._notebook.compact(number, summary, archive, self._last.usage)
            if summary:
                self._history = remembered(summary)
                return
            self._compactor = None  # once in a turn is enough to try
            if self._interrupted:
                return
        self._squeeze = min(self._room(), estimate(self._items())) * 2 // 3
        yield Progress(text="the turn has become long: older tool results are cut")

    async def _summarise(self, number: int, compactor: Compactor, tokens: int) -> str:
        """What the model makes of so many tokens of the history; fewer, if even that is too long for it."""
        request = compactor.request(self._request(), self._history, tokens)
        try:
            async with aclosing(self._call_model(number, request)) as events:
                async for _ in events:
                    pass  # nobody is shown a summary as it is written
        except ProviderError as error:
            if error.error_class is not ErrorClass.CONTEXT_TOO_LONG or tokens < LEAST_SUMMARISED:
                raise
            return await self._summarise(number, compactor, tokens // 2)
        return "" if self._last.stop == "interrupted" else _text(self._last)

    def _room(self) -> int:
        return max(self._facts.context_tokens - self._max_tokens, self._facts.context_tokens // 2)

    def _items(self) -> tuple[Item, ...]:
        if self._squeeze is None:
            return (*self._history, *self.said)
        return (*self._history, *shrink(self.said, self._squeeze - estimate(self._history)))

    def _request(self) -> ModelRequest:
        return ModelRequest(
            model=self._model,
            system=self._given.system_prompt,
            items=self._items(),
            tools=self._given.tools.specs,
            max_tokens=self._max_tokens,
            conversation=self._notebook.conversation,
            options=self._given.options,
        )

    def _named(self, number: int, reply: ModelReply) -> ModelReply:
        """The reply with our own ids: vendors may use one twice, and other vendors may not like it."""
        items: list[ReplyItem] = []
        for item in reply.items:
            if isinstance(item, Called):
                index = sum(isinstance(earlier, Called) for earlier in items) + 1
                item = replace(item, id=self._notebook.name_call(number, index))
            items.append(item)
        return replace(reply, items=tuple(items))


def _text(reply: ModelReply) -> str:
    return "\n\n".join(item.text for item in reply.items if isinstance(item, Said) and item.text.strip())


def _preview(call: Called) -> str:
    return ", ".join(f"{key}={value}" for key, value in call.arguments.items())[:PREVIEW_LIMIT]


def _cost(facts: ModelFacts, input_tokens: int, output_tokens: int) -> float | None:
    if facts.input_usd is None or facts.output_usd is None:
        return None
    return (input_tokens * facts.input_usd + output_tokens * facts.output_usd) / 1_000_000
