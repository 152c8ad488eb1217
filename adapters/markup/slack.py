"""Markdown as Slack's mrkdwn. Slack's own commands (`<!channel>`, `<@U123>`) cannot come out of it: every `<` of a text
is escaped, and the only ones we write stand before http, https and mailto addresses."""

import re
from typing import Final

from adapters.markup.layout import Kind, Span, lay_out
from adapters.markup.weaving import Piece, weave

# A sign inside a word is none to Slack, unless something without width stands between.
_NOTHING: Final = "\u200b"
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
        # Labels of links have no signs, and a backtick cannot stand in code.
        if inside.is_in("link") or span.kind not in _SIGNS or (span.kind == "code" and "`" in inside.text):
            return "", ""
        sign = _SIGNS[span.kind]
        return (_NOTHING if inside.before.isalnum() else "") + sign, sign + (_NOTHING if inside.after.isalnum() else "")

    def literal(self, piece: Piece) -> str:
        text = piece.text
        if piece.is_in("pre"):
            text = text.replace("```", f"``{_NOTHING}`")
        elif not piece.is_in("url", "link") and not (piece.is_in("code") and "`" not in text):
            text = _ACCIDENTAL.sub(rf"\1{_NOTHING}", text)
        return escape(text)


def escape(text: str) -> str:
    """The three characters Slack wants escaped, and no others."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _address(address: str) -> str:
    return escape(address.replace("|", "%7C").replace("<", "%3C").replace(">", "%3E"))
