"""What a program's calls of its model have used, read from the vendor's own answers as they passed the key proxy.

For programs that count only a part of it, or nothing. Answers are looked at from both ends only: what cannot be read is
not counted, and costs nobody an answer."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from adapters.providers.catalog import Tokens, tokens
from adapters.providers.cli.key_proxy import Answer, Wire

_FIELD: Final[dict[Wire, re.Pattern[str]]] = {
    "anthropic": re.compile(r'"usage"\s*:\s*(?=\{)'),
    "openai": re.compile(r'"usage"\s*:\s*(?=\{)'),
    "gemini": re.compile(r'"usageMetadata"\s*:\s*(?=\{)'),
}
_READER: Final = json.JSONDecoder()


def used(wire: Wire, answers: Iterable[Answer]) -> Tokens:
    """The sum over all the answers."""
    counted = [_COUNT[wire](_counts(wire, answer.first), _counts(wire, answer.last)) for answer in answers]
    return Tokens(
        input=sum(one.input for one in counted),
        output=sum(one.output for one in counted),
        cache_read=sum(one.cache_read for one in counted),
        cache_write=sum(one.cache_write for one in counted),
    )


def _counts(wire: Wire, part: bytes) -> Mapping[str, Any]:
    """The last that is said in this part: streams count up."""
    text = part.decode("utf-8", "replace")
    found: Mapping[str, Any] = {}
    for match in _FIELD[wire].finditer(text):
        try:
            value, _ = _READER.raw_decode(text, match.end())
        except ValueError:
            continue
        found = value or found
    return found


def _anthropic(first: Mapping[str, Any], last: Mapping[str, Any]) -> Tokens:
    """A stream says at its beginning what it has read, and at its end what it has written."""
    said = {**first, **{name: count for name, count in last.items() if count is not None}}
    return Tokens(
        input=tokens(said.get("input_tokens")),
        output=tokens(said.get("output_tokens")),
        cache_read=tokens(said.get("cache_read_input_tokens")),
        cache_write=tokens(said.get("cache_creation_input_tokens")),
    )


def _openai(first: Mapping[str, Any], last: Mapping[str, Any]) -> Tokens:
    """Chat completions and responses: what came from the cache is a part of what was read."""
    details = last.get("prompt_tokens_details") or last.get("input_tokens_details")
    cached = tokens(details.get("cached_tokens")) if isinstance(details, dict) else 0
    read = tokens(last.get("prompt_tokens")) or tokens(last.get("input_tokens"))
    return Tokens(
        input=max(read - cached, 0),
        output=tokens(last.get("completion_tokens")) or tokens(last.get("output_tokens")),
        cache_read=cached,
    )


def _gemini(first: Mapping[str, Any], last: Mapping[str, Any]) -> Tokens:
    """Thoughts are paid like words."""
    cached = tokens(last.get("cachedContentTokenCount"))
    return Tokens(
        input=max(tokens(last.get("promptTokenCount")) + tokens(last.get("toolUsePromptTokenCount")) - cached, 0),
        output=tokens(last.get("candidatesTokenCount")) + tokens(last.get("thoughtsTokenCount")),
        cache_read=cached,
    )


_COUNT: Final = {"anthropic": _anthropic, "openai": _openai, "gemini": _gemini}
