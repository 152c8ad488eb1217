"""Texts from outside, with what cannot be seen, or would turn the reading direction, shown by its number. HTML's own
signs are escaped by the templates, as everywhere."""

import unicodedata
from typing import Final

from adapters.markup.plain import to_plain

# Control and format characters, halves of pairs, and separators that break lines.
_HIDDEN: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Emoji are put together with these; and what some scripts are written with.
_JOINERS: Final = "\u200d\ufe0f"
_WRITTEN: Final = _JOINERS + "\u200c\u200e\u200f"


def marked(text: object) -> str:
    """Where each character counts: what is approved, names, arguments."""
    return _shown(str(text), _JOINERS)


def spoken(text: object) -> str:
    """What people and agents say, in any script."""
    return _shown(str(text), _WRITTEN)


def brief(markdown: str, most: int = 200) -> str:
    """The beginning of what an agent or the fleet says, without signs, on one line."""
    line = " ".join(to_plain(markdown[: 2 * most]).split())
    return spoken(line if len(line) <= most else line[: most - 1] + "…")


def _shown(text: str, allowed: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_plain(char, allowed) else f"⟨U+{ord(char):04X}⟩" for char in text)


def _is_plain(char: str, allowed: str) -> bool:
    return char in "\n\t" or char in allowed or unicodedata.category(char) not in _HIDDEN
