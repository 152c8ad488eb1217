"""What every provider must do, as checks anybody can run: ours, and those of other people's distributions.

Write a `Harness` for the provider, then run each of `CHECKS` with `run_check`: it returns None when the provider
behaves, `NotApplicable` with the reason when its capabilities exclude the check, and raises ConformanceError with a
sentence otherwise. No test framework is needed; `tests/contract/test_providers.py` shows it with pytest."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

from adapters.contracts import Capabilities, Manifest, Provider, Query, QueryInput, ToolBox, ToolOutcome, ToolSpec
from adapters.errors import AdapterError, ErrorClass
from adapters.events import (
    ApprovalRequested,
    Failed,
    FilesTouched,
    ProviderEvent,
    Result,
    ScreenChanged,
    SessionStarted,
    TextDelta,
    ToolCall,
    ToolResult,
)

# What a harness must be able to make its provider do:
#   answer   say something and end                      fail     end with an error of `Harness.failure_class`
#   tool     call the tool `probe` once, then answer    listen   wait for a follow-up, then answer with its text
#   slow     begin, and take far longer than patience   edit     write the file EDITED_FILE in `cwd`, then answer
#   hang     begin, and never say anything again        risky    want to do what needs an approval
#   crash    break in a way nobody planned              resume   answer as the continuation of an earlier query
Work = Literal["answer", "tool", "slow", "hang", "crash", "fail", "listen", "edit", "risky", "resume"]

PROBE: Final = ToolSpec("probe", "Answers with a fixed word.", {"type": "object", "properties": {}})
FOLLOW_UP: Final = "a follow-up about marmalade"
EDITED_FILE: Final = "conformance.txt"

E = TypeVar("E")


class Harness(Protocol):
    """A provider and how to make it do a piece of work. A fresh one is made for each check."""

    @property
    def provider(self) -> Provider: ...

    @property
    def patience(self) -> float:
        """Seconds within which the provider does any of the works, and stops when it is told to."""

    @property
    def failure_class(self) -> ErrorClass: ...

    @property
    def good_options(self) -> Mapping[str, Any]: ...

    @property
    def bad_options(self) -> Mapping[str, tuple[Mapping[str, Any], str]]:
        """Options to be refused, by what is wrong with them, each with a word that the refusal must contain."""

    def given(self, work: Work, tools: ToolBox) -> QueryInput: ...


class ConformanceError(AssertionError):
    """The provider breaks the contract; the text says how."""


@dataclass(frozen=True)
class NotApplicable:
    """The provider's capabilities exclude the check."""

    reason: str


@dataclass(frozen=True)
class Check:
    name: str
    run: Callable[[Harness], Awaitable[None]]
    needs: tuple[str, ...] = ()  # capabilities

    def excuse(self, capabilities: Capabilities) -> NotApplicable | None:
        """Why the check does not concern a provider of these capabilities."""
        for name in self.needs:
            if getattr(capabilities, name) in (False, "none"):
                return NotApplicable(
                    f"{self.name}: the provider's capabilities say {name}={getattr(capabilities, name)}"
                )
        return None


async def run_check(check: Check, harness: Harness) -> NotApplicable | None:
    if excuse := check.excuse(harness.provider.manifest.capabilities):
        return excuse
    await check.run(harness)
    return None


class ProbeBox:
    """The one tool of a check. It remembers who called it, and can be told to fail."""

    def __init__(self, *, ok: bool = True) -> None:
        self.specs: tuple[ToolSpec, ...] = (PROBE,)
        self.calls: list[tuple[str, str]] = []
        self._ok = ok

    async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        self.calls.append((call_id, name))
        return ToolOutcome("marmalade" if self._ok else "the probe is broken", ok=self._ok)


# --- What the provider says about itself -------------------------------------------------------------------------


async def detects_itself(harness: Harness) -> None:
    found = await harness.provider.detect()
    _expect(found.installed, f"detect() says it is not installed: {found.details or 'without a reason'}")
    _expect(bool(found.version), "detect() gives no version")


