"""A neutral conversation as messages that every vendor accepts, whatever is in it: calls and results paired, nothing
empty, nothing that UTF-8 cannot hold. Shared by all wire mappings (Anthropic's too); each only spells it its own way.

The same items always give the same messages, and more items only add to them: vendors' caches live on that."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from adapters.transcript import Called, Item, ReplyItem, Returned, Said, Shown, Thought

MAX_BROKEN: Final = 2000  # characters kept of arguments that are not a JSON object
UNKNOWN_RESULT: Final = "no result is known"
NO_OUTPUT: Final = "(no output)"
IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PDF: Final = "application/pdf"


@dataclass(frozen=True)
class AssistantMessage:
    items: tuple[ReplyItem, ...]


@dataclass(frozen=True)
class ToolMessage:
    """One result for each call of the assistant message before it, in the order of the calls."""

    results: tuple[Returned, ...]


@dataclass(frozen=True)
class UserMessage:
    items: tuple[Said | Shown, ...]


Message = AssistantMessage | ToolMessage | UserMessage


@dataclass
class AssistantRun:
    items: list[ReplyItem]


@dataclass
class UserRun:
    items: list[Said | Shown]


def messages_of(items: Sequence[Item], *, thoughts_of: str | None) -> list[Message]:
    """`thoughts_of`: whose thoughts the reader can read; all others are left out."""
    results = _results(items)
    seen: set[str] = set()
    messages: list[Message] = []
    for run in _runs(items, results):
        if isinstance(run, UserRun):
            messages += _user_messages(run.items)
            continue
        said = [item for item in map(_presentable, run.items) if _is_sent(item, seen, thoughts_of)]
        # A thought belongs to what comes of it: alone, or last, vendors refuse it.
        while said and isinstance(said[-1], Thought):
            said.pop()
        if said:
            messages.append(AssistantMessage(tuple(said)))
        if calls := [item for item in said if isinstance(item, Called)]:
            messages.append(ToolMessage(tuple(_answer(call, results.get(call.id)) for call in calls)))
    return messages


def _results(items: Iterable[Item]) -> dict[str, Returned]:
    """The first result of each call. One that nobody asked for, or that comes before its call, is none."""
    called: set[str] = set()
    results: dict[str, Returned] = {}
    for item in items:
        if isinstance(item, Called):
            called.add(item.id)
        elif isinstance(item, Returned) and item.id in called:
            results.setdefault(item.id, item)
    return results


def _runs(items: Iterable[Item], results: Mapping[str, Returned]) -> list[AssistantRun | UserRun]:
    """What the assistant, or the user, said in a row. A result ends what the assistant said, and no more: what the user
    wrote while a tool ran stays together with what came after."""
    runs: list[AssistantRun | UserRun] = []
    answered = False
    for item in items:
        last = runs[-1] if runs else None
        match item:
            case Returned(id=id):
                answered = answered or results.get(id) is item
            case Said(role="user") | Shown():
                if isinstance(last, UserRun):
                    last.items.append(item)
                else:
                    runs.append(UserRun([item]))
            case Said() | Thought() | Called():
                if isinstance(last, AssistantRun) and not answered:
                    last.items.append(item)
                else:
                    runs.append(AssistantRun([item]))
                answered = False
    return runs


def _answer(call: Called, result: Returned | None) -> Returned:
    if result is None:
        return Returned(call.id, call.name, UNKNOWN_RESULT, ok=False)
    return Returned(call.id, call.name, whole(result.text) if result.text.strip() else NO_OUTPUT, result.ok)


def _user_messages(items: Iterable[Said | Shown]) -> list[Message]:
    """A text begins a message unless the one before has none yet: a picture and its caption belong together."""
    messages: list[list[Said | Shown]] = []
    for item in items:
        if isinstance(item, Said) and not item.text.strip():
            continue
        if not messages or (isinstance(item, Said) and any(isinstance(other, Said) for other in messages[-1])):
            messages.append([])
        messages[-1].append(Said("user", whole(item.text)) if isinstance(item, Said) else item)
    return [UserMessage(tuple(message)) for message in messages]


def _presentable(item: ReplyItem) -> ReplyItem:
    match item:
        case Said(text=text):
            return Said("assistant", whole(text))
        case Called(id=id, name=name, arguments=arguments, broken=broken):
            # A name some model made up would make others refuse the conversation for ever.
            name = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown"
            return Called(id, name, {} if broken else ordered(arguments))
        case _:
            return item


def _is_sent(item: ReplyItem, seen: set[str], thoughts_of: str | None) -> bool:
    match item:
        case Said(text=text):
            return bool(text.strip())
        case Thought(provider=provider):
            return provider == thoughts_of
        case Called(id=id):
            if id in seen:
                return False
            seen.add(id)
            return True


def ordered(value: Mapping[str, Any]) -> dict[str, Any]:
    """With keys in one order: a database may give them back in another, and caches compare bytes."""
    result: dict[str, Any] = json.loads(json.dumps(whole(dict(value)), sort_keys=True))
    return result


def whole(value: Any) -> Any:
    """Without halves of surrogate pairs, which JSON can say and no UTF-8 can hold."""
    match value:
        case str():
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        case list() | tuple():
            return [whole(item) for item in value]
        case Mapping():
            return {whole(key): whole(item) for key, item in value.items()}
        case _:
            return value


def kind_of(shown: Shown, *, pdfs: bool = True) -> Literal["image", "pdf", "note"]:
    """As what it can be sent. Without its data, or of a type vendors do not read, only its name is told."""
    if shown.data and shown.media_type in IMAGES:
        return "image"
    if shown.data and pdfs and shown.media_type == PDF:
        return "pdf"
    return "note"


def note(shown: Shown) -> str:
    kind = "image" if shown.media_type.startswith("image/") else "pdf" if shown.media_type == PDF else "file"
    return whole(f"[{kind}: {file_name(shown)}]")  # type: ignore[no-any-return]  # a text stays a text


def file_name(shown: Shown) -> str:
    return shown.name or shown.path.rpartition("/")[2] or "unnamed"


def data_url(shown: Shown) -> str:
    return f"data:{shown.media_type};base64,{shown.data}"


def cut_off(items: tuple[ReplyItem, ...]) -> tuple[ReplyItem, ...]:
    """What was said up to the limit. A call cut before its first argument looks like one without any, and is none."""
    match items:
        case (*before, Called(id=id, name=name, broken="") as last) if not last.arguments:
            return (*before, Called(id, name, broken="(cut off)"))
        case _:
            return items


def _no_number(name: str) -> None:
    """NaN and the infinities are not JSON, and no vendor would take them back."""
    raise ValueError(name)


def read_call(id: str, name: str, written: str) -> Called:
    """A call as the model wrote it. No arguments at all are written as nothing by some, and mean none."""
    try:
        arguments = json.loads(written, parse_constant=_no_number) if written.strip() else {}
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return Called(id, name, whole(arguments))
    return Called(id, name, broken=whole(written)[:MAX_BROKEN])
