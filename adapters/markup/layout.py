"""Markdown laid out as text: what is read, and spans that say how it looks. Platforms differ only in how they say the
same spans (`telegram`, `slack`, `discord`, `plain`); lines, lists and tables are made here, once."""

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from markdown_it.token import Token

from adapters.markup.document import lines_of, read
from adapters.markup.tables import aligned

# `url` is an address that stands in the text as it is, `marker` the sign before a list's item.
Kind = Literal["bold", "italic", "strike", "code", "pre", "link", "url", "quote", "heading", "marker"]

RULE: Final = "———"
_LANGUAGE: Final = re.compile(r"[A-Za-z0-9+#._-]{1,32}")
_STYLES: Final[dict[str, Kind]] = {"strong": "bold", "em": "italic", "s": "strike"}


def utf16_length(text: str) -> int:
    """In UTF-16 units: how Telegram counts, and never fewer than other platforms do."""
    return len(text) + sum(character > "\uffff" for character in text)


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` of the text. `detail`: the address of a link, the language of a `pre`, the level of a
    heading."""

    start: int
    end: int
    kind: Kind
    detail: str = ""


@dataclass(frozen=True)
class Laid:
    """`spans` never overlap without one being inside the other; the outer comes first."""

    text: str
    spans: tuple[Span, ...] = ()


def lay_out(markdown: str, bullet: str = "•") -> Laid:
    """Of a text that is nothing but markup, the markup itself is shown: nothing at all would look like a mistake."""
    tokens = read(markdown)
    laid = _Layout(lines_of(markdown), bullet).of(tokens) if tokens is not None else Laid(markdown)
    stripped = _stripped(laid)
    return stripped if stripped.text or not markdown.strip() else Laid(markdown.strip())


class _Layout:
    def __init__(self, lines: list[str], bullet: str) -> None:
        self._lines = lines
        self._bullet = bullet
        self._parts: list[str] = []
        self._length = 0
        self._fresh = True  # nothing stands in this line yet
        self._line = 0  # of the source: the last one that was laid out
        self._spans: list[Span] = []
        self._open: list[int] = []  # positions in `_spans`; -1: nothing new
        self._labels: list[int] = []  # where in `_parts` the labels of the open links begin
        self._indents = [""]
        self._numbers: list[tuple[str, int]] = []  # per list: its last number as written, and as shown

    def of(self, tokens: list[Token]) -> Laid:
        position = 0
        while position < len(tokens):
            token = tokens[position]
            if token.type == "table_open":
                end = next(i for i in range(position, len(tokens)) if tokens[i].type == "table_close")
                self._table(token, tokens[position:end])
                position = end
            else:
                self._block(token)
            position += 1
        return self.laid()

    def laid(self) -> Laid:
        return Laid("".join(self._parts), tuple(self._spans))

    # --- blocks ---

    def _block(self, token: Token) -> None:
        match token.type:
            case "inline":
                self.inline(token)
            case "paragraph_open":
                self._begin(token)
                if token.level == 0:
                    line = self._lines[_first(token)]
                    self._write(line[: len(line) - len(line.lstrip(" \t"))])
            case "heading_open":
                self._begin(token)
                self._start("heading", token.tag[1:])
            case "heading_close":
                self._stop()
            case "blockquote_open":
                self._quote(token)
            case "blockquote_close":
                self._stop()
                self._indents.pop()
            case "bullet_list_open" | "ordered_list_open":
                self._numbers.append(("", 0))
            case "bullet_list_close" | "ordered_list_close":
                self._numbers.pop()
            case "list_item_open":
                self._item(token)
            case "list_item_close":
                self._indents.pop()
            case "fence":
                language = _LANGUAGE.match(token.info.strip())
                self._pre(token, token.content.removesuffix("\n"), language.group() if language else "")
            case "hr":
                self._begin(token)
                self._write(RULE)

    def _move(self, line: int) -> None:
        """Go on with a line of the source: below what is there, with as many empty lines between as there."""
        if line > self._line and self._length:
            self._add("\n" * (line - self._line))
            self._fresh = True
        self._line = line

    def _begin(self, token: Token) -> None:
        self._move(_first(token))
        self._line = _last(token, self._lines)

    def _quote(self, token: Token) -> None:
        self._move(_first(token))
        nested = self._is_open("quote")
        self._start("quote")
        if nested:
            self._write("> ")
        self._indents.append(self._indents[-1] + ("> " if nested else ""))

    def _item(self, token: Token) -> None:
        self._move(_first(token))
        marker = f"{self._bullet} "
        if token.info:
            written, shown = self._numbers[-1]
            # Some number every item 1 and leave the counting to us.
            shown = shown + 1 if token.info == written else int(token.info)
            self._numbers[-1] = (token.info, shown)
            marker = f"{shown}{token.markup} "
        self._start("marker")
        self._write(marker)
        self._stop()
        self._indents.append(self._indents[-1] + " " * len(marker))

    def _pre(self, token: Token, text: str, language: str = "") -> None:
        self._begin(token)
        if not text.strip():
            return
        if not self._fresh:  # beside the marker of an item
            self._add("\n")
        self._start("pre", language)
        self._add(text)
        self._stop()
        self._fresh = False

    def _table(self, opening: Token, tokens: list[Token]) -> None:
        rows: list[list[str]] = []
        sides: list[str] = []
        for token in tokens:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "th_open":
                sides.append(str(token.attrGet("style") or "").removeprefix("text-align:"))
            elif token.type == "inline":
                rows[-1].append(_cell(token))
        self._pre(opening, aligned(rows, sides))

    # --- inline ---

    def inline(self, token: Token) -> None:
        for child in token.children or ():
            self._piece(child)

    def _piece(self, token: Token) -> None:
        match token.type:
            case "text":
                self._write(token.content)
            case "softbreak" | "hardbreak":
                # A label in two lines is no link on most platforms.
                self._write(" " if self._labels else "\n")
            case "code_inline":
                self._start("code")
                self._write(token.content)
                self._stop()
            case "link_open":
                self._start_link(str(token.attrGet("href")))
            case "link_close":
                self._stop_link()
            case "image":
                self._start_link(str(token.attrGet("src")))
                self._write(" ".join(token.content.split()))
                self._stop_link()
            case "strong_open" | "em_open" | "s_open":
                self._start(_STYLES[token.tag])
            case "strong_close" | "em_close" | "s_close":
                self._stop()

    def _start_link(self, address: str) -> None:
        self._start("link", address)
        self._labels.append(len(self._parts))

    def _stop_link(self) -> None:
        place, label = self._open[-1], "".join(self._parts[self._labels.pop() :])
        if place >= 0:
            address = self._spans[place].detail
            if not label.strip():
                self._write(address)
            if label in ("", address):
                self._spans[place] = replace(self._spans[place], kind="url")
        self._stop()

    # --- writing ---

    def _write(self, text: str) -> None:
        if text:
            self._indent()
            self._add(text.replace("\n", "\n" + self._indents[-1]))

    def _indent(self) -> None:
        if self._fresh:
            self._add(self._indents[-1])
            self._fresh = False

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _is_open(self, kind: Kind) -> bool:
        return any(place >= 0 and self._spans[place].kind == kind for place in self._open)

    def _start(self, kind: Kind, detail: str = "") -> None:
        if self._is_open(kind) or (kind == "bold" and self._is_open("heading")):  # bold in bold is bold
            self._open.append(-1)
            return
        if kind not in ("pre", "quote"):
            self._indent()
        self._open.append(len(self._spans))
        self._spans.append(Span(self._length, self._length, kind, detail))

    def _stop(self) -> None:
        place = self._open.pop()
        if place >= 0:
            self._spans[place] = replace(self._spans[place], end=self._length)


def _cell(token: Token) -> str:
    """What a table's cell says, in one line."""
    layout = _Layout([], "")
    layout.inline(token)
    return " ".join(_with_addresses(layout.laid()).split())


def _with_addresses(laid: Laid) -> str:
    """The text alone, with what links lead to behind them."""
    parts, position = [], 0
    for span in sorted((span for span in laid.spans if span.kind == "link"), key=lambda span: span.end):
        parts.append(f"{laid.text[position : span.end]} ({span.detail})")
        position = span.end
    return "".join(parts) + laid.text[position:]


def _first(token: Token) -> int:
    assert token.map is not None, "every block knows its lines"
    return token.map[0]


def _last(token: Token, lines: list[str]) -> int:
    """Its last line that is not empty."""
    assert token.map is not None, "every block knows its lines"
    last = token.map[1] - 1
    while last > token.map[0] and not lines[last].strip(" \t"):
        last -= 1
    return last


def _stripped(laid: Laid) -> Laid:
    """Without space around it, which platforms take away by themselves; then offsets would be wrong."""
    text = laid.text.strip()
    gone = len(laid.text) - len(laid.text.lstrip())
    moved = (replace(span, start=max(0, span.start - gone), end=min(len(text), span.end - gone)) for span in laid.spans)
    return Laid(text, tuple(span for span in moved if span.start < span.end))
