"""How much of a conversation a model is shown: estimating its size, and trimming it without tearing it.

Pure. A piece is what must stay together: a user's words, or an assistant's message with all results of its calls."""

import json
from collections.abc import Sequence
from typing import Final

from adapters.transcript import Called, Item, Returned, Said, Shown, Thought

# A rule of thumb: a little too much for English, too little (by half and more) for Chinese and its like.
CHARACTERS_PER_TOKEN: Final = 3.5
MEDIA_TOKENS: Final = 2000
ITEM_TOKENS: Final = 8
CUT: Final = "[cut: this was too long to keep]"


def estimate(items: Sequence[Item], *texts: str) -> int:
    """About how many tokens these are."""
    return sum(map(_size, items)) + sum(int(len(text) / CHARACTERS_PER_TOKEN) for text in texts)


def _size(item: Item) -> int:
    match item:
        case Said(text=text) | Returned(text=text):
            characters = len(text)
        case Thought(opaque=opaque):
            characters = len(json.dumps(dict(opaque), default=str))
        case Called(name=name, arguments=arguments):
            characters = len(name) + len(json.dumps(dict(arguments), default=str))
        case Shown():
            return MEDIA_TOKENS
    return int(characters / CHARACTERS_PER_TOKEN) + ITEM_TOKENS


def pieces(items: Sequence[Item]) -> list[list[Item]]:
    """Cut a conversation where it may be cut: never between a call and its result, never inside a message."""
    cut: list[list[Item]] = []
    waiting: set[str] = set()
    speaker = ""
    for item in items:
        now = "user" if isinstance(item, Shown) or (isinstance(item, Said) and item.role == "user") else "assistant"
        if not cut or (not waiting and (now != speaker or now == "user")):
            cut.append([])
        cut[-1].append(item)
        speaker = now
        match item:
            case Called(id=call_id):
                waiting.add(call_id)
            case Returned(id=call_id):
                waiting.discard(call_id)
    return cut


def trim(items: Sequence[Item], tokens: int) -> tuple[Item, ...]:
    """The last pieces that fit into so many tokens, beginning with a user's; at least the last one, whatever its size.

    What is dropped is dropped whole."""
    kept: list[list[Item]] = []
    left = tokens
    for piece in reversed(pieces(items)):
        left -= estimate(piece)
        if left < 0 and kept:
            break
        kept.insert(0, piece)
    while len(kept) > 1 and not _begins_with_user(kept[0]):
        kept.pop(0)
    return tuple(item for piece in kept for item in piece)


def shrink(items: Sequence[Item], tokens: int) -> tuple[Item, ...]:
    """The same conversation with tool results cut, the oldest first, until it fits or nothing is left to cut.

    For a turn under way, of which no piece may be dropped."""
    shrunk = list(items)
    excess = estimate(shrunk) - tokens
    for number, item in enumerate(shrunk):
        if excess <= 0:
            break
        if isinstance(item, Returned) and len(item.text) > len(CUT):
            shrunk[number] = Returned(item.id, item.name, CUT, item.ok)
            excess -= _size(item) - _size(shrunk[number])
    return tuple(shrunk)


def _begins_with_user(piece: list[Item]) -> bool:
    return isinstance(piece[0], Shown) or (isinstance(piece[0], Said) and piece[0].role == "user")
