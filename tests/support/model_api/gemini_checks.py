"""What Google refuses with 400 on the Gemini API."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.support.model_api.conversation import Body, dicts

_KNOWN = {
    *("contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "generationConfig"),
    *("cachedContent", "labels"),
}


def check(body: Body) -> list[str]:
    return [*_top_level(body), *_contents(dicts(body.get("contents")))]


def _top_level(body: Body) -> Iterator[str]:
    if not body.get("contents"):
        yield "* GenerateContentRequest.contents: contents is not specified"
    for name in body:
        if name not in _KNOWN:
            yield f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'


def _contents(contents: list[dict[str, Any]]) -> Iterator[str]:
    for content in contents:
        if content.get("role", "user") not in ("user", "model"):
            yield "Please use a valid role: user, model."
        if not dicts(content.get("parts")):
            yield "* GenerateContentRequest.contents.parts: must not be empty."
    for before, now in pairwise([{}, *contents, {}]):
        calls, results = _names(before, "functionCall"), _names(now, "functionResponse")
        if len(calls) != len(results):
            yield (
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        elif sorted(calls) != sorted(results):
            yield f"Function responses {results} do not answer the function calls {calls}."


def _names(content: dict[str, Any], kind: str) -> list[str]:
    parts = dicts(content.get("parts"))
    return [str(part[kind].get("name")) for part in parts if isinstance(part.get(kind), dict)]
