"""A neutral request as the parameters of Anthropic's Messages API. Pure: the same request gives the same bytes, and a
longer conversation begins with the bytes of the shorter one, so that the vendor's cache finds it."""

from typing import TYPE_CHECKING, Any, Final

from adapters.contracts import ToolSpec
from adapters.model_port import ModelRequest
from adapters.providers.pairing import (
    PDF,
    AssistantMessage,
    ToolMessage,
    UserMessage,
    file_name,
    kind_of,
    messages_of,
    note,
    ordered,
    whole,
)
from adapters.transcript import Called, Item, ReplyItem, Returned, Said, Shown, Thought

if TYPE_CHECKING:
    from anthropic.types import MessageParam, ToolParam
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

ADAPTER_ID: Final = "anthropic"
CUT_OFF: Final = "(The earlier part of this conversation is not shown.)"

Block = dict[str, Any]


def parameters(request: ModelRequest) -> "MessageCreateParamsStreaming":
    """Two marks for the cache: the end of the system prompt, which all conversations of an agent share with the tools,
    and (top level) the end of this conversation. None inside messages, or old ones would change when new ones come."""
    given: MessageCreateParamsStreaming = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": messages(request.items),
        "cache_control": {"type": "ephemeral"},
        "stream": True,
    }
    if request.system.strip():
        given["system"] = [{"type": "text", "text": whole(request.system), "cache_control": {"type": "ephemeral"}}]
    if request.tools:
        given["tools"] = [_tool(spec) for spec in request.tools]
    if (effort := request.options.get("thinking", "off")) != "off":
        given["thinking"] = {"type": "adaptive", "display": "summarized"}
        given["output_config"] = {"effort": effort}
    return given


def messages(items: tuple[Item, ...]) -> "list[MessageParam]":
    result: list[Any] = []
    before: object = None
    for message in messages_of(items, thoughts_of=ADAPTER_ID):
        match message:
            case AssistantMessage(items=said):
                result.append({"role": "assistant", "content": [block for item in said for block in _assistant(item)]})
            case ToolMessage(results=results):
                result.append({"role": "user", "content": [_result(one) for one in results]})
            case UserMessage(items=given):
                blocks = [_user(item) for item in given]
                if isinstance(before, ToolMessage):
                    # What the user wrote while the tools ran: results must come first, and in one message with it.
                    result[-1]["content"] += blocks
                else:
                    result.append({"role": "user", "content": blocks})
        before = message
    if result and result[0]["role"] == "assistant":
        # Only a user may begin; a conversation that was cut at its start begins with whatever was left.
        result.insert(0, {"role": "user", "content": [_text(CUT_OFF)]})
    return result


def _tool(spec: ToolSpec) -> "ToolParam":
    return {"name": spec.name, "description": spec.description, "input_schema": spec.schema}


def _assistant(item: ReplyItem) -> list[Block]:
    match item:
        case Said(text=text):
            return [_text(text)]
        case Called(id=id, name=name, arguments=arguments):
            return [{"type": "tool_use", "id": id, "name": name, "input": arguments}]
        case Thought(opaque=opaque):
            # Unsigned ones (cut while it was thinking) are refused, and would be for ever.
            signed = (opaque.get("type"), bool(opaque.get("signature")), bool(opaque.get("data")))
            sound = signed in (("thinking", True, False), ("redacted_thinking", False, True))
            return [ordered(opaque)] if sound else []


def _result(result: Returned) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": result.id, "content": [_text(result.text)]}
    return block if result.ok else {**block, "is_error": True}


def _user(item: Said | Shown) -> Block:
    if isinstance(item, Said):
        return _text(item.text)
    match kind_of(item):
        case "image":
            return {"type": "image", "source": _source(item.media_type, item.data)}
        case "pdf":
            return {"type": "document", "source": _source(PDF, item.data), "title": whole(file_name(item))}
        case "note":
            return _text(note(item))


def _source(media_type: str, data: str) -> Block:
    return {"type": "base64", "media_type": media_type, "data": data}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
