"""Spans as signs around their text, for platforms that read a markup of their own.

Styles end with their line and begin anew in the next, without space at their edges: platforms take `* this*`, or a sign
that is closed lines later, for text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Protocol

from adapters.markup.layout import Kind, Laid, Span

# Without width: what stands on both sides of it is not read as one sign.
NOTHING: Final = "\u200b"
_BEFORE_A_BACKTICK: Final = re.compile("`(?=`)")


@dataclass(frozen=True)
class Piece:
    """A stretch of text with the spans around it, the outer first, and the characters beside it: what a sign means
    depends on its neighbours."""

    text: str
    within: tuple[Span, ...]
    before: str
    after: str

    def is_in(self, *kinds: Kind) -> bool:
        return any(span.kind in kinds for span in self.within)


class Signs(Protocol):
    def around(self, span: Span, inside: Piece) -> tuple[str, str]:
        """What to write in front of a span and behind it. `inside.before` is the last character written."""

    def literal(self, piece: Piece) -> str:
        """The text so that the platform shows exactly it."""


def unfenced(text: str) -> str:
    """For code: no two backticks side by side, so that nothing in it can end it."""
    return _BEFORE_A_BACKTICK.sub(f"`{NOTHING}", text)


def in_line(text: str) -> str:
    """The same for code between two or more backticks in a line, with which its own must not stand together."""
    return (NOTHING if text.startswith("`") else "") + unfenced(text) + (NOTHING if text.endswith("`") else "")


def weave(laid: Laid, signs: Signs, quote: str) -> str:
    """`quote` stands at the beginning of every quoted line."""
    parts: list[str] = []
    position = 0
    for span in laid.spans:
        if span.kind == "quote":
            parts.append(_woven(laid, signs, position, span.start))
            lines = _woven(laid, signs, span.start, span.end).split("\n")
            parts.append("\n".join(quote + line for line in lines))
            position = span.end
    return "".join(parts) + _woven(laid, signs, position, len(laid.text))


def _woven(laid: Laid, signs: Signs, first: int, last: int) -> str:
    spans = sorted(_by_line(laid, first, last), key=lambda span: (span.start, -span.end))
    cuts = sorted({first, last, *(span.start for span in spans), *(span.end for span in spans)})
    parts: list[str] = []
    within: list[tuple[Span, str]] = []  # and what to write behind it
    upcoming = iter(spans)
    span = next(upcoming, None)
    for start, end in pairwise(cuts):
        while span is not None and span.start == start:
            outer = tuple(other for other, _ in within)
            inside = Piece(laid.text[start : span.end], outer, _tail(parts), laid.text[span.end : span.end + 1])
            opening, closing = signs.around(span, inside)
            parts.append(opening)
            within.append((span, closing))
            span = next(upcoming, None)
        piece = Piece(
            laid.text[start:end],
            tuple(other for other, _ in within),
            laid.text[max(0, start - 1) : start],
            laid.text[end : end + 1],
        )
        parts.append(signs.literal(piece))
        while within and within[-1][0].end == end:
            parts.append(within.pop()[1])
    return "".join(parts)


def _by_line(laid: Laid, first: int, last: int) -> Iterator[Span]:
    for span in laid.spans:
        if span.kind == "quote" or not first <= span.start < last:
            continue
        if span.kind in ("pre", "marker"):
            yield span
            continue
        start = span.start
        for line in laid.text[span.start : span.end].split("\n"):
            if words := line.strip():
                begin = start + len(line) - len(line.lstrip())
                yield replace(span, start=begin, end=begin + len(words))
            start += len(line) + 1


def _tail(parts: list[str]) -> str:
    """The last character written."""
    return next((part[-1] for part in reversed(parts) if part), "")
