"""A conversation in the one form every API provider can continue: text, thinking, tool calls and results, media.

Vendors' own forms are made from this at the moment of asking, and never stored. What only its author can read (a signed
thought) is kept as it came and shown to no other provider."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Said:
    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class Thought:
    """`opaque` is the form of `provider`, handed back to it unchanged; `text` is what people may read."""

    provider: str
    text: str = ""
    opaque: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Called:
    """The model wants a tool. `broken`: its arguments were not a JSON object; this is what it wrote instead."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    broken: str = ""


@dataclass(frozen=True)
class Returned:
    """What a tool said. Every Called has exactly one, later in the conversation."""

    id: str
    name: str
    text: str
    ok: bool = True


@dataclass(frozen=True)
class Shown:
    """A picture or PDF the user sent, by reference. `data` (base64) is filled in for one request and never stored."""

    media_type: str
    path: str
    name: str = ""
    data: str = ""


Item = Said | Thought | Called | Returned | Shown
ReplyItem = Said | Thought | Called

_TYPES: dict[str, type[Item]] = {
    "text": Said,
    "thinking": Thought,
    "tool_call": Called,
    "tool_result": Returned,
    "media": Shown,
}
_NAMES = {kind: name for name, kind in _TYPES.items()}


def role_of(item: Item) -> Literal["user", "assistant", "tool"]:
    match item:
        case Said(role=role):
            return role
        case Returned():
            return "tool"
        case Shown():
            return "user"
        case _:
            return "assistant"


def to_record(item: Item) -> dict[str, Any]:
    """The stored form: role, type and content, as the columns of a transcript row."""
    content = {key: value for key, value in asdict(item).items() if key != "data" and value not in ("", None)}
    content.pop("role", None)
    return {"role": role_of(item), "type": _NAMES[type(item)], "content": content}


def from_record(record: Mapping[str, Any]) -> Item:
    kind = _TYPES[record["type"]]
    content = dict(record["content"])
    if kind is Said:
        return Said(record["role"], content.get("text", ""))
    if kind is Returned:
        content.setdefault("text", "")
    return kind(**content)
