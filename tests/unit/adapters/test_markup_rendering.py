"""Agents' Markdown on each platform: what is written stays readable, whatever it is, and nothing of it commands."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.channels.conformance import TEXT
from adapters.markup.discord import to_discord
from adapters.markup.document import MAX_CHARACTERS
from adapters.markup.html import to_html
from adapters.markup.layout import utf16_length
from adapters.markup.plain import to_plain
from adapters.markup.slack import to_mrkdwn
from adapters.markup.telegram import to_telegram
from models.quoting import fenced_json, quoted, visible
from tests.support.markdown_texts import MARKDOWN, PLAIN

pytestmark = pytest.mark.spec("C3")


def unescaped_slack(text: str) -> str:
    return text.replace("\u200b", "").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def unescaped_discord(text: str) -> str:
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)


class Page(HTMLParser):
    """What a browser makes of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [str(value) for name, value in attrs if name == "href"]

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(renderer: str, markdown: str) -> str:
    """What a person reads there."""
    readers: dict[str, Callable[[str], str]] = {
        "telegram": lambda text: to_telegram(text).text,
        "slack": lambda text: unescaped_slack(to_mrkdwn(text)),
        "discord": lambda text: unescaped_discord(to_discord(text)),
        "html": lambda text: Page(to_html(text)).text.strip(),
        "plain": to_plain,
    }
    return readers[renderer](markdown)


PLATFORMS = ["telegram", "slack", "discord", "html", "plain"]


@pytest.mark.parametrize("platform", PLATFORMS)
@given(PLAIN)
@example(TEXT)
@example("one\n\n\nthree lines below\n   with space before it")
@example("a\n---x\nb = c\n===")
def test_plain_text_is_shown_as_it_is(platform: str, text: str) -> None:
    seen = shown(platform, text)
    if platform == "html":  # which makes nothing of space
        assert seen.split() == text.split()
    else:
        assert seen == text


@pytest.mark.parametrize("platform", PLATFORMS)
@given(MARKDOWN)
@example(">" * 500 + "deep")
@example("- " * 30 + "deep")
@example("**" * 600 + "a" + "**" * 600)
@example("[" * 300)
@example("\ud83d\ude00 \ud800")
def test_every_text_can_be_rendered_and_something_of_it_is_seen(platform: str, markdown: str) -> None:
    seen = shown(platform, markdown)
    assert platform == "html" or bool(seen.strip()) == bool(markdown.strip())
    # What stands beside the beginning of a code block, nobody sees.
    assert "`" in markdown or "~" in markdown or seen.count("🫖") == markdown.count("🫖")


@given(MARKDOWN)
@example("# a `b` **c**")
@example("**a `b` _c `d`_**")
@example("[a `b`](https://x.y) 🫖 **🫖**")
@example("> a\n> > b\n> ```\n> c\n> ```")
def test_telegram_entities_lie_within_the_text_and_within_each_other(markdown: str) -> None:
    formatted = to_telegram(markdown)
    length = utf16_length(formatted.text)
    entities = [(e["offset"], e["offset"] + e["length"], e["type"]) for e in formatted.entities]
    assert entities == sorted(entities, key=lambda entity: (entity[0], -entity[1]))
    for number, (start, end, kind) in enumerate(entities):
        assert 0 <= start < end <= length
        for other_start, other_end, other in entities[number + 1 :]:
            assert other_start >= end or other_end <= end, "they overlap"
            inside = other_start < end
            assert not (inside and (kind in ("code", "pre") or (other == kind))), f"{other} in {kind}"
            assert not (
                inside and kind in ("bold", "italic", "strikethrough", "text_link") and other in ("code", "pre")
            )


@given(MARKDOWN)
def test_slack_can_be_made_to_do_nothing(markdown: str) -> None:
    for command in re.findall(r"<([^>]*)>?", to_mrkdwn(markdown)):
        assert re.match(r"(?:https?://|mailto:)[^|<>]*\|", command, re.IGNORECASE), command


