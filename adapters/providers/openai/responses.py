"""OpenAI's Responses API: a neutral request as its parameters, its stream as a neutral reply. Nothing is stored at the
vendor: reasoning comes back encrypted and is handed back unchanged. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from adapters.contracts import ToolSpec
from adapters.errors import ErrorClass, ProviderError
from adapters.events import TextDelta, Thinking, UsageReport
from adapters.model_port import Allowance, ModelReply, ModelRequest
from adapters.providers import catalog
from adapters.providers.pairing import (
    AssistantMessage,
    ToolMessage,
    UserMessage,
    cut_off,
    data_url,
    file_name,
    kind_of,
    messages_of,
    note,
    ordered,
    read_call,
    whole,
)
from adapters.providers.wire import StreamFailedError, result_text
from adapters.transcript import Called, Item, ReplyItem, Said, Shown, Thought

if TYPE_CHECKING:
    from openai.types.responses import FunctionToolParam, Response, ResponseOutputItem, ResponseStreamEvent
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
    from openai.types.responses.response_input_item_param import ResponseInputItemParam

Stop = Literal["end", "tools", "length", "refused"]

ADAPTER_ID: Final = "openai"
MAX_CACHE_KEY: Final = 64
# Models that do not reason refuse to be asked for their reasoning.
_PLAIN_MODELS: Final = ("gpt-3.5", "gpt-4", "chatgpt")


def parameters(request: ModelRequest) -> "ResponseCreateParamsStreaming":
    given: ResponseCreateParamsStreaming = {
        "model": request.model,
        "input": inputs(request.items),
        "max_output_tokens": request.max_tokens,
        "store": False,
        "stream": True,
    }
    if not request.model.startswith(_PLAIN_MODELS):
        given["include"] = ["reasoning.encrypted_content"]
    if request.system.strip():
        given["instructions"] = whole(request.system)
    if request.tools:
        given["tools"] = [_tool(spec) for spec in request.tools]
    if request.conversation:
        given["prompt_cache_key"] = request.conversation[:MAX_CACHE_KEY]
    if (effort := request.options.get("thinking", "off")) != "off":
        given["reasoning"] = {"effort": effort, "summary": "auto"}
    return given


def inputs(items: tuple[Item, ...]) -> "list[ResponseInputItemParam]":
    result: list[Any] = []
    for message in messages_of(items, thoughts_of=ADAPTER_ID):
        match message:
            case AssistantMessage(items=said):
                result += [one for item in said for one in _assistant(item)]
            case ToolMessage(results=results):
                result += [
                    {"type": "function_call_output", "call_id": one.id, "output": result_text(one)} for one in results
                ]
            case UserMessage(items=given):
                result.append({"type": "message", "role": "user", "content": [_user(item) for item in given]})
    return result


def _tool(spec: ToolSpec) -> "FunctionToolParam":
    # Strict would make every argument required; what is left out is the tool's business.
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.schema,
        "strict": False,
    }


def _assistant(item: ReplyItem) -> list[dict[str, Any]]:
    match item:
        case Said(text=text):
            return [{"type": "message", "role": "assistant", "content": text}]
        case Called(id=id, name=name, arguments=arguments):
            written = json.dumps(arguments, ensure_ascii=False)
            return [{"type": "function_call", "call_id": id, "name": name, "arguments": written}]
        case Thought(opaque=opaque):
            # What the vendor does not store and we cannot show it is refused, and would be for ever.
            sound = opaque.get("type") == "reasoning" and bool(opaque.get("encrypted_content"))
            return [ordered(opaque)] if sound else []


def _user(item: Said | Shown) -> dict[str, Any]:
    if isinstance(item, Said):
        return {"type": "input_text", "text": item.text}
    match kind_of(item):
        case "image":
            return {"type": "input_image", "detail": "auto", "image_url": data_url(item)}
        case "pdf":
            return {"type": "input_file", "filename": whole(file_name(item)), "file_data": data_url(item)}
        case "note":
            return {"type": "input_text", "text": note(item)}


class Reader:
    """`vendor` is whose prices count."""

    def __init__(self, request: ModelRequest, vendor: catalog.Vendor) -> None:
        self._request = request
        self._vendor = vendor
        self._done: dict[int, ResponseOutputItem] = {}
        self._response: Response | None = None

    def take(self, event: "ResponseStreamEvent") -> TextDelta | Thinking | None:
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                return TextDelta(text=event.delta) if event.delta else None
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return Thinking(text=event.delta) if event.delta else None
            case "response.output_item.done":
                self._done[event.output_index] = event.item
            case "response.completed" | "response.incomplete":
                self._response = event.response
            case "response.failed":
                failure = event.response.error
                raise StreamFailedError(failure.message, failure.code) if failure else StreamFailedError("it failed")
            case "error":
                raise StreamFailedError(event.message, event.code)
            case _:
                pass
        return None

    def reply(self, allowances: tuple[Allowance, ...]) -> ModelReply:
        response = self._response
        if response is None:
            raise ProviderError("the stream ended early", ErrorClass.TRANSPORT)
        # Some servers do not repeat in the end what they sent on the way.
        output = response.output or [item for _, item in sorted(self._done.items())]
        items = tuple(item for one in output for item in _items(one.to_dict()))
        stop = self._stop(response, output, items)
        return ModelReply(cut_off(items) if stop == "length" else items, stop, self._usage(response), allowances)

    def _stop(self, response: "Response", output: "Iterable[ResponseOutputItem]", items: tuple[ReplyItem, ...]) -> Stop:
        if response.status == "incomplete":
            reason = response.incomplete_details.reason if response.incomplete_details else None
            return "refused" if reason == "content_filter" else "length"
        if any(isinstance(item, Called) for item in items):
            return "tools"
        refused = any(part.type == "refusal" for one in output if one.type == "message" for part in one.content)
        return "refused" if refused else "end"

    def _usage(self, response: "Response") -> UsageReport:
        counts: Mapping[str, Any] = response.usage.to_dict() if response.usage else {}
        details = counts.get("input_tokens_details") or {}
        read, written = catalog.tokens(details.get("cached_tokens")), catalog.tokens(details.get("cache_write_tokens"))
        used = catalog.Tokens(
            input=max(0, catalog.tokens(counts.get("input_tokens")) - read - written),
            output=catalog.tokens(counts.get("output_tokens")),
            cache_read=read,
            cache_write=written,
        )
        return catalog.usage_report(self._vendor, response.model or self._request.model, used, self._request.options)


def _items(item: Mapping[str, Any]) -> list[ReplyItem]:
    match item:
        case {"type": "message", "content": list(parts)}:
            text = whole("".join(part.get("text") or part.get("refusal") or "" for part in parts))
            return [Said("assistant", text)] if text.strip() else []
        case {"type": "function_call", "call_id": str(id), "name": str(name)}:
            return [read_call(id, name, item.get("arguments") or "")]
        case {"type": "reasoning", "id": str(id)}:
            summary = item.get("summary") or []
            text = "\n\n".join(part.get("text") or "" for part in [*summary, *(item.get("content") or [])])
            encrypted = item.get("encrypted_content")
            opaque = {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted}
            return [Thought(ADAPTER_ID, whole(text), whole(opaque) if encrypted else {})]
        case _:
            return []