async def has_a_complete_manifest(harness: Harness) -> None:
    manifest: Manifest = harness.provider.manifest
    for name in ("adapter_id", "version", "vendor"):
        value = getattr(manifest, name)
        _expect(isinstance(value, str) and value.strip() != "", f"the manifest has no {name}")
    # It names a queue (agent.<id>), so nothing that a broker or a shell reads differently.
    _expect(
        re.fullmatch(r"[a-z0-9][a-z0-9-]*", manifest.adapter_id) is not None,
        f"the adapter id {manifest.adapter_id!r} is not lower-case letters, digits and dashes",
    )
    _expect(manifest.kind in ("api", "cli", "scripted"), f"{manifest.kind!r} is no kind of provider")
    _expect(all(isinstance(model, str) and model for model in manifest.models), "a model of the manifest has no name")
    _expect(manifest == harness.provider.manifest, "the manifest is not the same twice")


async def checks_its_options(harness: Harness) -> None:
    harness.provider.check(harness.good_options)
    harness.provider.check({})
    for what, (options, word) in harness.bad_options.items():
        try:
            harness.provider.check(options)
        except AdapterError as error:
            _expect(word in str(error), f"the refusal of {what} does not say {word!r}: {error}")
        else:
            raise ConformanceError(f"check() accepts {what}")


# --- Starting and answering --------------------------------------------------------------------------------------


async def starts_and_answers(harness: Harness) -> None:
    query, events = await _play(harness, "answer")
    _expect(isinstance(events[0], SessionStarted), f"the first event is {events[0].type}, not session_started")
    _expect(len(_of(events, SessionStarted)) == 1, "the session started more than once")
    _expect(bool(_result(events)), "there is no result with a text")
    _expect(query.status == "ended", f"the status after the last event is {query.status!r}, not 'ended'")
    await query.end()
    await query.abort()
    _expect(query.status == "ended", "aborting what has ended changed its status")


async def streams_its_answer(harness: Harness) -> None:
    _, events = await _play(harness, "answer")
    first_result = next(n for n, event in enumerate(events) if isinstance(event, Result))
    before = _of(events[:first_result], TextDelta)
    _expect(bool(before), "no text delta comes before the result")
    written, said = "".join(delta.text for delta in before).split(), _result(events).split()
    _expect(written == said, f"the deltas ({' '.join(written)!r}) are not the result ({' '.join(said)!r})")


async def says_the_same_for_the_same_work(harness: Harness) -> None:
    work: Work = "tool" if harness.provider.manifest.capabilities.tools else "answer"
    first, second = [shape((await _play(harness, work))[1]) for _ in range(2)]
    _expect(first == second, f"the same work gave {first} and then {second}")


async def keeps_two_queries_apart(harness: Harness) -> None:
    (_, answered), (_, failed) = await asyncio.gather(_play(harness, "answer"), _play(harness, "fail"))
    _expect(not _of(answered, Failed), "a query failed because another one did")
    _expect(bool(_of(failed, Failed)), "a query did not fail because another one answered")


async def takes_a_follow_up(harness: Harness) -> None:
    async with _running(harness, "listen") as (query, reading):
        await reading.first()
        _expect(await query.push(FOLLOW_UP), "a follow-up while it runs comes too late")
        events = await reading.all()
    _expect(FOLLOW_UP in _result(events), f"the follow-up is not in the result {_result(events)!r}")


async def resumes_a_conversation(harness: Harness) -> None:
    _, events = await _play(harness, "answer")
    continuation = _of(events, SessionStarted)[0].continuation
    _expect(bool(continuation), "the first query gave no continuation")
    again = replace(harness.given("resume", ProbeBox()), continuation=continuation)
    _, events = await _run(harness, harness.provider.query(again))
    _expect(bool(_of(events, SessionStarted)[0].continuation), "the resumed query gave no continuation")
    _expect(bool(_result(events)), "the resumed query did not answer")


# --- Tools, files, approvals -------------------------------------------------------------------------------------


async def calls_our_tool(harness: Harness) -> None:
    box = ProbeBox()
    _, events = await _play(harness, "tool", box)
    call, result = _only(events, ToolCall), _only(events, ToolResult)
    _expect([name for _, name in box.calls] == [PROBE.name], f"the tool box saw {box.calls}")
    _expect((call.id, call.name) == (result.id, result.name), "tool_call and tool_result are not of the same call")
    _expect(events.index(call) < events.index(result), "the tool's result comes before its call")
    _expect(result.ok, "a tool that worked is reported as failed")
    # Through MCP the program has ids of its own; else the journal must find the call under the event's id.
    if not harness.provider.manifest.capabilities.mcp:
        _expect(box.calls[0][0] == call.id, f"the tool box saw call {box.calls[0][0]!r}, the event says {call.id!r}")


