"""Markdown as Telegram shows it: plain text, and entities that say what is bold, code or a link."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Formatted:
    text: str
    entities: list[dict[str, Any]]  # as the Bot API takes them; offsets and lengths in UTF-16 units


def to_telegram(markdown: str) -> Formatted:
    return Formatted(markdown, [])
