"""The Gemini API of Google: requests read, answers as chunks or as one response.

The model and whether to stream are in the path of a request; `wires` puts both into the body for `read`."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_api.answer import Answer, ToolCall
from tests.support.model_api.conversation import Body, Conversation, Turn, dicts, serialised
from tests.support.model_api.refusals import ErrorName, Form, refusal
from tests.support.model_api.script import Stop, Text, Think
from tests.support.model_api.sse import event
from tests.support.model_api.wrapping import user_turn

_STOPS: dict[Stop, str] = {
    "end": "STOP",
    "tool": "STOP",
    "length": "MAX_TOKENS",
    "refusal": "SAFETY",
    "filter": "PROHIBITED_CONTENT",
    "pause": "OTHER",
}
_Facts = dict[str, Any]


def read(body: Body) -> Conversation:
    contents = dicts(body.get("contents"))
    system = body.get("systemInstruction")
    parts = [part for part in (body.get("tools"), system) if part] + contents
    return Conversation(
        wire="gemini",
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        turns=[turn for content in contents for turn in _turns(content)],
        instructions=_text(system) if isinstance(system, dict) else str(system or ""),
        tools=[str(tool.get("name")) for group in dicts(body.get("tools")) for tool in _declared(group)],
        answer_schema=_schema(body),
        segments=[serialised(part) for part in parts],
        cacheable=len(parts),
        body=body,
    )


def events(answer: Answer) -> list[bytes]:
    chunks = [_response(answer, [part]) for part in _pieces(answer)]
    return [event(facts) for facts in (*chunks, _response(answer, [], _STOPS[answer.stop]))]


def whole(answer: Answer) -> _Facts:
    return _response(answer, [_part(part) for part in answer.parts], _STOPS[answer.stop])


def error_event(answer: Answer, error: ErrorName, number: int, form: Form) -> bytes:
    return event(refusal("gemini", error).body)


def _turns(content: _Facts) -> Iterator[Turn]:
    if content.get("role") == "model":
        yield Turn("assistant", _text(content))
        return
    parts = dicts(content.get("parts"))
    results = [part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)]
    for result in results:
        yield Turn("results", _result(result.get("response")))
    # Pictures that a tool gave come as parts beside its result, and are not the user's.
    if _text(content) or not results:
        yield user_turn(_text(content))


def _text(content: _Facts) -> str:
    parts = dicts(content.get("parts"))
    return "\n".join(str(part["text"]) for part in parts if "text" in part and not part.get("thought"))


def _result(response: Any) -> str:
    if isinstance(response, dict) and len(response) == 1 and isinstance(inner := next(iter(response.values())), str):
        return inner
    return json.dumps(response, ensure_ascii=False)


def _declared(group: _Facts) -> list[_Facts]:
    return dicts(group.get("functionDeclarations"))


def _schema(body: Body) -> _Facts | None:
    """Of the JSON that is wanted instead of prose."""
    wanted = body.get("generationConfig") or {}
    found = wanted.get("responseJsonSchema") or wanted.get("responseSchema")
    return found if isinstance(found, dict) else None


def _pieces(answer: Answer) -> Iterator[_Facts]:
    for part in answer.parts:
        match part:
            case Think(think):
                yield from ({"text": piece, "thought": True} for piece in answer.pieces(think))
            case Text(text):
                yield from ({"text": piece} for piece in answer.pieces(text))
            case ToolCall():
                yield _part(part)


def _part(part: Think | Text | ToolCall) -> _Facts:
    match part:
        case Think(think):
            return {"text": think, "thought": True}
        case Text(text):
            return {"text": text}
        case ToolCall(id, name, arguments):
            return {"functionCall": {"id": id, "name": name, "args": _parsed(arguments)}}


def _parsed(arguments: str) -> Any:
    """This wire has no way to send broken JSON: such arguments arrive empty."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {}


def _response(answer: Answer, parts: list[_Facts], finish: str | None = None) -> _Facts:
    candidate: _Facts = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(answer),
        "modelVersion": answer.model,
        "responseId": answer.id[:22],
    }


def _usage(answer: Answer) -> _Facts:
    tokens = answer.tokens
    return {
        "promptTokenCount": tokens.prompt,
        "cachedContentTokenCount": tokens.cache_read,
        "candidatesTokenCount": tokens.output - tokens.thinking,
        "thoughtsTokenCount": tokens.thinking,
        "totalTokenCount": tokens.prompt + tokens.output,
    }
