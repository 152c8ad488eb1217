"""Markdown as Discord's: nearly the same, but without tables, images and deep headings, and with signs that Markdown
does not have. What would ping somebody is the driver's to forbid (`allowed_mentions`)."""

import re
from typing import Final

from adapters.markup.layout import Kind, Span, lay_out
from adapters.markup.weaving import Piece, weave

_NOTHING: Final = "\u200b"
_DEEPEST_HEADING: Final = 3
_SIGNS: Final[dict[Kind, str]] = {"bold": "**", "heading": "**", "italic": "*", "strike": "~~"}
# What Discord would read as markup although the writer did not mean it; `||` hides what stands between two.
_ACCIDENTAL: Final = re.compile(
    r"\\(?=[!-/:-@\[-`{-~])"
    r"|`"
    r"|\*(?=\S)|(?<=\S)\*"  # not in `2 * 3`
    r"|(?<![^\W_])_(?=\S)|(?<=\S)_(?![^\W_])"  # not in snake_case
    r"|~(?=~)|(?<=~)~"
    r"|\|(?=\|)|(?<=\|)\|"
    r"|(?m:^)(?:(?=#{1,3} )|(?=-# )|(?=>{1,3} )|(?=[-+] ))"
)


def to_discord(markdown: str) -> str:
    return weave(lay_out(markdown, bullet="-"), _Discord(), "> ")


class _Discord:
    def around(self, span: Span, inside: Piece) -> tuple[str, str]:
        match span.kind:
            case "pre":
                return f"```{span.detail}\n", "\n```"
            case "code":
                return _sign_of_code(inside.text), _sign_of_code(inside.text)
            case "link":
                address = span.detail.replace("(", "%28").replace(")", "%29")
                # Discord shows no link whose label is another address.
                return ("", f" ({address})") if "://" in inside.text else ("[", f"]({address})")
            case "heading" if inside.before in ("", "\n") and int(span.detail) <= _DEEPEST_HEADING:
                return "#" * int(span.detail) + " ", ""
        sign = _SIGNS.get(span.kind, "")
        return sign, sign

    def literal(self, piece: Piece) -> str:
        if piece.is_in("pre"):
            return piece.text.replace("```", f"``{_NOTHING}`")
        if piece.is_in("url", "marker") or (piece.is_in("code") and _sign_of_code(piece.text)):
            return piece.text
        return _escaped(piece)


def _escaped(piece: Piece) -> str:
    whole = piece.before + piece.text + piece.after
    parts, position, end = [], len(piece.before), len(piece.before) + len(piece.text)
    for match in _ACCIDENTAL.finditer(whole):
        if position <= match.start() < end:
            parts.append(whole[position : match.start()] + "\\")
            position = match.start()
    return "".join(parts) + whole[position:end]


def _sign_of_code(text: str) -> str:
    """Two signs where one is inside; none where that does not help either."""
    if "`" not in text:
        return "`"
    return "" if "``" in text or text[0] == "`" or text[-1] == "`" else "``"
