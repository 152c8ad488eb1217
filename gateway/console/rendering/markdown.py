"""What agents write, as HTML that can do nothing: Markdown without HTML in it, and then cleaned once more.

No picture is loaded: whoever made the agent write one would learn who looks, and when."""

from functools import cache, lru_cache
from typing import Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererProtocol
from markdown_it.token import Token
from markupsafe import Markup

from gateway.console.rendering.texts import spoken

MAX_NESTING: Final = 20
# Looking at it must stay quick whatever an agent has written; the rest is in the row.
MAX_CHARACTERS: Final = 20_000
# What has more of these is shown as it is. The parser's time grows with the square of the signs, and with the rows of a
# table by its columns: missing cells are filled in.
MAX_SIGNS: Final = 2000
MAX_LINES: Final = 1000
MAX_CELLS: Final = 5000

_TAGS: Final = {
    *("p", "br", "hr", "em", "strong", "s", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES: Final = {"a": {"href", "title"}, "ol": {"start"}}
_SCHEMES: Final = {"http", "https", "mailto"}
_SIGNS: Final = "[]!|*_~`<>&\\"


def markdown(text: str | None) -> Markup:
    given = text or ""
    return _shown(given if len(given) <= MAX_CHARACTERS else given[:MAX_CHARACTERS] + "…")


@lru_cache(maxsize=500)  # pages and streams show the same again and again
def _shown(given: str) -> Markup:
    if is_too_much(given):
        return _as_it_is(given)
    tokens = _parser().parse(given)
    if any(token.level >= MAX_NESTING - 2 for token in tokens):
        # Deeper than this the parser drops what it has not read, and nothing may be said unseen.
        return _as_it_is(given)
    cleaned = nh3.clean(
        _parser().renderer.render(tokens, _parser().options, {}),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )
    # What stood there as `&#x202E;` is a character now.
    return Markup(spoken(cleaned))  # noqa: S704 - it has just been cleaned


def is_too_much(text: str) -> bool:
    """Whether reading it as Markdown would take long; found out without reading it."""
    if sum(map(text.count, _SIGNS)) > MAX_SIGNS:
        return True
    lines = text.split("\n")
    cells = len(lines) * max(line.count("|") for line in lines)
    # A cell that somebody wrote has a character at least.
    return len(lines) > MAX_LINES or cells > min(len(text), MAX_CELLS)


def _as_it_is(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(spoken(text))


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "breaks": True, "linkify": False, "maxNesting": MAX_NESTING}
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    parser.add_render_rule("image", _image)
    return parser


def _image(_self: RendererProtocol, tokens: list[Token], index: int, _options: object, _env: object) -> str:
    """As a link with its words."""
    token = tokens[index]
    source = str(token.attrs.get("src") or "")
    return f'<a href="{escapeHtml(source)}">{escapeHtml(token.content or "a picture")}</a>'
