"""A reply of the script made concrete for one request: texts filled in, ids given, tokens counted.

The four wires turn it into bytes."""

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from tests.support.model_api.conversation import Body, Conversation
from tests.support.model_api.prompt_cache import CachedTokens, tokens_of
from tests.support.model_api.script import Call, Part, Reply, Stop, Text, Think, Usage


@dataclass(frozen=True)
class Tokens:
    """`input` is without what was read from or written to the cache; `output` is with what was thought."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    thinking: int = 0

    @property
    def prompt(self) -> int:
        return self.input + self.cache_read + self.cache_write


@dataclass(frozen=True)
class ToolCall:
    id: str
    name: str
    arguments: str  # JSON, unless the script wanted it broken


@dataclass(frozen=True)
class Answer:
    """`chunk` is the number of characters in one delta."""

    model: str
    parts: tuple[Think | Text | ToolCall, ...]
    stop: Stop
    tokens: Tokens
    chunk: int = 24
    body: Body = field(default_factory=dict, repr=False)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def pieces(self, text: str) -> list[str]:
        """The deltas of a text; an empty text has none."""
        return [text[at : at + self.chunk] for at in range(0, len(text), self.chunk)]

    def numbered(self) -> Iterator[tuple[int, Think | Text | ToolCall]]:
        return enumerate(self.parts)


def answer(
    reply: Reply, conversation: Conversation, cached: CachedTokens, *, chunk: int = 24, salt: str = ""
) -> Answer:
    """Without `salt`, tool calls have the same ids whenever the same conversation asks."""
    seed = sha256(f"{conversation.digest}{conversation.rounds}{salt}".encode()).hexdigest()
    kind = "toolu" if conversation.wire == "anthropic" else "call"
    parts = tuple(_filled(part, conversation, f"{kind}_{seed[:20]}{n:02d}") for n, part in enumerate(reply.parts))
    calls = any(isinstance(part, ToolCall) for part in parts)
    return Answer(
        model=reply.model or conversation.model,
        parts=parts,
        stop=reply.stop or ("tool" if calls else "end"),
        tokens=_tokens(parts, cached, reply.usage),
        chunk=chunk,
        body=conversation.body,
    )


def _filled(part: Part, conversation: Conversation, call_id: str) -> Think | Text | ToolCall:
    match part:
        case Think(text):
            return Think(_fill(text, conversation))
        case Text(text):
            return Text(_fill(text, conversation))
        case Call(name, arguments, given):
            raw = arguments if isinstance(arguments, str) else json.dumps(_fill_all(arguments, conversation))
            offered = _offered(name, conversation)
            if offered is None:
                return Text(f"No tool offered fits {name}. There are: {', '.join(conversation.tools) or 'none'}.")
            return ToolCall(given or call_id, offered, raw or "{}")


def _offered(name: str, conversation: Conversation) -> str | None:
    """The name itself; after a ~ it is a pattern, and the first tool that it is found in is meant."""
    if not name.startswith("~"):
        return name
    return next((tool for tool in conversation.tools if re.search(name[1:], tool)), None)


def _fill(template: str, conversation: Conversation) -> str:
    """In one pass, so that a user who writes {result} gets no tool result."""
    return re.sub(r"\{(text|result)\}", lambda found: str(getattr(conversation, found[1])), template)


def _fill_all(value: Any, conversation: Conversation) -> Any:
    if isinstance(value, dict):
        return {key: _fill_all(item, conversation) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill_all(item, conversation) for item in value]
    return _fill(value, conversation) if isinstance(value, str) else value


def _tokens(parts: tuple[Think | Text | ToolCall, ...], cached: CachedTokens, given: Usage) -> Tokens:
    thinking = sum(tokens_of(part.think) for part in parts if isinstance(part, Think))
    said = sum(tokens_of(part.text) for part in parts if isinstance(part, Text))
    called = sum(tokens_of(part.name + part.arguments) for part in parts if isinstance(part, ToolCall))
    return Tokens(
        input=cached.fresh if given.input is None else given.input,
        output=thinking + said + called if given.output is None else given.output,
        cache_read=cached.read if given.cache_read is None else given.cache_read,
        cache_write=cached.written if given.cache_write is None else given.cache_write,
        thinking=thinking,
    )
