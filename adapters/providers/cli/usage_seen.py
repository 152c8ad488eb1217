"""What a program's calls of its model have used, read from the vendor's own answers as they passed the key proxy.

For programs that count only a part of it, or nothing, or whose shell can ask the model as well. Answers are looked at
from both ends only: what cannot be read is not counted, and costs nobody an answer."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final, Literal

from adapters.providers.catalog import MAX_COUNT, Tokens, tokens

Wire = Literal["anthropic", "openai", "gemini"]

REMEMBERED: Final = 4_000  # bytes of each end of an answer
MODELS: Final = 20  # that are told apart; a program may name as many as it likes
_FIELD: Final[dict[Wire, re.Pattern[str]]] = {
    "anthropic": re.compile(r'"usage"\s*:\s*(?=\{)'),
    "openai": re.compile(r'"usage"\s*:\s*(?=\{)'),
    "gemini": re.compile(r'"usageMetadata"\s*:\s*(?=\{)'),
}
_READER: Final = json.JSONDecoder()


@dataclass(eq=False)
class Answer:
    """Both ends of an answer, as far as it has come: there, vendors say what it has used. `model` is whom the request
    named. Of answers that are over only the count is left, one for each model."""

    first: bytes = b""
    last: bytes = b""
    model: str = ""
    counted: Tokens | None = None

    def add(self, chunk: bytes) -> None:
        self.first = (self.first + chunk[:REMEMBERED])[:REMEMBERED]
        self.last = (self.last + chunk)[-REMEMBERED:]


def settle(wire: Wire, answers: list[Answer], over: Answer) -> None:
    """One of them is over: it is added to what others of its model have used. A program may ask for days."""
    answers[:] = [answer for answer in answers if answer is not over]
    settled = {answer.model: answer for answer in answers if answer.counted is not None}
    model = over.model if over.model in settled or len(settled) < MODELS else ""
    if model not in settled:
        settled[model] = Answer(model=model, counted=Tokens())
        answers.append(settled[model])
    settled[model].counted = used(wire, [settled[model], over])


def used(wire: Wire, answers: Iterable[Answer]) -> Tokens:
    """The sum over all the answers."""
    return in_all(_used(wire, answer) for answer in answers)


def used_by_model(wire: Wire, answers: Iterable[Answer]) -> dict[str, Tokens]:
    """By the name that requests gave; "" where they gave none."""
    named: dict[str, list[Answer]] = {}
    for answer in answers:
        named.setdefault(answer.model, []).append(answer)
    return {model: used(wire, ones) for model, ones in named.items() if used(wire, ones) != Tokens()}


def beyond(seen: Mapping[str, Tokens], told: Mapping[str, Tokens]) -> Iterator[tuple[str, Tokens]]:
    """What of the one the other leaves out, model by model, where it is more in all."""
    for model, one in seen.items():
        other = told.get(model, Tokens())
        if sum(astuple(one)) > sum(astuple(other)):
            yield model, Tokens(*(max(0, a - b) for a, b in zip(astuple(one), astuple(other), strict=True)))


def in_all(counts: Iterable[Tokens]) -> Tokens:
    return Tokens(*(min(sum(each), MAX_COUNT) for each in zip(*map(astuple, [Tokens(), *counts]), strict=True)))


def _used(wire: Wire, answer: Answer) -> Tokens:
    if answer.counted is not None:
        return answer.counted
    return _COUNT[wire](_counts(wire, answer.first), _counts(wire, answer.last))


def _counts(wire: Wire, part: bytes) -> Mapping[str, Any]:
    """The last that is said in this part: streams count up."""
    text = part.decode("utf-8", "replace")
    found: Mapping[str, Any] = {}
    for match in _FIELD[wire].finditer(text):
        try:
            value, _ = _READER.raw_decode(text, match.end())
        except (ValueError, RecursionError):
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
    details = details if isinstance(details, dict) else {}
    cached, written = tokens(details.get("cached_tokens")), tokens(details.get("cache_write_tokens"))
    read = tokens(last.get("prompt_tokens")) or tokens(last.get("input_tokens"))
    return Tokens(
        input=max(read - cached - written, 0),
        output=tokens(last.get("completion_tokens")) or tokens(last.get("output_tokens")),
        cache_read=cached,
        cache_write=written,
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
