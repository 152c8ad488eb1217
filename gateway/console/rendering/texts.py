"""Texts from outside, with what cannot be seen, or would turn the reading direction, shown by its number. HTML's own
signs are escaped by the templates, as everywhere."""

import unicodedata
from collections.abc import Callable
from typing import Final

from markupsafe import Markup, escape

from adapters.markup.plain import to_plain

# Control and format characters, halves of pairs, and separators that break lines.
_HIDDEN: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Letters, marks and signs that show nothing.
_BLANK: Final = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
_JOINER, _EMOJI_STYLE, _KEYCAP = "\u200d", "\ufe0f", "\u20e3"
# What some scripts are written with.
_WRITTEN: Final = _JOINER + "\u200c\u200e\u200f"


class Shown(str):
    """A text that has been looked through."""

    __slots__ = ()


def marked(text: object) -> Shown:
    """Where each character counts: what is approved, names, arguments."""
    return _shown(str(text), _counts)


def spoken(text: object) -> Shown:
    """What people and agents say, in any script."""
    return _shown(str(text), _is_written)


def exactly(text: object) -> Markup:
    """What is sent back as it is: the value of a field."""
    return escape(text)


def floor(value: object) -> object:
    """The least that is done with whatever a template shows."""
    return spoken(value) if isinstance(value, str) and not isinstance(value, Markup | Shown) else value


def brief(markdown: str, most: int = 200) -> Shown:
    """The beginning of what an agent or the fleet says, without signs, on one line."""
    line = " ".join(to_plain(markdown[: 2 * most]).split())
    return spoken(line if len(line) <= most else line[: most - 1] + "…")


def _shown(text: str, is_fine: Callable[[str, str, str], bool]) -> Shown:
    if isinstance(text, Shown) or (text.isascii() and text.isprintable()):
        return Shown(text)
    around = zip(" " + text, text, text[1:] + " ", strict=False)
    return Shown("".join(char if is_fine(*three) else f"⟨U+{ord(char):04X}⟩" for three in around for char in three[1]))


def _is_written(_before: str, char: str, _after: str) -> bool:
    return char in "\n\t" or char in _WRITTEN or (char not in _BLANK and unicodedata.category(char) not in _HIDDEN)


def _counts(before: str, char: str, after: str) -> bool:
    """Emoji are put together with joiners, and may say that they are one; nothing else may have either."""
    if char == _JOINER or _is_variant(char):
        after_sign = not before.isascii() and unicodedata.category(before)[0] in "SP"
        keycap = char == _EMOJI_STYLE and after == _KEYCAP
        return char in (_JOINER, _EMOJI_STYLE) and (after_sign or keycap or before == _EMOJI_STYLE)
    return char not in _WRITTEN and _is_written(before, char, after)


def _is_variant(char: str) -> bool:
    """Says how the character before it is drawn, and shows nothing itself."""
    return "\ufe00" <= char <= "\ufe0f" or "\u180b" <= char <= "\u180f" or "\U000e0100" <= char <= "\U000e01ef"