async def survives_a_tool_that_fails(harness: Harness) -> None:
    _, events = await _play(harness, "tool", ProbeBox(ok=False))
    _expect([result.ok for result in _of(events, ToolResult)] == [False], "a tool that failed is not reported as such")
    _expect(bool(_result(events)), "a failed tool ended the answer: it is for the agent to decide about")


async def asks_for_the_same_calls_again(harness: Harness) -> None:
    boxes = ProbeBox(), ProbeBox()
    for box in boxes:
        await _play(harness, "tool", box)
    _expect(boxes[0].calls == boxes[1].calls, "a second attempt gave its calls other ids: they would be run again")


async def reports_the_file_it_edits(harness: Harness) -> None:
    given = harness.given("edit", ProbeBox())
    _, events = await _run(harness, harness.provider.query(given))
    paths = [path for event in _of(events, FilesTouched) for path in event.paths]
    _expect(any(Path(path).name == EDITED_FILE for path in paths), f"files_touched names {paths}, not {EDITED_FILE}")
    there = await asyncio.to_thread((Path(given.cwd) / EDITED_FILE).exists)
    _expect(there, f"{EDITED_FILE} was reported as touched but is not there")


async def asks_before_what_is_risky(harness: Harness) -> None:
    async with _running(harness, "risky") as (_, reading):
        asked = await reading.until(ApprovalRequested)
    _expect(bool(asked.category) and bool(asked.summary), "the approval does not say what it is for")


# --- Ending badly ------------------------------------------------------------------------------------------------


async def stops_when_told(harness: Harness) -> None:
    async with _running(harness, "slow") as (query, reading):
        await reading.first()
        _expect(query.status == "running", f"the status while it works is {query.status!r}, not 'running'")
        await query.abort()
        events = await reading.all()
        _expect(not _of(events, Result), "an aborted query gave a result")
        _expect(query.status == "aborted", f"the status after abort() is {query.status!r}, not 'aborted'")
        await query.abort()
        _expect(query.status == "aborted", "a second abort() changed the status")


async def stops_while_it_hangs(harness: Harness) -> None:
    async with _running(harness, "hang") as (query, reading):
        await reading.first()
        await query.abort()
        await reading.all()
        _expect(query.status == "aborted", f"the status after abort() is {query.status!r}, not 'aborted'")


async def never_crashes_in_silence(harness: Harness) -> None:
    query = harness.provider.query(harness.given("crash", ProbeBox()))
    try:
        _, events = await _run(harness, query)
    except ConformanceError:
        raise
    except Exception:  # noqa: BLE001 - which one is the provider's business; that there is one is the contract
        return
    _expect(bool(_of(events, Failed)), f"it crashed and said only {shape(events)}")


async def fails_with_a_class(harness: Harness) -> None:
    query, events = await _play(harness, "fail")
    failed = _only(events, Failed)
    _expect(failed.error_class == harness.failure_class, f"the class is {failed.error_class}, not what was arranged")
    _expect(failed.retryable == failed.error_class.can_pass, f"{failed.error_class} with retryable={failed.retryable}")
    _expect(bool(failed.message), "the failure has no message")
    _expect(events[-1] is failed, f"{events[-1].type} comes after failed")
    _expect(query.status == "failed", f"the status is {query.status!r}, not 'failed'")


CHECKS: Final = (
    Check("detects_itself", detects_itself),
    Check("has_a_complete_manifest", has_a_complete_manifest),
    Check("checks_its_options", checks_its_options),
    Check("starts_and_answers", starts_and_answers),
    Check("streams_its_answer", streams_its_answer, ("streaming",)),
    Check("says_the_same_for_the_same_work", says_the_same_for_the_same_work),
    Check("keeps_two_queries_apart", keeps_two_queries_apart),
    Check("takes_a_follow_up", takes_a_follow_up, ("push",)),
    Check("resumes_a_conversation", resumes_a_conversation, ("resume",)),
    Check("calls_our_tool", calls_our_tool, ("tools",)),
    Check("survives_a_tool_that_fails", survives_a_tool_that_fails, ("tools",)),
    Check("asks_for_the_same_calls_again", asks_for_the_same_calls_again, ("tools", "replays_steps")),
    Check("reports_the_file_it_edits", reports_the_file_it_edits, ("structured_edits",)),
    Check("asks_before_what_is_risky", asks_before_what_is_risky, ("approvals",)),
    Check("stops_when_told", stops_when_told),
    Check("stops_while_it_hangs", stops_while_it_hangs),
    Check("never_crashes_in_silence", never_crashes_in_silence),
    Check("fails_with_a_class", fails_with_a_class),
)


