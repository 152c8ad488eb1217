"""What a request says, whatever the wire: the turns so far, the last words of the user, the last tool result.

The script chooses by this alone. Nothing here remembers anything, so a repeated request reads the same."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any, Literal

WireName = Literal["anthropic", "responses", "chat", "gemini"]
Role = Literal["user", "assistant", "results", "system"]
Body = Mapping[str, Any]

_MESSAGE = re.compile(r"<message\b[^>]*>(.*?)</message>", re.DOTALL)


@dataclass(frozen=True)
class Turn:
    role: Role
    text: str = ""


@dataclass(frozen=True)
class Conversation:
    """`segments` are the serialised parts of the prompt in the order in which a prompt cache sees them; the first
    `cacheable` of them were asked to be cached. `tools` are the names of those offered; `answer_schema` is of the JSON
    wanted instead of prose."""

    wire: WireName
    model: str
    stream: bool
    turns: Sequence[Turn]
    instructions: str = ""
    tools: Sequence[str] = ()
    answer_schema: dict[str, Any] | None = None
    segments: Sequence[str] = ()
    cacheable: int = 0
    body: Body = field(default_factory=dict, repr=False)

    @cached_property
    def text(self) -> str:
        """The last user text: the inner text of its last <message> element, if it has one."""
        last = self._last("user")
        found = _MESSAGE.findall(last)
        return html.unescape(found[-1]) if found else last

    @cached_property
    def result(self) -> str:
        return self._last("results")

    @cached_property
    def rounds(self) -> int:
        """Answers of the assistant since the user last spoke; pieces of one answer in a row are one."""
        roles = [turn.role for turn in self.turns]
        since = roles[len(roles) - roles[::-1].index("user") :] if "user" in roles else roles
        return sum(now == "assistant" != before for before, now in pairwise(["user", *since]))

    @cached_property
    def digest(self) -> str:
        """Equal for equal conversations."""
        return sha256("\0".join(self.segments or [turn.text for turn in self.turns]).encode()).hexdigest()

    def _last(self, role: Role) -> str:
        return next((turn.text for turn in reversed(self.turns) if turn.role == role), "")


def serialised(value: Any) -> str:
    """The same bytes for the same prompt: cache markers say nothing about it and are left out."""
    return json.dumps(_without_markers(value), sort_keys=True, ensure_ascii=False)


def joined(content: Any, *kinds: str) -> str:
    """The text of a `content` that is a string or a list of blocks of these kinds."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(b.get("text", "")) for b in blocks if isinstance(b, dict) and b.get("type") in kinds)


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list, and nothing of what else a client may send in its place."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _without_markers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_markers(item) for key, item in value.items() if key != "cache_control"}
    return [_without_markers(item) for item in value] if isinstance(value, list) else value
