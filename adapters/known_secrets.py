"""The secrets that we were told, in every form they are usually written in, and where in a text a secret may begin.

Most of a text is passed over by one search for such places; only there is it compared with anything."""

import base64
import json
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from adapters.secret_shapes import SHAPES

# A shorter value is a word of the language sooner than a secret.
LEAST_CHARACTERS: Final = 8
_HEAD: Final = 4  # so many characters of a known secret make a place worth looking at
_END_MARK: Final = 80  # no line that ends a private key is longer
_ANY: Final = "surrogatepass"  # what is not text in the environment comes as half of a surrogate pair


class KnownSecrets:
    """Immutable. `values` are secrets of any form; short ones are ignored. Patterns are compiled for the first text."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values if len(value) >= LEAST_CHARACTERS for form in _forms(value)}
        by_head: dict[str, list[str]] = {}
        for form in sorted(forms, key=lambda form: (-len(form), form)):
            by_head.setdefault(form[:_HEAD], []).append(form)
        self._by_head: Final = by_head
        # So much of a secret that has begun must be kept to see where it ends.
        self.keep: Final = max([_END_MARK, *map(len, forms)])
        self._words: Final = [*by_head, *(shape.start for shape in SHAPES)]

    @cached_property
    def trigger(self) -> re.Pattern[str]:
        """Where a secret may begin in a text that goes on."""
        return _trigger(self._words, digits=True)

    @cached_property
    def whole_trigger(self) -> re.Pattern[str]:
        return _trigger(self._words, digits=True, whole=True)

    @cached_property
    def _known_trigger(self) -> re.Pattern[str]:
        return _trigger(self._by_head)

    def end(self, text: str, at: int, *, final: bool) -> int | None:
        """Where the longest known secret that begins here ends; -1: more text would decide. At the very end of a
        text, also before the `…` of one that was cut, a good part of a secret counts as one."""
        size = len(text)
        head = text[at : at + _HEAD]
        if len(head) < _HEAD:
            return -1 if not final and any(start.startswith(head) for start in self._by_head) else None
        for form in self._by_head.get(head, ()):
            if text.startswith(form, at):
                return at + len(form)
            if size - at <= len(form) + 1:
                end = size - 1 if text[-1] == "…" else size
                if form.startswith(text[at:end]) and (end == size or end - at >= LEAST_CHARACTERS):
                    if not final:
                        return -1
                    if end - at >= LEAST_CHARACTERS:
                        return end
        return None

    def widened(self, text: str, start: int, end: int, *, final: bool) -> int:
        """The end of a secret, when another begins inside it and goes on beyond; -1: more text would decide."""
        at = start
        while (match := self._known_trigger.search(text, at, end)) is not None:
            known = self.end(text, match.start(), final=final)
            if known == -1:
                return -1
            end = max(end, known or 0)
            at = match.start() + 1
        return end


def _trigger(words: Iterable[str], *, digits: bool = False, whole: bool = False) -> re.Pattern[str]:
    """Finds the places worth a look: one of `words`, or, unless the text is `whole`, a beginning of one at its end. It
    is a tree by first letters, so that the engine skips over ordinary text without trying each word."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    end = "" if whole else r"|\Z"
    branches = [re.escape(letter) + _branch(node, end) for letter, node in sorted(tree.items())]
    if digits:
        early = "" if whole else r"|[0-9]{0,4}\Z"
        branches += [f"{digit}(?:[0-9]{{5,11}}(?::{end}){early})" for digit in range(10)]
    return re.compile("|".join(branches) or r"(?!)")


def _branch(node: dict[str, Any], end: str) -> str:
    if "" in node:
        return ""
    return "(?:" + "|".join(re.escape(letter) + _branch(child, end) for letter, child in node.items()) + end + ")"


def _forms(value: str) -> set[str]:
    """How a secret may be written: as it is, quoted for addresses, escaped for JSON, in base64, also as a part of
    something longer (`user:password`), where its place decides which characters come out."""
    forms = {value, unquote(value), unquote_plus(value), repr(value)[1:-1]}
    forms |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    for quoted in (quote(value, errors=_ANY), quote(value, safe="", errors=_ANY), quote_plus(value, errors=_ANY)):
        forms |= {quoted, re.sub("%..", lambda match: match[0].lower(), quoted)}
    raw = value.encode("utf-8", _ANY)
    for offset, skipped in ((0, 0), (1, 2), (2, 3)):
        whole, rest = divmod(offset + len(raw), 3)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(b"\x00" * offset + raw).decode()
            forms.add(encoded[skipped : whole * 4 + rest])
            if offset == 0:
                forms |= {encoded, encoded.rstrip("=")}
    return {form for form in forms if len(form) >= LEAST_CHARACTERS}
