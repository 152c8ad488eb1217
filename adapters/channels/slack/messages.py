"""What a message of ours is made of in Slack: blocks, buttons, the key by which it is found again, names of emoji."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from adapters.channel_port import Button
from adapters.errors import ChannelError
from adapters.markup.emoji import NAMES, emoji_of

EVENT_TYPE: Final = "longshore_message"
MAX_LABEL: Final = 75
MAX_BLOCK_ID: Final = 255
BUTTONS_PER_BLOCK: Final = 25

_STYLES: Final = {"good": "primary", "bad": "danger"}


def metadata_of(key: str) -> dict[str, Any]:
    return {"event_type": EVENT_TYPE, "event_payload": {"key": key}}


def carries(message: Mapping[str, Any], key: str) -> bool:
    """Whether a message that Slack shows us was sent with this key."""
    metadata, blocks = message.get("metadata"), message.get("blocks")
    if isinstance(metadata, dict) and {name: metadata.get(name) for name in metadata_of(key)} == metadata_of(key):
        return True
    several = blocks if isinstance(blocks, list) else []
    return any(isinstance(block, dict) and block.get("block_id") == _block_id(key) for block in several)


def blocks_of(text: str, buttons: tuple[Button, ...], key: str | None = None) -> list[dict[str, Any]]:
    """A text and the buttons below it. `key`: for messages that cannot have metadata."""
    section: dict[str, Any] = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
    section["expand"] = True  # people decide about what they see: nothing is folded away
    if key is not None:
        section["block_id"] = _block_id(key)
    elements = [_element(button, number) for number, button in enumerate(buttons)]
    rows = [elements[start : start + BUTTONS_PER_BLOCK] for start in range(0, len(elements), BUTTONS_PER_BLOCK)]
    return [section, *({"type": "actions", "elements": row} for row in rows)]


def emoji_name(emoji: str) -> str:
    """Slack's name of an emoji, which is given as itself or by a name, also one of the workspace's own."""
    meant = emoji_of(emoji)
    if meant in NAMES:
        return NAMES[meant][0]
    if re.fullmatch(r"[a-z0-9_+'-]{1,100}", meant):
        return meant
    name = unicodedata.name(meant, "") if len(meant) == 1 else ""
    if not name:
        raise ChannelError("slack has no such reaction: give one emoji, or a name like white_check_mark")
    return re.sub(r"[ -]", "_", name.lower())


def _block_id(key: str) -> str:
    return f"longshore:{key}"[:MAX_BLOCK_ID]


def _element(button: Button, number: int) -> dict[str, Any]:
    label = button.label if len(button.label) <= MAX_LABEL else f"{button.label[: MAX_LABEL - 1]}…"
    element: dict[str, Any] = {
        "type": "button",
        "action_id": f"longshore-{number}",
        "text": {"type": "plain_text", "text": label, "emoji": True},
    }
    element |= {"url": button.url} if button.url is not None else {"value": button.token}
    return element | ({"style": _STYLES[button.style]} if button.style in _STYLES else {})
