"""`scripted`: a provider that plays a script instead of asking a model. The default when there is no key, and the
double in tests: it streams, calls tools, waits, fails and hangs exactly as told."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from adapters.contracts import Capabilities, Detection, Manifest, QueryInput, QueryStatus
from adapters.errors import ScriptError
from adapters.events import (
    ApprovalRequested,
    Failed,
    FilesTouched,
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
from adapters.providers import script
from adapters.providers.script import choose_scene, parse_script

VERSION: Final = "1"
DEFAULT_SCRIPT: Final = "You said: {texts}"
MAX_PACE_SECONDS: Final = 60
# What is not done again when a turn goes on behind it.
_SAID_ONCE: Final = (script.Say, script.Think, script.Report, script.Wait)


class ScriptedProvider:
    manifest = Manifest(
        adapter_id="scripted",
        version=VERSION,
        vendor="longshore",
        kind="scripted",
        models=("script",),
        capabilities=Capabilities(
            streaming=True,
            tools=True,
            resume=True,
            push=True,
            approvals=True,
            structured_edits="file_events",
            replays_steps=True,
            plain_texts=True,
        ),
    )

    async def detect(self) -> Detection:
        return Detection(installed=True, version=VERSION, details="built in")

    def check(self, options: Mapping[str, Any]) -> None:
        """Options: `script` (text or YAML) and `pace` (seconds between streamed words)."""
        if unknown := set(options) - {"script", "pace"}:
            raise ScriptError(f"the scripted provider has no option {', '.join(sorted(unknown))}; it has: script, pace")
        parse_script(str(options.get("script", DEFAULT_SCRIPT)))
        _pace(options)

    def query(self, given: QueryInput) -> "ScriptedQuery":
        return ScriptedQuery(given)


class ScriptedQuery:
    pid: int | None = None

    def __init__(self, given: QueryInput) -> None:
        self._given = given
        self._pace = _pace(given.options)
        self._texts = list(given.messages) or [given.prompt if isinstance(given.prompt, str) else ""]
        self._result = ""
        self._pushed: asyncio.Queue[str] = asyncio.Queue()
        self._ears = 0  # how often it will still listen
        self._stop = asyncio.Event()
        self._calls = 0
        self.status: QueryStatus = "starting"
        self.events: AsyncIterator[ProviderEvent] = self._run()

    async def push(self, text: str) -> bool:
        """Only a script that still listens hears it."""
        if self._pushed.qsize() >= self._ears:
            return False
        self._pushed.put_nowait(text)
        return True

    async def end(self) -> None:
        """A script knows its own end."""

    async def abort(self) -> None:
        self._stop.set()
        if self.status in ("starting", "running"):
            self.status = "aborted"

    async def _run(self) -> AsyncIterator[ProviderEvent]:
        if self._stop.is_set():
            return
        self.status = "running"
        try:
            async for event in self._play():
                yield event
        except Exception:
            self.status = "failed"
            raise

    async def _play(self) -> AsyncIterator[ProviderEvent]:
        scene = choose_scene(
            parse_script(str(self._given.options.get("script", DEFAULT_SCRIPT))), "\n".join(self._texts)
        )
        self._ears = sum(isinstance(act, script.Listen) for act in scene.play) if scene else 0
        yield SessionStarted(continuation=self._given.continuation or "scripted", version=VERSION)
        played = self._played(scene.play) if scene else 0
        for number, act in enumerate(scene.play if scene else ()):
            if number < played and isinstance(act, _SAID_ONCE):
                continue
            async for event in self._perform(act):
                if number < played and isinstance(event, TextDelta):
                    continue
                if self._stop.is_set():
                    return
                yield event
                if isinstance(event, Failed):
                    self.status = "failed"
                    return
            if self._stop.is_set():
                return
        self.status = "ended"

    def _played(self, acts: Sequence[script.Act]) -> int:
        """How many acts earlier attempts have come to their end with: those before the last tool they have called."""
        calls = [number for number, act in enumerate(acts) if isinstance(act, script.UseTool)]
        return max((number for n, number in enumerate(calls, 1) if _call_id(n) in self._given.called), default=0)

    async def _perform(self, act: script.Act) -> AsyncIterator[ProviderEvent]:
        match act:
            case script.Say(say=text) | script.Answer(answer=text):
                async for event in self._speak(self._fill(text), answer=isinstance(act, script.Answer)):
                    yield event
            case script.Think(think=text):
                yield Thinking(text=self._fill(text))
            case script.Report(progress=text):
                yield Progress(text=self._fill(text))
            case script.UseTool(tool=name, arguments=arguments):
                async for event in self._use_tool(name, {k: self._fill(v) for k, v in arguments.items()}):
                    yield event
            case script.Wait(wait=seconds):
                await self._pause(seconds)
            case script.Hang():
                await self._stop.wait()
            case script.Listen(listen=seconds):
                async for event in self._listen(seconds):
                    yield event
            case script.Touch(touch=name):
                path = Path(self._given.cwd) / name
                await asyncio.to_thread(path.write_text, "\n".join(self._texts))
                yield FilesTouched(paths=(name,))
            case script.Spend(usage=usage):
                yield usage
            case script.AskApproval(approval=wanted):
                yield ApprovalRequested(category=wanted.category, summary=wanted.summary, risk=wanted.risk)
            case script.Fail(fail=failure, until_attempt=until):
                if until is None or self._given.attempt < until:
                    yield Failed(
                        message=failure.message,
                        error_class=failure.error_class,
                        retryable=failure.error_class.can_pass,
                        retry_after=failure.retry_after,
                    )
            case script.Crash(until_attempt=until):
                if until is None or self._given.attempt < until:
                    raise RuntimeError("the script crashed")

    async def _speak(self, text: str, *, answer: bool) -> AsyncIterator[ProviderEvent]:
        for word in text.split(" ") if self._pace else ():
            yield TextDelta(text=word + " ")
            await self._pause(self._pace)
        if not self._pace:
            yield TextDelta(text=text)
        if answer:
            yield UsageReport(
                model="script", input_tokens=len(str(self._given.prompt)) // 4, output_tokens=len(text) // 4
            )
            yield Result(text=text)
        else:
            yield Message(text=text)

    async def _use_tool(self, name: str, arguments: dict[str, Any]) -> AsyncIterator[ProviderEvent]:
        self._calls += 1
        call_id = _call_id(self._calls)
        preview = ", ".join(f"{key}={value}" for key, value in arguments.items())
        if call_id not in self._given.called:
            yield ToolCall(id=call_id, name=name, preview=preview)
        outcome = await self._given.tools.call(call_id, name, arguments)
        self._result = outcome.text
        if not outcome.replayed:
            yield ToolResult(id=call_id, name=name, ok=outcome.ok)

    async def _listen(self, seconds: float) -> AsyncIterator[ProviderEvent]:
        heard = asyncio.ensure_future(self._pushed.get())
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([heard, stopped], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if heard.done():
                self._texts.append(heard.result())
            elif not stopped.done():
                yield Progress(text=f"nobody said anything for {seconds:g} s")
        finally:
            self._ears -= 1
            heard.cancel()
            stopped.cancel()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass

    def _fill(self, template: Any) -> Any:
        """Put what was asked into a text. Not str.format: what people write may hold braces."""
        if not isinstance(template, str):
            return template
        values = {"{texts}": " ".join(self._texts), "{text}": self._texts[-1], "{result}": self._result}
        for mark, value in values.items():
            template = template.replace(mark, value)
        return template


def _call_id(number: int) -> str:
    return f"call-{number}"


def _pace(options: Mapping[str, Any]) -> float:
    given = options.get("pace", 0)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= MAX_PACE_SECONDS:
        raise ScriptError(f"pace: {given!r} is not a number of seconds from 0 to {MAX_PACE_SECONDS}")
    return float(given)
