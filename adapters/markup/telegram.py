"""Markdown as Telegram shows it: plain text, and entities that say what is bold, code or a link."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from adapters.markup.layout import Kind, Laid, Span, lay_out

# Telegram ignores what is beyond this.
MAX_ENTITIES: Final = 100
_NAMES: Final[dict[Kind, str]] = {
    "bold": "bold",
    "heading": "bold",
    "italic": "italic",
    "strike": "strikethrough",
    "code": "code",
    "pre": "pre",
    "link": "text_link",
    "quote": "blockquote",
}
_STYLES: Final = ("bold", "heading", "italic", "strike")


@dataclass(frozen=True)
class Formatted:
    text: str
    entities: list[dict[str, Any]]  # as the Bot API takes them; offsets and lengths in UTF-16 units


def to_telegram(markdown: str) -> Formatted:
    laid = lay_out(markdown)
    places = [0, *accumulate(2 if ord(character) > 0xFFFF else 1 for character in laid.text)]
    spans = sorted(_allowed(laid), key=lambda span: (span.start, -span.end))
    entities = [_entity(span, places) for span in spans]
    return Formatted(laid.text, entities[:MAX_ENTITIES])


def _allowed(laid: Laid) -> Iterator[Span]:
    """Telegram takes no styles around code, and no code in links."""
    links = [span for span in laid.spans if span.kind == "link"]
    codes = [span for span in laid.spans if span.kind in ("code", "pre") and not _inside(span, links)]
    for span in laid.spans:
        if span.kind in _STYLES:
            yield from _around(span, codes)
        elif span.kind in _NAMES and not (span.kind == "code" and _inside(span, links)):
            yield span


def _inside(span: Span, others: list[Span]) -> bool:
    return any(other.start <= span.start and span.end <= other.end for other in others)


def _around(span: Span, codes: list[Span]) -> Iterator[Span]:
    start = span.start
    for code in codes:
        if start <= code.start and code.end <= span.end:
            if start < code.start:
                yield Span(start, code.start, span.kind)
            start = code.end
    if start < span.end:
        yield Span(start, span.end, span.kind)


def _entity(span: Span, places: list[int]) -> dict[str, Any]:
    offset = places[span.start]
    entity: dict[str, Any] = {"type": _NAMES[span.kind], "offset": offset, "length": places[span.end] - offset}
    if span.kind == "link":
        entity["url"] = span.detail
    elif span.kind == "pre" and span.detail:
        entity["language"] = span.detail
    return entity
