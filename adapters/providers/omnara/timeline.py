"""What happens in an Omnara agent, as our events. Reads frames and keeps count; asks nobody and waits for nothing.

An agent may be used by others at the same time. Only what belongs to the turns that our own inputs are in is ours."""

import json
from collections.abc import Iterator
from typing import Any, Final

from adapters.errors import ErrorClass, ProviderError
from adapters.events import (
    ApprovalRequested,
    Message,
    Progress,
    ProviderEvent,
    Result,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    UsageReport,
)
from adapters.providers.credentials import Credentials
from adapters.providers.omnara.api import Frame, sequence_of

MAX_SUMMARY: Final = 500


class Timeline:
    """`after` is the last event that was seen, `expected` the inputs that the agent has not taken up yet, `open_calls`
    those of its tools that have no result."""

    def __init__(self, credentials: Credentials, model: str | None = None, after: int = 0) -> None:
        self.after = after
        self.expected: set[str] = set()
        self.answered = False  # the turn has ended, as far as is known
        self.open_calls: set[str] = set()
        self._credentials = credentials
        self._model = model
        self._turns: set[str] = set()
        self._tools: dict[str, str] = {}
        self._asked: set[str] = set()

    def take(self, frame: Frame) -> Iterator[ProviderEvent]:
        sequence = sequence_of(frame)
        if sequence and sequence <= self.after:
            return
        self.after = max(self.after, sequence)
        kind = frame.get("event_kind")
        if kind == "agent_input":
            self._input(frame)
        elif frame.get("turn_id") not in self._turns:
            return
        elif kind == "model_output":
            yield from self._output(frame)
        elif kind == "tool_result":
            call = _text(frame, "tool_call_id")
            self.open_calls.discard(call)
            yield ToolResult(id=call, name=self._tools.get(call, "tool"), ok=frame.get("outcome") == "succeeded")
        elif kind == "context_checkpoint":
            yield Progress(text="omnara has summed up the conversation so far")
        elif isinstance(frame.get("event"), dict):
            yield from self._delta(frame["event"])

    def waiting(self, interactions: list[Frame]) -> Iterator[ProviderEvent]:
        """What it asks people, each once. They answer in Omnara."""
        for one in interactions:
            form = one.get("request")
            if not isinstance(form, dict) or _text(one, "id") in self._asked:
                continue
            self._asked.add(_text(one, "id"))
            context = form.get("context") if isinstance(form.get("context"), list) else []
            facts = "; ".join(f"{_text(item, 'label')}: {_text(item, 'value')}" for item in context or ())
            summary = self._told(f"{_text(form, 'title')} ({facts})" if facts else _text(form, "title"))
            if one.get("interaction_kind") == "permission":
                yield ApprovalRequested(category="omnara", summary=f"{summary}: decided in Omnara", risk="medium")
            else:
                yield Progress(text=f"omnara's agent asks: {summary} (answered in Omnara)")

    def _input(self, frame: Frame) -> None:
        if _text(frame, "agent_input_id") in self.expected:
            self.expected.discard(_text(frame, "agent_input_id"))
            self._turns.add(_text(frame, "turn_id"))
            self.answered = False
        elif frame.get("control_type") == "cancel_current" and frame.get("turn_id") in self._turns:
            raise ProviderError("somebody stopped the agent in Omnara", ErrorClass.INVALID_REQUEST)

    def _output(self, frame: Frame) -> Iterator[ProviderEvent]:
        said: list[str] = []
        errors: list[str] = []
        for block in _blocks(frame):
            match block.get("type"):
                case "text":
                    said.append(_text(block, "text"))
                case "error":
                    errors.append(_text(block, "text"))
                case "reasoning":
                    yield Thinking(text=_text(block, "text"))
                case "tool_call":
                    call, name = _text(block, "tool_call_id"), _text(block, "name")
                    self._tools[call] = name
                    self.open_calls.add(call)
                    yield ToolCall(id=call, name=name, preview=json.dumps(block.get("input"), ensure_ascii=False))
                case "media_ref":
                    yield Progress(text=f"omnara's agent made a file: {self._told(_text(block, 'artifact_id'))}")
        text = "\n\n".join(filter(None, said))
        match frame.get("stop_reason"):
            case "tool_use":
                if text:
                    yield Message(text=text)
                return
            case "error":
                reason = self._told(" ".join(errors) or "it does not say why")
                raise ProviderError(f"omnara's agent failed: {reason}", ErrorClass.INTERNAL)
            case "refusal" | "content_filter" if not text:
                raise ProviderError("omnara's model declined to answer", ErrorClass.INVALID_REQUEST)
        self.answered = True
        if text:
            yield Result(text=text)

    def _delta(self, delta: Frame) -> Iterator[ProviderEvent]:
        match delta.get("kind"):
            case "text_delta":
                yield TextDelta(text=_text(delta, "delta"))
            case "message_stop" if isinstance(delta.get("stop"), dict):
                if isinstance(usage := delta["stop"].get("usage"), dict):
                    yield self._usage(usage)

    def _usage(self, usage: Frame) -> UsageReport:
        read, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_write_input_tokens")
        fresh = _count(usage, "uncached_input_tokens") or _count(usage, "input_tokens_total") - read - written
        return UsageReport(
            model=self._model,
            input_tokens=max(fresh, 0),
            output_tokens=_count(usage, "output_tokens_total"),
            cache_read_tokens=read,
            cache_write_tokens=written,
        )

    def _told(self, text: str) -> str:
        clean = self._credentials.scrub(text)
        return clean if len(clean) <= MAX_SUMMARY else clean[: MAX_SUMMARY - 1] + "…"


def _blocks(frame: Frame) -> list[Frame]:
    found = frame.get("content_blocks")
    return [block for block in found if isinstance(block, dict)] if isinstance(found, list) else []


def _text(frame: Any, name: str) -> str:
    value = frame.get(name) if isinstance(frame, dict) else None
    return value if isinstance(value, str) else ""


def _count(usage: Frame, name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0
