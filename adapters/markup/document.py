"""Reading the Markdown that agents write: CommonMark with tables and strikethrough, less what hides or changes plain
text. HTML is text here. Where one cannot be sure that nothing gets lost, there is no document, and the text is shown as
it is."""

import re
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

# Deeper than this, the parser drops what it has not read.
MAX_NESTING: Final = 40
# Beyond this nobody formats a message, but somebody may try how long the parser takes.
MAX_CHARACTERS: Final = 200_000
# Nor is a paragraph with so many links one: the parser looks far ahead for each, and what it finds is thrown away.
MAX_BRACKETS: Final = 300
_LINKS: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_REST_OF_ADDRESS: Final = re.compile(r"://[^\s<>\[\]\"`\\\x00-\x1f]+")
_SENTENCE_MARKS: Final = ".,;:!?*_~'|„“”’»«"
_SCHEME: Final = re.compile(r"(?<![A-Za-z0-9])https?\Z", re.IGNORECASE)


def is_link(address: str) -> bool:
    """Only what opens a page or a letter. Everything else is shown, not linked."""
    return _LINKS.match(address) is not None


def _keep_the_line_end(state: StateInline, silent: bool) -> bool:
    """A line end stays one, and the next line stays as far to the right as it was written."""
    if state.src[state.pos] != "\n":
        return False
    if not silent:
        state.pending = state.pending.rstrip(" \t")
        state.push("softbreak", "br", 0)
    state.pos += 1
    return True


def _bare_address(state: StateInline, silent: bool) -> bool:
    """`https://…` in the middle of a text: a `_` or `*` in it is no markup."""
    start = state.pos
    if state.src[start] != ":":
        return False
    scheme = _SCHEME.search(state.src, max(0, start - 5), start)
    match = _REST_OF_ADDRESS.match(state.src, start, state.posMax)
    if scheme is None or match is None:
        return False
    rest = _without_the_sentence(match.group())
    if len(rest) < 4:
        return False
    if not silent:
        if not state.pending.endswith(scheme.group()):
            return False
        address = scheme.group() + rest
        if state.linkLevel > 0:
            state.pending += rest
        else:
            state.pending = state.pending[: -len(scheme.group())]
            state.push("link_open", "a", 1).attrs = {"href": address}
            state.push("text", "", 0).content = address
            state.push("link_close", "a", -1)
    state.pos += len(rest)
    return True


def _without_the_sentence(rest: str) -> str:
    """Without what belongs to the sentence around an address: its marks, and a bracket that was opened before it."""
    surplus = rest.count(")") - rest.count("(")
    end = len(rest)
    while end and (rest[end - 1] in _SENTENCE_MARKS or (rest[end - 1] == ")" and surplus > 0)):
        surplus -= rest[end - 1] == ")"
        end -= 1
    return rest[:end]


def _read_lines(state: StateCore) -> None:
    """What stands in the blocks; where that would take long, as it is."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        assert token.children is not None
        if token.content.count("[") <= MAX_BRACKETS:
            state.md.inline.parse(token.content, state.md, state.env, token.children)
            continue
        for number, line in enumerate(token.content.split("\n")):
            token.children += [Token("softbreak", "br", 0)] if number else []
            token.children.append(Token("text", "", 0, content=line))


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    # Text that only looks like markup by accident: indented lines, a line of dashes under another, `&amp;`. And
    # `[x]: y`, which would not be shown at all.
    parser.disable(["code", "lheading", "reference", "html_block", "html_inline", "entity"])
    parser.core.ruler.at("inline", _read_lines)
    parser.inline.ruler.at("newline", _keep_the_line_end)
    parser.inline.ruler.before("escape", "bare_address", _bare_address)
    parser.validateLink = is_link  # type: ignore[method-assign,assignment]
    return parser


PARSER: Final = _parser()
_BLOCKS: Final = _parser()
_BLOCKS.core.ruler.enableOnly(["normalize", "block"])


def read(markdown: str) -> list[Token] | None:
    """What the text consists of; None: show it as it is."""
    if len(markdown) > MAX_CHARACTERS:
        return None
    tokens = PARSER.parse(markdown)
    if any(token.level >= MAX_NESTING - 2 for token in tokens):
        return None
    return tokens


def blocks(markdown: str) -> list[Token]:
    """Of a text of any length, without what stands in them: code that goes on in the next message must stay code."""
    return _BLOCKS.parse(markdown)


def lines_of(markdown: str) -> list[str]:
    """The lines as the parser counts them."""
    return markdown.replace("\r\n", "\n").replace("\r", "\n").split("\n")
