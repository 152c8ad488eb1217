"""What agents write, in the console: their Markdown is shown, and nothing of it acts."""

import re
from types import SimpleNamespace

import pytest

from gateway.console.rendering import markdown as markdown_module
from gateway.console.rendering.markdown import MAX_CHARACTERS, MAX_LINES, MAX_SIGNS, markdown

# What may be in a tag at all; a browser does nothing by any of it but follow a link that somebody clicks.
HARMLESS = re.compile(
    r"</?(p|br|hr|em|strong|s|del|code|pre|blockquote|ul|ol|li|h[1-6]|table|thead|tbody|tr|th|td)( start=\"\d+\")?>"
    r"|<a( (href=\"(https?:|mailto:|#|/|[\w.])[^\"]*\"|title=\"[^\"]*\"|rel=\"[\w ]*\"|target=\"_blank\"))*>|</a>"
)
ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<div hx-get='/console/sign-out' hx-trigger='load'>x</div>",
    "<form action=/console/groups/new method=post><button>x</button></form>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:msgbox(1))",
    '[x](https://a.example/"onmouseover="alert(1))',
    "![x](javascript:alert(1))",
    '![x" onerror="alert(1)](https://a.example/x.png)',
    "![<script>alert(1)</script>](https://a.example/x.png)",
    "<https://a.example/?<script>alert(1)</script>>",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "`</code><script>alert(1)</script>`",
    '[x]: https://a.example "\\"><script>alert(1)</script>"\n\n[x]',
    "<style>*{display:none}</style><svg/onload=alert(1)>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "| a |\n| - |\n| <script>alert(1)</script> |",
]


@pytest.mark.spec("G3")
@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_that_an_agent_writes_can_act(text: str) -> None:
    shown = str(markdown(text))
    left = HARMLESS.sub("", shown)
    assert "<" not in left, shown


@pytest.mark.spec("G3")
def test_its_markdown_is_shown() -> None:
    shown = str(markdown("# Tides\n\n- **high** at `06:12`\n\n| berth | free |\n| - | - |\n| 7 | ~~no~~ yes |"))
    for part in ("<h1>Tides</h1>", "<strong>high</strong>", "<code>06:12</code>", "<td>7</td>", "<s>no</s>"):
        assert part in shown


@pytest.mark.spec("G3")
def test_links_lead_out_without_telling_from_where_and_pictures_are_not_loaded() -> None:
    shown = str(markdown("[tides](https://tides.example) ![chart](https://tides.example/c.png)"))
    assert shown.count('rel="noopener noreferrer nofollow"') == 2
    assert "<img" not in shown
    assert '<a href="https://tides.example/c.png"' in shown


@pytest.mark.spec("G3")
def test_what_is_too_long_or_too_deep_is_still_quickly_shown() -> None:
    assert len(markdown("x" * (MAX_CHARACTERS * 2))) < MAX_CHARACTERS * 1.1
    for deep in (">" * 5000 + "x", "- " * 3000 + "x", "[" * 5000, "*" * 5000, "`" * 5000):
        assert isinstance(str(markdown(deep)), str)
    assert str(markdown(None)) == ""


# Each would keep the parser busy for long, or become a page of megabytes.
COSTLY = [
    "|" + "a|" * 3000 + "\n|" + "-|" * 3000 + "\n" + "|x\n" * 3000,
    "a|b\n-|-\n" + "|\n" * 10_000,
    "|a|b|c|d|e\n|-|-|-|-|-\n" + "x\n" * (MAX_LINES // 2),
    *("[" * 20_000, "![" * 10_000, "[](" * 6000, "~~a" * 6000, "_a" * 10_000, "<" * 20_000, "&" * 20_000),
    "- a\n" * (MAX_LINES + 1),
]


@pytest.mark.spec("G3")
@pytest.mark.parametrize("text", COSTLY, ids=lambda text: text[:6])
def test_what_would_keep_the_parser_busy_is_shown_as_it_is(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown_module, "_parser", lambda: SimpleNamespace())  # which can do nothing
    markdown_module._shown.cache_clear()
    shown = str(markdown(text))
    assert shown.startswith("<pre>")
    assert shown.count("<") == 2
    assert len(shown) < 6 * MAX_CHARACTERS


@pytest.mark.spec("G3")
def test_what_people_write_is_never_too_much() -> None:
    row = "| 7 | the north quay | **free** | `06:12` | [tides](https://tides.example) | - |\n"
    text = (
        row + "| - | - | - | - | - | - |\n" + row * 100 + "\n" + "A long sentence about the tides, _at last_.\n" * 200
    )
    assert len(text) < MAX_CHARACTERS
    assert sum(map(text.count, "[]|*_`")) < MAX_SIGNS
    assert str(markdown(text)).count("<tr>") == 101


@pytest.mark.spec("G3")
def test_the_same_text_is_read_once() -> None:
    markdown_module._shown.cache_clear()
    for _ in range(5):
        markdown("once *more*")
    assert markdown_module._shown.cache_info().misses == 1
