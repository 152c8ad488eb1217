"""Anthropic's stream of events, put together to one neutral reply; and what its headers say of rate limits. Tool
arguments are collected as they are written: what a model cut off or wrote wrongly must not look like arguments."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from adapters.errors import ErrorClass, ProviderError
from adapters.events import TextDelta, Thinking
from adapters.model_port import Allowance, ModelReply, ModelRequest
from adapters.providers import catalog
from adapters.providers.anthropic.request import ADAPTER_ID
from adapters.providers.pairing import cut_off, read_call, whole
from adapters.providers.wire import number
from adapters.transcript import Called, ReplyItem, Said, Thought

if TYPE_CHECKING:
    from anthropic.types import MessageDeltaUsage, RawContentBlockDeltaEvent, RawMessageStreamEvent, Usage

Stop = Literal["end", "tools", "length", "refused"]

_STOPS: Final[Mapping[str, Stop]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_KINDS: Final[tuple[Literal["requests", "tokens", "input_tokens", "output_tokens"], ...]] = (
    "requests",
    "tokens",
    "input_tokens",
    "output_tokens",
)


@dataclass
class _Block:
    """A content block that grows. `start` is how it began."""

    start: Mapping[str, Any]
    text: list[str] = field(default_factory=list)
    signature: str = ""


class Reader:
    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._model = request.model
        self._blocks: dict[int, _Block] = {}
        self._stop: str | None = None
        self._counts: dict[str, int] = {}

    def take(self, event: "RawMessageStreamEvent") -> TextDelta | Thinking | None:
        """One event; what of it can be shown."""
        match event.type:
            case "message_start":
                self._model = event.message.model or self._model
                self._count(event.message.usage)
            case "content_block_start":
                self._blocks[event.index] = _Block(event.content_block.to_dict())
            case "content_block_delta":
                return self._grow(event)
            case "message_delta":
                self._stop = event.delta.stop_reason or self._stop
                self._count(event.usage)
            case _:
                pass
        return None

    def reply(self, headers: Mapping[str, str]) -> ModelReply:
        """The whole message, when the stream has ended."""
        if self._stop is None:
            raise ProviderError("the stream ended early", ErrorClass.TRANSPORT)
        items = tuple(item for _, block in sorted(self._blocks.items()) for item in _items(block))
        stop = _STOPS.get(self._stop, "end")
        if stop == "end" and any(isinstance(item, Called) for item in items):
            stop = "tools"
        used = catalog.Tokens(
            input=self._counts.get("input_tokens", 0),
            output=self._counts.get("output_tokens", 0),
            cache_read=self._counts.get("cache_read_input_tokens", 0),
            cache_write=self._counts.get("cache_creation_input_tokens", 0),
        )
        if stop == "length":
            items = cut_off(items)
        usage = catalog.usage_report(catalog.ANTHROPIC, self._model, used, self._request.options)
        return ModelReply(items, stop, usage, allowances(headers))

    def _grow(self, event: "RawContentBlockDeltaEvent") -> TextDelta | Thinking | None:
        block, delta = self._blocks[event.index], event.delta
        match delta.type:
            case "text_delta":
                block.text.append(delta.text)
                return TextDelta(text=delta.text) if delta.text else None
            case "thinking_delta":
                block.text.append(delta.thinking)
                return Thinking(text=delta.thinking) if delta.thinking else None
            case "input_json_delta":
                block.text.append(delta.partial_json)
            case "signature_delta":
                block.signature = delta.signature
            case _:
                pass
        return None

    def _count(self, usage: "Usage | MessageDeltaUsage") -> None:
        """Later counts are totals, not additions; those a later event leaves out stay."""
        for name, value in usage.to_dict().items():
            if name.endswith("_tokens") and value is not None:
                self._counts[name] = catalog.tokens(value)


def _items(block: _Block) -> list[ReplyItem]:
    written = "".join(block.text)
    match block.start:
        case {"type": "text"}:
            text = whole(str(block.start.get("text") or "") + written)
            return [Said("assistant", text)] if text.strip() else []
        case {"type": "thinking"}:
            thought = str(block.start.get("thinking") or "") + written
            signature = block.signature or block.start.get("signature")
            # Without its signature it was cut off: people may read it, the vendor would refuse it.
            opaque = {"type": "thinking", "thinking": thought, "signature": signature} if signature else {}
            return [Thought(ADAPTER_ID, whole(thought), whole(opaque))]
        case {"type": "redacted_thinking", "data": str(data)}:
            return [Thought(ADAPTER_ID, "", {"type": "redacted_thinking", "data": data})]
        case {"type": "tool_use", "id": str(id), "name": str(name)}:
            return [read_call(id, name, written or json.dumps(block.start.get("input") or {}))]
        case _:
            return []


def allowances(headers: Mapping[str, str], now: datetime | None = None) -> tuple[Allowance, ...]:
    """What is left, from the headers of an answer. One that is not complete is none."""
    found: list[Allowance] = []
    for kind in _KINDS:
        prefix = f"anthropic-ratelimit-{kind.replace('_', '-')}"
        limit, remaining = number(headers.get(f"{prefix}-limit")), number(headers.get(f"{prefix}-remaining"))
        try:
            reset = datetime.fromisoformat(headers.get(f"{prefix}-reset", ""))
        except ValueError:
            continue
        if limit is not None and remaining is not None:
            seconds = (reset.replace(tzinfo=reset.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
            found.append(Allowance(kind, limit, remaining, max(0.0, seconds)))
    return tuple(found)
