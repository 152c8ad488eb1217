"""Chat Completions of OpenAI, and of the many servers that speak like it."""

import time
from collections.abc import Iterator
from typing import Any

from tests.support.model_api.answer import Answer, ToolCall
from tests.support.model_api.conversation import Body, Conversation, Role, Turn, dicts, joined, serialised
from tests.support.model_api.refusals import ErrorName, Form, error_object
from tests.support.model_api.script import Stop, Text, Think
from tests.support.model_api.sse import event
from tests.support.model_api.wrapping import user_turn

_STOPS: dict[Stop, str] = {
    "end": "stop",
    "tool": "tool_calls",
    "length": "length",
    "refusal": "stop",
    "filter": "content_filter",
    "pause": "stop",
}
_ROLES: dict[Any, Role] = {"assistant": "assistant", "tool": "results"}
_INSTRUCTING = ("system", "developer")


def read(body: Body) -> Conversation:
    messages = dicts(body.get("messages"))
    parts = [*([body["tools"]] if body.get("tools") else []), *messages]
    return Conversation(
        wire="chat",
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        turns=[_turn(message) for message in messages],
        instructions="\n".join(joined(m.get("content"), "text") for m in messages if m.get("role") in _INSTRUCTING),
        tools=[str((tool.get("function") or {}).get("name")) for tool in dicts(body.get("tools"))],
        segments=[serialised(part) for part in parts],
        cacheable=len(parts),
        body=body,
    )


def events(answer: Answer) -> list[bytes]:
    made = [_chunk(answer, {"role": "assistant", "content": "", "refusal": None})]
    made += [_chunk(answer, delta) for delta in _deltas(answer)]
    made.append(_chunk(answer, {}, _STOPS[answer.stop]))
    if (answer.body.get("stream_options") or {}).get("include_usage"):
        made.append(event({**_head(answer, "chat.completion.chunk"), "choices": [], "usage": _usage(answer)}))
    return [*made, b"data: [DONE]\n\n"]


def whole(answer: Answer) -> dict[str, Any]:
    said = "".join(part.text for part in answer.parts if isinstance(part, Text)) or None
    calls = [part for part in answer.parts if isinstance(part, ToolCall)]
    refused = answer.stop == "refusal"
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if refused else said,
        "refusal": said if refused else None,
    }
    if calls:
        message["tool_calls"] = [_call(call, call.arguments) for call in calls]
    if thought := "".join(part.think for part in answer.parts if isinstance(part, Think)):
        message["reasoning_content"] = thought
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[answer.stop]}
    return {**_head(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)}


def error_event(answer: Answer, error: ErrorName, number: int, form: Form) -> bytes:
    return event({"error": error_object("chat", error)})


def _turn(message: dict[str, Any]) -> Turn:
    text = joined(message.get("content"), "text")
    return user_turn(text) if message.get("role") == "user" else Turn(_ROLES.get(message.get("role"), "system"), text)


def _deltas(answer: Answer) -> Iterator[dict[str, Any]]:
    field = "refusal" if answer.stop == "refusal" else "content"
    calls = 0
    for part in answer.parts:
        match part:
            case Think(think):
                # Not OpenAI's, but what most servers of this wire send.
                yield from ({"reasoning_content": piece} for piece in answer.pieces(think))
            case Text(text):
                yield from ({field: piece} for piece in answer.pieces(text))
            case ToolCall(arguments=arguments):
                yield {"tool_calls": [{"index": calls, **_call(part, "")}]}
                for piece in answer.pieces(arguments):
                    yield {"tool_calls": [{"index": calls, "function": {"arguments": piece}}]}
                calls += 1


def _call(call: ToolCall, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _chunk(answer: Answer, delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event({**_head(answer, "chat.completion.chunk"), "choices": [choice]})


def _head(answer: Answer, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer.id[:24]}",
        "object": kind,
        "created": int(time.time()),
        "model": answer.model,
        "service_tier": "default",
        "system_fingerprint": "fp_stand_in",
    }


def _usage(answer: Answer) -> dict[str, Any]:
    tokens = answer.tokens
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": tokens.thinking, "audio_tokens": 0},
    }
