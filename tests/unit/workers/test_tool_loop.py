"""The tool loop by itself: a model that says what it is told to, a notebook in memory, no wire and no database."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest

from adapters.contracts import Capabilities, Detection, Manifest, ParkedError, QueryInput, ToolOutcome, ToolSpec
from adapters.errors import ErrorClass, ProviderError
from adapters.events import (
    Failed,
    Message,
    Progress,
    ProviderEvent,
    Result,
    TextDelta,
    Thinking,
    ToolResult,
    UsageReport,
)
from adapters.model_port import ModelFacts, ModelReply, ModelRequest
from adapters.transcript import Called, Returned, Said
from workers.compaction import Compactor
from workers.context import CUT
from workers.notebook import MemoryNotebook
from workers.tool_loop import ToolLoop

Piece = TextDelta | Thinking | ModelReply | None


def _says(text: str, stop: Any = "end") -> ModelReply:
    return ModelReply((Said("assistant", text),), stop, UsageReport())


def _calls(*names: str) -> ModelReply:
    return ModelReply(tuple(Called("same", name) for name in names), "tools", UsageReport())


class FakeModel:
    """Says one thing after the other: a reply, an error, or nothing for ever (None)."""

    manifest = Manifest("fake", "1", "tests", "api", Capabilities())
    default_model = "fake-1"
    account = "nobody"

    def __init__(self, *replies: ModelReply | ProviderError | None, context: int = 100_000) -> None:
        self._replies = list(replies)
        self._context = context
        self.asked: list[ModelRequest] = []
        self.closed = 0

    async def detect(self) -> Detection:
        return Detection(installed=True)

    def check(self, options: Mapping[str, Any]) -> None: ...

    def facts(self, model: str, options: Mapping[str, Any]) -> ModelFacts:
        return ModelFacts(self._context)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        self.asked.append(request)
        reply = self._replies.pop(0)
        try:
            if isinstance(reply, ProviderError):
                raise reply
            if reply is None:
                yield TextDelta(text="well, ")
                await asyncio.Event().wait()
            else:
                for item in reply.items:
                    if isinstance(item, Said):
                        yield TextDelta(text=item.text)
                yield reply
        finally:
            self.closed += 1

    async def close(self) -> None: ...


class Box:
    specs: tuple[ToolSpec, ...] = ()

    def __init__(self, **outcomes: Any) -> None:
        self._outcomes = outcomes
        self.calls: list[str] = []

    async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        self.calls.append(call_id)
        outcome = self._outcomes.get(name, "fine")
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome is None:
            await asyncio.Event().wait()
        return ToolOutcome(outcome)


def _loop(model: FakeModel, box: Box | None = None, notebook: MemoryNotebook | None = None, **more: Any) -> ToolLoop:
    return ToolLoop(model, QueryInput("hello", box or Box()), notebook or MemoryNotebook("hello"), **more)


async def _all(loop: ToolLoop, seen: list[ProviderEvent] | None = None) -> list[ProviderEvent]:
    seen = [] if seen is None else seen
    async for event in loop.events:
        seen.append(event)
    return seen


def _texts(events: list[ProviderEvent], kind: type[Result] | type[Message]) -> list[str]:
    return [event.text for event in events if isinstance(event, kind)]


@pytest.mark.spec("M7")
async def test_calls_have_names_of_our_own_and_results_stand_in_their_order() -> None:
    model, box = FakeModel(_calls("slow", "quick"), _says("done")), Box(slow="s", quick="q")
    loop = _loop(model, box)
    assert _texts(await _all(loop), Result) == ["done"]
    assert sorted(box.calls) == ["call_1_1", "call_1_2"], "the model gave both the same id"
    assert [item for item in loop.said if isinstance(item, Returned)] == [
        Returned("call_1_1", "slow", "s"),
        Returned("call_1_2", "quick", "q"),
    ]


@pytest.mark.spec("M7")
async def test_what_is_in_the_notebook_is_not_asked_again() -> None:
    notebook = MemoryNotebook("hello")
    first = _loop(FakeModel(_calls("clock"), ProviderError("gone", ErrorClass.TRANSPORT)), notebook=notebook)
    assert isinstance((await _all(first))[-1], Failed)
    model = FakeModel(_says("done"))
    second = _loop(model, notebook=notebook)
    assert _texts(await _all(second), Result) == ["done"]
    assert len(model.asked) == 1
    assert second.said[:3] == first.said[:3]


@pytest.mark.spec("M6", "M7")
async def test_an_interrupted_message_is_no_answer_on_a_second_attempt_either() -> None:
    notebook = MemoryNotebook("hello")
    notebook.joined = {1: (Said("user", "hello"),), 2: (Said("user", "stop"),)}
    notebook.finished = {1: _says("Once upon", "interrupted")}
    events = await _all(_loop(FakeModel(_says("Stopped.")), notebook=notebook))
    assert _texts(events, Result) == ["Stopped."]
    assert _texts(events, Message) == [], "it was told the first time"


@pytest.mark.spec("M6")
async def test_an_interruption_by_nobody_is_the_answer_after_all() -> None:
    model = FakeModel(None)
    loop = _loop(model)
    events: list[ProviderEvent] = []
    async for event in loop.events:
        events.append(event)
        if isinstance(event, TextDelta):
            asyncio.get_running_loop().call_soon(loop.interrupt)
    assert _texts(events, Result) == ["well, "]
    assert model.closed == 1


@pytest.mark.spec("M17")
async def test_a_call_that_waits_for_a_person_lets_the_others_finish() -> None:
    box = Box(ask=ParkedError("which?", 60.0), later=ParkedError("when?", 30.0))
    loop = _loop(FakeModel(_calls("ask", "clock", "later")), box)
    seen: list[ProviderEvent] = []
    with pytest.raises(ParkedError, match=r"when\?"):
        await _all(loop, seen)
    assert [event.name for event in seen if isinstance(event, ToolResult)] == ["clock"]


async def test_aborting_stops_tools_and_streams() -> None:
    for model, box in ((FakeModel(_calls("hang")), Box(hang=None)), (FakeModel(None), Box())):
        loop = _loop(model, box)
        reading = asyncio.create_task(_all(loop))
        async with asyncio.timeout(5):
            while not (box.calls or (model.asked and model.asked[0] and not model.closed)):
                await asyncio.sleep(0)
            for _ in range(5):
                await asyncio.sleep(0)
            await loop.abort()
            events = await reading
        assert loop.status == "aborted"
        assert not _texts(events, Result)


@pytest.mark.spec("P17")
async def test_a_turn_too_long_for_the_model_is_asked_with_older_results_cut() -> None:
    too_long = ProviderError("prompt is too long", ErrorClass.CONTEXT_TOO_LONG)
    model = FakeModel(_calls("read"), _calls("read"), too_long, _says("done"))
    loop = _loop(model, Box(read="x" * 20_000))
    events = await _all(loop)
    assert _texts(events, Result) == ["done"]
    assert any(isinstance(event, Progress) for event in events)
    results = [item.text for item in model.asked[-1].items if isinstance(item, Returned)]
    assert results == [CUT, "x" * 20_000], "the oldest first, and no more than needed"
    kept = [item.text for item in loop.said if isinstance(item, Returned)]
    assert CUT not in kept, "the transcript keeps everything"


@pytest.mark.spec("P17")
async def test_a_summary_that_fails_fails_the_attempt_and_changes_nothing(tmp_path: Path) -> None:
    history = (Said("user", "ships " * 50), Said("assistant", "aye " * 50))
    too_long = ProviderError("prompt is too long", ErrorClass.CONTEXT_TOO_LONG)
    model = FakeModel(too_long, ProviderError("overloaded", ErrorClass.TRANSPORT, 3.0))
    notebook = MemoryNotebook("hello", history=history)
    events = await _all(_loop(model, notebook=notebook, compactor=Compactor(tmp_path)))
    [failed] = [event for event in events if isinstance(event, Failed)]
    assert (failed.error_class, failed.retry_after) == (ErrorClass.TRANSPORT, 3.0)
    assert notebook.history == history
    assert len(list((tmp_path / "conversations").iterdir())) == 1, "the archive comes first"
