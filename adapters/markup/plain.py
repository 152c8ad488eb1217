"""Markdown as plain text for people: what is written, without signs, and with the addresses that links lead to."""

from adapters.markup.layout import Span, lay_out
from adapters.markup.signs import Piece, weave


def to_plain(markdown: str) -> str:
    return weave(lay_out(markdown), _Plain(), "> ")


class _Plain:
    def around(self, span: Span, inside: Piece) -> tuple[str, str]:
        return "", f" ({span.detail})" if span.kind == "link" else ""

    def literal(self, piece: Piece) -> str:
        return piece.text
