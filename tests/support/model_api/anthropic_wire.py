"""The Messages API of Anthropic: requests read, answers as events or as one message."""

import base64
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from tests.support.model_api.answer import Answer, ToolCall
from tests.support.model_api.conversation import Body, Conversation, Turn, dicts, joined, serialised
from tests.support.model_api.refusals import ErrorName, Form, refusal
from tests.support.model_api.script import Stop, Text, Think
from tests.support.model_api.sse import event
from tests.support.model_api.wrapping import system_turn, user_turn

_STOPS: dict[Stop, str] = {
    "end": "end_turn",
    "tool": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
    "filter": "refusal",
    "pause": "pause_turn",
}


def read(body: Body) -> Conversation:
    messages = dicts(body.get("messages"))
    parts = [part for name in ("tools", "system") if (part := body.get(name))] + messages
    return Conversation(
        wire="anthropic",
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        turns=[turn for message in messages for turn in _turns(message)],
        instructions=joined(body.get("system"), "text"),
        tools=[str(tool.get("name")) for tool in dicts(body.get("tools"))],
        segments=[serialised(part) for part in parts],
        cacheable=_cacheable(body, parts),
        body=body,
    )


def signature(thinking: str) -> str:
    """Signs the text, so that a client which changes what was thought is found out, as the real API does."""
    return base64.b64encode(b"stand-in " + sha256(thinking.encode()).digest()).decode()


def events(answer: Answer) -> list[bytes]:
    start = {**_message(answer, [], None), "usage": {**_usage(answer), "output_tokens": 1}}
    made = [event({"type": "message_start", "message": start}, "message_start"), event({"type": "ping"}, "ping")]
    for index, part in answer.numbered():
        shell = _shell(part)
        made.append(_block_event("content_block_start", index, content_block=shell))
        made += [_block_event("content_block_delta", index, delta=delta) for delta in _deltas(answer, part)]
        made.append(_block_event("content_block_stop", index))
    end = {"stop_reason": _STOPS[answer.stop], "stop_sequence": None, "stop_details": _details(answer)}
    made.append(event({"type": "message_delta", "delta": end, "usage": _usage(answer)}, "message_delta"))
    return [*made, event({"type": "message_stop"}, "message_stop")]


def whole(answer: Answer) -> dict[str, Any]:
    return _message(answer, [_block(part) for part in answer.parts], _STOPS[answer.stop])


def error_event(answer: Answer, error: ErrorName, number: int, form: Form) -> bytes:
    return event(refusal("anthropic", error).body, "error")


def _turns(message: dict[str, Any]) -> Iterator[Turn]:
    content, role = message.get("content"), message.get("role")
    if role == "assistant":
        yield Turn("assistant", joined(content, "text"))
    elif role == "system":
        yield system_turn(joined(content, "text"))
    elif role == "user":
        results = [block for block in dicts(content) if block.get("type") == "tool_result"]
        for block in results:
            yield Turn("results", joined(block.get("content"), "text"))
        if isinstance(content, str) or len(dicts(content)) > len(results):
            yield user_turn(joined(content, "text"))


def _cacheable(body: Body, parts: list[Any]) -> int:
    """Up to the last part with a marker; the marker at the top stands for one on the last part."""
    if body.get("cache_control"):
        return len(parts)
    return max((n for n, part in enumerate(parts, 1) if '"cache_control": {' in json.dumps(part)), default=0)


def _message(answer: Answer, content: list[dict[str, Any]], stop: str | None) -> dict[str, Any]:
    return {
        "id": f"msg_{answer.id[:24]}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "stop_details": _details(answer) if stop else None,
        "usage": _usage(answer),
    }


def _details(answer: Answer) -> dict[str, Any] | None:
    if _STOPS[answer.stop] != "refusal":
        return None
    return {"type": "refusal", "category": "general_harms", "explanation": "The script refuses."}


def _usage(answer: Answer) -> dict[str, Any]:
    tokens = answer.tokens
    return {
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": tokens.output,
        "output_tokens_details": {"thinking_tokens": tokens.thinking},
        "service_tier": "standard",
    }


def _block(part: Think | Text | ToolCall) -> dict[str, Any]:
    match part:
        case Think(think):
            return {"type": "thinking", "thinking": think, "signature": signature(think)}
        case Text(text):
            return {"type": "text", "text": text}
        case ToolCall(id, name, arguments):
            return {"type": "tool_use", "id": id, "name": name, "input": _parsed(arguments)}


def _parsed(arguments: str) -> Any:
    """Without streaming there is no way to send broken JSON: such arguments arrive empty."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {}


def _shell(part: Think | Text | ToolCall) -> dict[str, Any]:
    """The block as it starts, before its deltas."""
    match part:
        case Think():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case Text():
            return {"type": "text", "text": ""}
        case ToolCall():
            return {**_block(part), "input": {}}


def _deltas(answer: Answer, part: Think | Text | ToolCall) -> Iterator[dict[str, Any]]:
    match part:
        case Think(think):
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in answer.pieces(think))
            yield {"type": "signature_delta", "signature": signature(think)}
        case Text(text):
            yield from ({"type": "text_delta", "text": piece} for piece in answer.pieces(text))
        case ToolCall(arguments=arguments):
            yield {"type": "input_json_delta", "partial_json": ""}
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in answer.pieces(arguments))


def _block_event(name: str, index: int, **facts: Any) -> bytes:
    return event({"type": name, "index": index, **facts}, name)
