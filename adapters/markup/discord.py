"""Markdown as Discord's: nearly the same, but without tables, images and deep headings, and with signs that Markdown
does not have. What would ping somebody is the driver's to forbid (`allowed_mentions`)."""

import re
from typing import Final

from adapters.markup.layout import Kind, Span, lay_out
from adapters.markup.signs import NOTHING, Piece, in_line, unfenced, weave

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
                sign = "``" if "`" in inside.text else "`"
                return (NOTHING if inside.before == "`" else "") + sign, sign
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
            return unfenced(piece.text)
        if piece.is_in("code"):
            return in_line(piece.text)
        if piece.is_in("url", "marker"):
            return piece.text
        return _escaped(piece)


def _escaped(piece: Piece) -> str:
    # A backslash at the end would be read together with a sign of ours.
    whole = piece.before + piece.text + ("\\" if piece.text.endswith("\\") else piece.after)
    parts, position, end = [], len(piece.before), len(piece.before) + len(piece.text)
    for match in _ACCIDENTAL.finditer(whole):
        if position <= match.start() < end:
            parts.append(whole[position : match.start()] + "\\")
            position = match.start()
    return "".join(parts) + whole[position:end]