@given(MARKDOWN)
@example('<script>alert(1)</script> <img src=x onerror=y> [a](javascript:x) [b](https://x.y/"onclick=z)')
@example('```"><script>\nx\n```')
@example("![a](https://x.y/p.png) ![](data:image/png;base64,x) [c](data:text/html,x) [d](vbscript:x) <javascript:x>")
def test_html_holds_nothing_but_our_own_tags(markdown: str) -> None:
    page = Page(to_html(markdown))
    ours = {"p", "br", "a", "em", "strong", "s", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "table", "thead"}
    assert page.tags <= ours | {"tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6"}
    assert page.attributes <= {"href", "rel", "class", "style", "start"}
    assert all(re.match("https?://|mailto:", link, re.IGNORECASE) for link in page.links)


STYLED = """# Title
**bold** and *it*, ~~gone~~, `x < 1`; [label](https://x.y/a?b=1&c=2)
- one
- two
1. eins
1. zwei
> said
![pic](https://x.y/p.png)
```py
a = "<b>"
```
| tea | cups |
|:----|-----:|
| 茶 | 2 |
"""


def entities(markdown: str) -> list[tuple[str, str, Any]]:
    formatted = to_telegram(markdown)
    units = formatted.text.encode("utf-16-le")
    return [
        (
            e["type"],
            units[2 * e["offset"] : 2 * (e["offset"] + e["length"])].decode("utf-16-le"),
            e.get("url") or e.get("language"),
        )
        for e in formatted.entities
    ]


def test_telegram() -> None:
    assert to_telegram(STYLED).text == (
        "Title\nbold and it, gone, x < 1; label\n• one\n• two\n1. eins\n2. zwei\nsaid\npic\n"
        'a = "<b>"\ntea | cups\n----+-----\n茶  |    2'
    )
    assert entities(STYLED) == [
        ("bold", "Title", None),
        ("bold", "bold", None),
        ("italic", "it", None),
        ("strikethrough", "gone", None),
        ("code", "x < 1", None),
        ("text_link", "label", "https://x.y/a?b=1&c=2"),
        ("blockquote", "said\npic", None),
        ("text_link", "pic", "https://x.y/p.png"),
        ("pre", 'a = "<b>"', "py"),
        ("pre", "tea | cups\n----+-----\n茶  |    2", None),
    ]


def test_slack() -> None:
    assert to_mrkdwn(STYLED) == (
        "*Title*\n*bold* and _it_, ~gone~, `x &lt; 1`; <https://x.y/a?b=1&amp;c=2|label>\n"
        "• one\n• two\n1. eins\n2. zwei\n> said\n> <https://x.y/p.png|pic>\n"
        '```\na = "&lt;b&gt;"\n```\n```\ntea | cups\n----+-----\n茶  |    2\n```'
    )


def test_discord() -> None:
    assert to_discord(STYLED) == (
        "# Title\n**bold** and *it*, ~~gone~~, `x < 1`; [label](https://x.y/a?b=1&c=2)\n"
        "- one\n- two\n1. eins\n2. zwei\n> said\n> [pic](https://x.y/p.png)\n"
        '```py\na = "<b>"\n```\n```\ntea | cups\n----+-----\n茶  |    2\n```'
    )


def test_plain() -> None:
    assert to_plain(STYLED) == (
        "Title\nbold and it, gone, x < 1; label (https://x.y/a?b=1&c=2)\n"
        "• one\n• two\n1. eins\n2. zwei\n> said\n> pic (https://x.y/p.png)\n"
        'a = "<b>"\ntea | cups\n----+-----\n茶  |    2'
    )


def test_html() -> None:
    html = to_html(STYLED)
    assert "<h1>Title</h1>" in html
    assert "<strong>bold</strong> and <em>it</em>, <s>gone</s>, <code>x &lt; 1</code>" in html
    assert '<a href="https://x.y/a?b=1&amp;c=2" rel="noopener noreferrer nofollow">label</a>' in html
    assert "<li>one</li>" in html
    assert '<pre><code class="language-py">a = &quot;&lt;b&gt;&quot;\n</code></pre>' in html
    assert ">茶</td>" in html
    assert "<img" not in html


