"""The Responses API of OpenAI: requests read, answers as numbered events or as one response."""

import base64
import time
from collections.abc import Iterator
from typing import Any

from tests.support.model_api.answer import Answer, ToolCall
from tests.support.model_api.conversation import Body, Conversation, Turn, dicts, joined, serialised
from tests.support.model_api.refusals import ErrorName, Form, error_object
from tests.support.model_api.responses_tools import call_facts, offered
from tests.support.model_api.script import Text, Think
from tests.support.model_api.sse import event
from tests.support.model_api.wrapping import user_turn

_INCOMPLETE = {"length": "max_output_tokens", "filter": "content_filter", "pause": "max_messages"}
_Facts = dict[str, Any]


def read(body: Body) -> Conversation:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else dicts(given)
    parts = [part for name in ("tools", "instructions") if (part := body.get(name))] + items
    return Conversation(
        wire="responses",
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        turns=[_turn(item) for item in items],
        instructions=str(body.get("instructions") or ""),
        tools=list(offered(body)),
        segments=[serialised(part) for part in parts],
        cacheable=len(parts),
        body=body,
    )


def encrypted(item_id: str) -> str:
    """Fits the id of its item, so that a client which mixes them up is found out."""
    return base64.b64encode(f"stand-in {item_id}".encode()).decode()


def events(answer: Answer) -> list[bytes]:
    return [event({**facts, "sequence_number": n}, facts["type"]) for n, facts in enumerate(_facts(answer))]


def whole(answer: Answer) -> dict[str, Any]:
    status = "incomplete" if answer.stop in _INCOMPLETE else "completed"
    return _response(answer, status, [_item(answer, n) for n, _ in answer.numbered()])


def error_event(answer: Answer, error: ErrorName, number: int, form: Form) -> bytes:
    inner = error_object("responses", error)
    facts: _Facts = {"type": "error", "error": inner}
    if form == "flat":
        facts = {"type": "error", "code": inner["code"], "message": inner["message"], "param": inner["param"]}
    elif form == "failed":
        code = inner["code"] if inner["code"] == "rate_limit_exceeded" else "server_error"
        response = _response(answer, "failed", []) | {"error": {"code": code, "message": inner["message"]}}
        facts = {"type": "response.failed", "response": response}
    return event({**facts, "sequence_number": number}, facts["type"])


def _turn(item: _Facts) -> Turn:
    match item.get("type", "message"), item.get("role"):
        case (("function_call_output" | "custom_tool_call_output"), _):
            return Turn("results", joined(item.get("output"), "input_text", "output_text"))
        case (("function_call" | "custom_tool_call" | "reasoning"), _):
            return Turn("assistant")
        case "message", "assistant":
            return Turn("assistant", joined(item.get("content"), "output_text"))
        case "message", "user":
            return user_turn(joined(item.get("content"), "input_text"))
    return Turn("system")


def _facts(answer: Answer) -> Iterator[_Facts]:
    yield {"type": "response.created", "response": _response(answer, "in_progress", [])}
    yield {"type": "response.in_progress", "response": _response(answer, "in_progress", [])}
    for index, part in answer.numbered():
        item = _item(answer, index)
        place = {"item_id": item["id"], "output_index": index}
        yield {"type": "response.output_item.added", "output_index": index, "item": _shell(item)}
        match part:
            case Think(think):
                yield from _thinking(answer, place, think)
            case Text(text):
                yield from _saying(answer, place, text)
            case ToolCall(arguments=arguments):
                field = "input" if "input" in item else "arguments"
                kind = f"response.{item['type']}_{field}"
                for piece in answer.pieces(arguments):
                    yield {"type": f"{kind}.delta", **place, "delta": piece}
                yield {"type": f"{kind}.done", **place, field: arguments}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    response = whole(answer)
    yield {"type": f"response.{response['status']}", "response": response}


def _thinking(answer: Answer, place: _Facts, think: str) -> Iterator[_Facts]:
    here = {**place, "summary_index": 0}
    part = {"type": "summary_text", "text": ""}
    yield {"type": "response.reasoning_summary_part.added", **here, "part": part}
    for piece in answer.pieces(think):
        yield {"type": "response.reasoning_summary_text.delta", **here, "delta": piece}
    yield {"type": "response.reasoning_summary_text.done", **here, "text": think}
    yield {"type": "response.reasoning_summary_part.done", **here, "part": {**part, "text": think}}


def _saying(answer: Answer, place: _Facts, text: str) -> Iterator[_Facts]:
    refused = answer.stop == "refusal"
    here = {**place, "content_index": 0}
    kind, field = ("response.refusal", "refusal") if refused else ("response.output_text", "text")
    logprobs: _Facts = {} if refused else {"logprobs": []}
    yield {"type": "response.content_part.added", **here, "part": _content(answer, "")}
    for piece in answer.pieces(text):
        yield {"type": f"{kind}.delta", **here, "delta": piece, **logprobs}
    yield {"type": f"{kind}.done", **here, field: text, **logprobs}
    yield {"type": "response.content_part.done", **here, "part": _content(answer, text)}


def _item(answer: Answer, index: int) -> _Facts:
    part = answer.parts[index]
    seed = f"{answer.id}{index:02d}"
    match part:
        case Think(think):
            summary = [{"type": "summary_text", "text": think}]
            return {
                "id": f"rs_{seed}",
                "type": "reasoning",
                "summary": summary,
                "encrypted_content": encrypted(f"rs_{seed}"),
            }
        case Text(text):
            last = index == len(answer.parts) - 1
            return {
                "id": f"msg_{seed}",
                "type": "message",
                "role": "assistant",
                "status": "incomplete" if last and answer.stop in _INCOMPLETE else "completed",
                "content": [_content(answer, text)],
            }
        case ToolCall(id, name, arguments):
            call = call_facts(answer.body, name, arguments)
            return {"id": f"{'ctc' if 'input' in call else 'fc'}_{seed}", **call, "call_id": id, "status": "completed"}


def _shell(item: _Facts) -> _Facts:
    """The item as it is added, before its deltas."""
    empty: dict[str, _Facts] = {
        "reasoning": {"summary": []},
        "message": {"content": [], "status": "in_progress"},
        "function_call": {"arguments": "", "status": "in_progress"},
        "custom_tool_call": {"input": "", "status": "in_progress"},
    }
    return {**item, **empty[item["type"]]}


def _content(answer: Answer, text: str) -> _Facts:
    if answer.stop == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _response(answer: Answer, status: str, output: list[_Facts]) -> _Facts:
    body, now = answer.body, int(time.time())
    reason = _INCOMPLETE.get(answer.stop) if status == "incomplete" else None
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": now,
        "completed_at": now if status == "completed" else None,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "service_tier": "default",
        "store": body.get("store", True),
        "temperature": 1.0,
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _usage(answer) if status in ("completed", "incomplete") else None,
        "user": None,
    }


def _usage(answer: Answer) -> _Facts:
    tokens = answer.tokens
    return {
        "input_tokens": tokens.prompt,
        "input_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.thinking},
        "total_tokens": tokens.prompt + tokens.output,
    }