# --- How the checks look at a query ------------------------------------------------------------------------------


def shape(events: list[ProviderEvent]) -> list[str]:
    """What happened, without what may differ between two runs: ids, costs, how a text was cut into deltas and how often
    a screen was looked at."""
    words: list[str] = []
    for event in events:
        match event:
            case ScreenChanged():
                continue
            case TextDelta():
                word = "text"
            case ToolCall(name=name):
                word = f"call {name}"
            case ToolResult(name=name, ok=ok):
                word = f"{name} {'worked' if ok else 'failed'}"
            case _:
                word = event.type
        if not (word == "text" and words and words[-1] == "text"):
            words.append(word)
    return words


class _Reading:
    """The events of a query, read by a task of their own, as a turn does."""

    def __init__(self, harness: Harness, query: Query) -> None:
        self._patience = harness.patience
        self._seen: list[ProviderEvent] = []
        self._news = asyncio.Condition()
        self.task = asyncio.create_task(self._read(query.events))

    async def first(self) -> ProviderEvent:
        return await self._find(lambda event: True, "any event")

    async def until(self, kind: type[ApprovalRequested]) -> ApprovalRequested:
        found = await self._find(lambda event: isinstance(event, kind), kind.__name__)
        assert isinstance(found, kind)
        return found

    async def all(self) -> list[ProviderEvent]:
        """Every event up to the end; the query's own exception, if it raised one."""
        done, _ = await asyncio.wait([self.task], timeout=self._patience)
        _expect(bool(done), f"the events did not end within {self._patience:g} s; so far: {shape(self._seen)}")
        self.task.result()
        return self._seen

    async def _find(self, wanted: Callable[[ProviderEvent], bool], what: str) -> ProviderEvent:
        def there() -> bool:
            return self.task.done() or any(map(wanted, self._seen))

        try:
            async with asyncio.timeout(self._patience), self._news:
                await self._news.wait_for(there)
        except TimeoutError:
            raise ConformanceError(f"{what} did not come within {self._patience:g} s") from None
        found = next(filter(wanted, self._seen), None)
        if found is None:
            self.task.result()
            raise ConformanceError(f"the query ended without {what}: {shape(self._seen)}")
        return found

    async def _read(self, events: AsyncIterator[ProviderEvent]) -> None:
        try:
            async for event in events:
                async with self._news:
                    self._seen.append(event)
                    self._news.notify_all()
        finally:
            async with self._news:
                self._news.notify_all()


class _running:  # noqa: N801 - used as a statement
    """A query under way; aborted and waited for at the end, whatever the check found."""

    def __init__(self, harness: Harness, work: Work) -> None:
        self._query = harness.provider.query(harness.given(work, ProbeBox()))
        self._reading = _Reading(harness, self._query)

    async def __aenter__(self) -> tuple[Query, _Reading]:
        return self._query, self._reading

    async def __aexit__(self, *_: object) -> None:
        await self._query.abort()
        self._reading.task.cancel()
        await asyncio.gather(self._reading.task, return_exceptions=True)


async def _play(harness: Harness, work: Work, box: ProbeBox | None = None) -> tuple[Query, list[ProviderEvent]]:
    return await _run(harness, harness.provider.query(harness.given(work, box or ProbeBox())))


async def _run(harness: Harness, query: Query) -> tuple[Query, list[ProviderEvent]]:
    """A query up to its own end."""
    reading = _Reading(harness, query)
    try:
        events = await reading.all()
    finally:
        if not reading.task.done():
            await query.abort()
            reading.task.cancel()
            await asyncio.gather(reading.task, return_exceptions=True)
    _expect(bool(events), "the query ended without a single event")
    return query, events


def _of(events: list[ProviderEvent], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def _only(events: list[ProviderEvent], kind: type[E]) -> E:
    found = _of(events, kind)
    _expect(len(found) == 1, f"there are {len(found)} {kind.__name__} events, not one")
    return found[0]


def _result(events: list[ProviderEvent]) -> str:
    return "\n".join(event.text for event in _of(events, Result))


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ConformanceError(otherwise)