@pytest.mark.parametrize(
    ("markdown", "slack", "discord"),
    [
        ("in**ter**nal", "in\u200b*ter*\u200bnal", "in**ter**nal"),
        ("**two\nlines**", "*two*\n*lines*", "**two**\n**lines**"),
        (r"\*not bold\*", "*\u200bnot bold*", r"\*not bold\*"),
        ("a || hidden || b", "a || hidden || b", r"a \|\| hidden \|\| b"),
        ("#### four", "*four*", "**four**"),
        ("`` a`b ``", "```a`b```", "``a`b``"),
        ("`` `a` ``", "```\u200b`a`\u200b```", "``\u200b`a`\u200b``"),
        (r"\\`c` \\**b**", r"\`c` \*b*", r"\\`c` \\**b**"),
        ("[**b** `c`](https://x.y)", "<https://x.y|b c>", "[**b** `c`](https://x.y)"),
        ("[https://a.b](https://x.y)", "<https://x.y|https://a.b>", "https://a.b (https://x.y)"),
        ("[a](https://x.y/(1|2))", "<https://x.y/(1%7C2)|a>", "[a](https://x.y/%281%7C2%29)"),
        ("see https://x.y/_a_/b.", "see https://x.y/_a_/b.", "see https://x.y/_a_/b."),
        ("(https://x.y/a_(b))", "(https://x.y/a_(b))", "(https://x.y/a_(b))"),
        ("<https://x.y>", "https://x.y", "https://x.y"),
        ("- a\n  - b\n\n    c\n- [ ] d", "• a\n  • b\n\n    c\n• [ ] d", "- a\n  - b\n\n    c\n- [ ] d"),
        ("3. a\n2. b\n2. c", "3. a\n2. b\n3. c", "3. a\n2. b\n3. c"),
        ("[a](file:///etc/passwd)", "[a](file:///etc/passwd)", "[a](file:///etc/passwd)"),
        ("```\n```", "`\u200b``\n`\u200b``", "\\`\\`\\`\n\\`\\`\\`"),
    ],
)
def test_signs_where_platforms_differ(markdown: str, slack: str, discord: str) -> None:
    assert (to_mrkdwn(markdown), to_discord(markdown)) == (slack, discord)


HOSTILE = st.lists(
    st.sampled_from(
        ("`", "``", "```", "`````", "a", " ", "\n", "<@1>", "<t:1>", "[x](https://x.y)", "**", "\u200b", "\\")
    ),
    max_size=30,
).map("".join)


@given(HOSTILE)
@example("`````` **Denied automatically.** [Open](https://x.y) <@1> ```` rm -rf /")
def test_a_code_block_cannot_be_left(payload: str) -> None:
    card = f"**May I?**\n{fenced_json({'command': payload})}\n\nDecide."
    for rendered, opening in ((to_mrkdwn(card), "```\n"), (to_discord(card), "```json\n")):
        before, block, after = rendered.split("```")
        assert (before.strip("*\n"), after) == ("May I?", "\n\nDecide.")
        assert f"```{block}".startswith(opening)
        assert unescaped_slack(block.replace("json\n", "", 1)).strip() == visible(
            json.dumps({"command": payload}, indent=2, ensure_ascii=False)
        ).replace("\u200b", "")


@given(HOSTILE)
@example("`` [Safe](https://x.y) <@123> <t:1>")
@example("a`b")
def test_code_in_a_line_cannot_be_left(words: str) -> None:
    for render in (to_mrkdwn, to_discord):
        rendered = render(f"said: {quoted(words)}, so")
        inside = rendered.removeprefix("said: ").removesuffix(", so")
        if not words.strip("` \n"):
            continue
        mark = max(re.findall("`+", inside), key=len)
        assert len(mark) <= 3
        assert inside.startswith(mark)
        assert inside.endswith(mark)
        assert mark not in inside[len(mark) : -len(mark)], "it ends where we end it"
        assert unescaped_slack(inside[len(mark) : -len(mark)]).strip() == visible(" ".join(words.split()))


def test_a_text_of_any_length_is_shown() -> None:
    assert to_plain("**a** " * MAX_CHARACTERS).startswith("**a** **a**")
    assert to_html("a\n<b>" * MAX_CHARACTERS).startswith("<p>a<br />\n&lt;b&gt;a")
