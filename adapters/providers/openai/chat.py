"""Chat Completions, the protocol every compatible server speaks: a neutral request as its parameters, its stream as a
neutral reply. Servers differ, so reading forgives: calls without index or id, reasoning under two names. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from adapters.contracts import ToolSpec
from adapters.errors import ErrorClass, ProviderError
from adapters.events import TextDelta, Thinking, UsageReport
from adapters.model_port import Allowance, ModelReply, ModelRequest
from adapters.providers import catalog
from adapters.providers.openai.responses import ADAPTER_ID, MAX_CACHE_KEY, Stop
from adapters.providers.pairing import (
    AssistantMessage,
    ToolMessage,
    UserMessage,
    cut_off,
    data_url,
    kind_of,
    messages_of,
    note,
    read_call,
    whole,
)
from adapters.providers.wire import result_text
from adapters.transcript import Called, Item, ReplyItem, Said, Shown, Thought

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam, ChatCompletionToolUnionParam
    from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

_STOPS: Final[Mapping[str, Stop]] = {"length": "length", "content_filter": "refused"}


def parameters(request: ModelRequest, *, is_openai: bool) -> "CompletionCreateParamsStreaming":
    """`is_openai`: OpenAI itself, which has new names; other servers refuse or ignore what they do not know."""
    given: CompletionCreateParamsStreaming = {
        "model": request.model,
        "messages": messages(request.system, request.items),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if is_openai:
        given["max_completion_tokens"] = request.max_tokens
        given["store"] = False
    else:
        given["max_tokens"] = request.max_tokens
    if is_openai and request.conversation:
        given["prompt_cache_key"] = request.conversation[:MAX_CACHE_KEY]
    if request.tools:
        given["tools"] = [_tool(spec) for spec in request.tools]
    if (effort := request.options.get("thinking", "off")) != "off":
        given["reasoning_effort"] = effort
    return given


def messages(system: str, items: tuple[Item, ...]) -> "list[ChatCompletionMessageParam]":
    result: list[Any] = [{"role": "system", "content": whole(system)}] if system.strip() else []
    for message in messages_of(items, thoughts_of=None):
        match message:
            case AssistantMessage(items=said):
                result.append(_assistant(said))
            case ToolMessage(results=results):
                result += [{"role": "tool", "tool_call_id": one.id, "content": result_text(one)} for one in results]
            case UserMessage(items=(Said(text=text),)):
                # A plain text: some servers know no parts.
                result.append({"role": "user", "content": text})
            case UserMessage(items=given):
                result.append({"role": "user", "content": [_part(item) for item in given]})
    return result


def _tool(spec: ToolSpec) -> "ChatCompletionToolUnionParam":
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": spec.schema},
    }


def _assistant(said: tuple[ReplyItem, ...]) -> dict[str, Any]:
    text = "\n\n".join(item.text for item in said if isinstance(item, Said))
    calls = [_call(item) for item in said if isinstance(item, Called)]
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    return {**message, "tool_calls": calls} if calls else message


def _call(call: Called) -> dict[str, Any]:
    written = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": written}}


def _part(item: Said | Shown) -> dict[str, Any]:
    if isinstance(item, Said):
        return {"type": "text", "text": item.text}
    if kind_of(item, pdfs=False) == "image":
        return {"type": "image_url", "image_url": {"url": data_url(item)}}
    return {"type": "text", "text": note(item)}


@dataclass
class _Growing:
    """A call while its arguments come in pieces."""

    id: str
    name: str = ""
    written: list[str] = field(default_factory=list)


class Reader:
    """`vendor` is whose prices count."""

    def __init__(self, request: ModelRequest, vendor: catalog.Vendor) -> None:
        self._request = request
        self._vendor = vendor
        self._model = request.model
        self._text: list[str] = []
        self._thought: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Growing] = []
        self._by_index: dict[int, _Growing] = {}
        self._finish: str | None = None
        self._counts: Mapping[str, Any] = {}

    def take(self, chunk: "ChatCompletionChunk") -> TextDelta | Thinking | None:
        self._model = chunk.model or self._model
        if chunk.usage is not None:
            self._counts = chunk.usage.to_dict()
        if not chunk.choices:
            return None
        choice = chunk.choices[0]
        self._finish = choice.finish_reason or self._finish
        return self._grow(choice.delta)

    def reply(self, allowances: tuple[Allowance, ...]) -> ModelReply:
        if self._finish is None:
            raise ProviderError("the stream ended early", ErrorClass.TRANSPORT)
        items: list[ReplyItem] = []
        if thought := whole("".join(self._thought)):
            items.append(Thought(ADAPTER_ID, thought))
        text = whole("".join(self._text) or "".join(self._refusal))
        if text.strip():
            items.append(Said("assistant", text))
        items += [read_call(call.id, call.name, "".join(call.written)) for call in self._calls]
        stop = _STOPS.get(self._finish, "tools" if self._calls else "refused" if self._refusal else "end")
        said = tuple(items)
        return ModelReply(cut_off(said) if stop == "length" else said, stop, self._usage(), allowances)

    def _grow(self, delta: "ChoiceDelta | None") -> TextDelta | Thinking | None:
        if delta is None:
            return None
        for call in delta.tool_calls or ():
            growing = self._call_of(call)
            if call.function is not None:
                growing.name = growing.name or call.function.name or ""
                growing.written.append(call.function.arguments or "")
        if text := delta.content:
            self._text.append(text)
            return TextDelta(text=text)
        if refusal := delta.refusal:
            self._refusal.append(refusal)
            return TextDelta(text=refusal)
        # Not OpenAI's: vLLM and DeepSeek say the one, Ollama and OpenRouter the other.
        extra = delta.model_extra or {}
        thought = extra.get("reasoning_content") or extra.get("reasoning")
        if isinstance(thought, str) and thought:
            self._thought.append(thought)
            return Thinking(text=thought)
        return None

    def _call_of(self, call: "ChoiceDeltaToolCall") -> _Growing:
        """The call a piece belongs to. A new id is a new call, whatever the index says: some always say 0."""
        index: int | None = getattr(call, "index", None)
        known = self._by_index.get(index) if index is not None else (self._calls[-1] if self._calls else None)
        if known is not None and call.id in (None, "", known.id):
            return known
        made = _Growing(call.id or f"call_{len(self._calls)}")
        self._calls.append(made)
        if index is not None:
            self._by_index[index] = made
        return made

    def _usage(self) -> UsageReport:
        details = self._counts.get("prompt_tokens_details") or {}
        read, written = catalog.tokens(details.get("cached_tokens")), catalog.tokens(details.get("cache_write_tokens"))
        used = catalog.Tokens(
            input=max(0, catalog.tokens(self._counts.get("prompt_tokens")) - read - written),
            output=catalog.tokens(self._counts.get("completion_tokens")),
            cache_read=read,
            cache_write=written,
        )
        return catalog.usage_report(self._vendor, self._model, used, self._request.options)
