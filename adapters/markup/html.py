"""Markdown as HTML for mail and the browser. Nothing an agent writes becomes a tag of its own; links lead to http,
https and mailto; pictures are links, because showing one tells its server who read the message and when."""

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from adapters.markup.document import PARSER, read


def to_html(markdown: str) -> str:
    """A fragment, without a page around it."""
    tokens = read(markdown)
    if tokens is None:
        return "<p>" + escape(markdown).replace("\n", "<br />\n") + "</p>\n"
    return str(_RENDERER.render(tokens, PARSER.options, {}))


class _Renderer(RendererHTML):
    """Its methods are called by the names of tokens."""

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        address = str(tokens[idx].attrGet("href"))
        return _anchor(address) + (escape(address) if tokens[idx + 1].type == "link_close" else "")

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        address = str(tokens[idx].attrGet("src"))
        return f"{_anchor(address)}{escape(tokens[idx].content or address)}</a>"


def _anchor(address: str) -> str:
    return f'<a href="{escape(address)}" rel="noopener noreferrer nofollow">'


_RENDERER: Final = _Renderer()
