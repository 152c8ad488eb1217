"""Markdown as Slack's mrkdwn. Slack's own commands (`<!channel>`, `<@U123>`) cannot come out of it: every `<` of a text
is escaped, and the only ones we write stand before http, https and mailto addresses."""

import re
from typing import Final

from adapters.markup.layout import Kind, Span, lay_out
from adapters.markup.signs import NOTHING, Piece, in_line, unfenced, weave

_SIGNS: Final[dict[Kind, str]] = {"bold": "*", "heading": "*", "italic": "_", "strike": "~", "code": "`"}
# What Slack would take for a sign although the writer did not mean one.
_ACCIDENTAL: Final = re.compile(r"(?<![^\W_])([*_~`])(?=\S(?:[^\n]{0,300}\S)?\1(?![^\W_]))")


def to_mrkdwn(markdown: str) -> str:
    return weave(lay_out(markdown), _Mrkdwn(), "> ")


class _Mrkdwn:
    def around(self, span: Span, inside: Piece) -> tuple[str, str]:
        if span.kind == "pre":
            return "```\n", "\n```"
        if span.kind == "link":
            return f"<{_address(span.detail)}|", ">"
        if inside.is_in("link") or span.kind not in _SIGNS:  # labels of links have no signs
            return "", ""
        sign = _SIGNS[span.kind]
        if span.kind == "code" and "`" in inside.text:  # which only a block can hold, in the middle of a line too
            sign = "```"
        # A sign inside a word is none to Slack, unless something without width stands between.
        apart = inside.before.isalnum() or inside.before == "`"
        return (NOTHING if apart else "") + sign, sign + (NOTHING if inside.after.isalnum() else "")

    def literal(self, piece: Piece) -> str:
        text = piece.text
        if piece.is_in("pre", "link"):
            text = unfenced(text)
        elif piece.is_in("code"):
            text = in_line(text)
        elif not piece.is_in("url"):
            text = _ACCIDENTAL.sub(rf"\1{NOTHING}", text)
        return escape(text)


def escape(text: str) -> str:
    """The three characters Slack wants escaped, and no others."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _address(address: str) -> str:
    return escape(address.replace("|", "%7C").replace("<", "%3C").replace(">", "%3E"))
