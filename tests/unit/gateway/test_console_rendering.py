"""Whatever people, models and tools say, it stands on the page as text."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.console.chat.lines import Line
from gateway.console.rendering import diffs
from gateway.console.rendering.diffs import MAX_STEPS, difference, steps
from gateway.console.rendering.templates import environment
from gateway.console.rendering.texts import brief, marked, spoken
from gateway.console.timeline.entries import Asked, Attempt, Call, Entry, Note, Received, Said, Sent, Thought
from gateway.console.timeline.pen import Pen
from gateway.console.timeline.turn_view import TurnView
from gateway.console.visitors import Guest
from models.sign_ins import Visitor
from models.tokens import SCOPES
from workers.access import Reach

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg/onload=alert(1)>',
    "[click](javascript:alert(1))",
    "[click](JaVaScRiPt&colon;alert(1))",
    "[click](data:text/html;base64,PHNjcmlwdD4=)",
    "![x](http://evil.example/pixel.png)",
    "<javascript:alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "`</code><script>alert(1)</script>`",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    "| a |\n|---|\n| <script>alert(1)</script> |",
    "[x]: javascript:alert(1)\n\n[x]",
    "{{ 7 * 7 }} {% include '/etc/passwd' %}",
    "<style>body{display:none}</style><link rel=stylesheet href=//evil.example>",
    "<form action=//evil.example><input name=csrf></form>",
]
GUEST = Guest(Visitor("i", "web:ada", frozenset(SCOPES)), Reach(True), "c5rf", None, "/console/x")
SESSION: Any = SimpleNamespace(id="s1", folder="demo")
OURS = {
    *("li", "div", "p", "b", "span", "time", "a", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "hr"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary", "article", "header", "h3", "br"),
    *("form", "input", "button", "section", "h2"),
}
ADDRESSES = ("/console/", "#")


class Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def check(self) -> None:
        for tag, attributes in self.tags:
            assert tag in OURS, tag
            assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "srcdoc")]
            for name in ("href", "action"):
                address = attributes.get(name)
                good = address is None or address.startswith((*ADDRESSES, "http://", "https://", "mailto:"))
                assert good, address
            assert attributes.get("action") is None or str(attributes["action"]).startswith("/console/")
            assert tag != "input" or attributes.get("value") != "evil"


def received(text: str) -> Any:
    row = {"seq": 1, "session_id": "s1", "id": "m1", "kind": "chat", "status": "failed", "tries": 1}
    place = {"channel_type": "web", "platform_id": text[:20], "sender_id": text, "error_class": "auth", "turn_id": "t"}
    content = {"text": text, "sender": text, "attachments": [{"name": text}]}
    return SimpleNamespace(**row, **place, content=content, created_at=NOON)


def sent(text: str, turn_id: str | None = "t") -> Any:
    row = {"seq": 2, "channel_type": "web", "platform_id": text[:20], "status": "failed", "attempts": 2}
    content = {"text": text, "files": [text]}
    return SimpleNamespace(**row, turn_id=turn_id, content=content, created_at=NOON, error=text)


def approval(text: str, status: str = "pending") -> Any:
    row = {"id": "a1", "category": text[:50], "summary": text, "risk": "high", "payload": {text: [text]}}
    moments = {"expires_at": NOON, "decided_at": NOON}
    return SimpleNamespace(**row, **moments, payload_hash="h", status=status, decided_by=text)


def question(text: str, status: str = "pending") -> Any:
    asked = {"title": text, "text": text, "options": [text, 7]}
    return SimpleNamespace(id="q1", question=asked, status=status, expires_at=NOON, answer=text, answered_by=text)


def entries(text: str) -> list[Entry]:
    step: Any = SimpleNamespace(id="x", said=text, started_at=NOON, ended_at=NOON + timedelta(seconds=2))
    return [
        Received("in1", NOON, 1, row=received(text)),
        Sent("out2", NOON, row=sent(text)),
        Sent("out3", NOON, row=sent(text, None)),
        Sent("e9", NOON, text=text),
        Said("e1", NOON, text, void=True),
        Thought("e2", NOON, text),
        Call("e3", NOON, text, text, text, "failed", NOON, step),
        Call("e4", NOON, text, text, text),
        Asked("aska1", NOON, "approval", "a1", text, row=approval(text)),
        Asked("aska2", NOON, "approval", "a1", text, row=approval(text, "denied")),
        Asked("askq1", NOON, "question", "q1", text, text, question(text)),
        Asked("askq2", NOON, "question", "q1", text, text, question(text, "answered")),
        Asked("askq3", NOON, "question", "q1", text, text),
        Attempt("e5", NOON, 2, text, text, text, lost=True),
        Note("e6", NOON, "·", text, "bad", NOON),
    ]


@pytest.mark.spec("G3")
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_text_in_a_timeline(text: str) -> None:
    turn = TurnView("t", 1, provider=text, model=text, entries=entries(text), began=NOON, ended=NOON)
    html = Pen(GUEST, SESSION).turn(turn)
    page = Page(html)
    page.check()
    assert "49" not in page.text
    assert "<script" not in html


@pytest.mark.spec("G3", "C2")
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_text_in_a_chat(text: str) -> None:
    macros: Any = environment().get_template("chat_lines.html").make_module({"guest": GUEST})
    button = {"label": text, "token": text, "style": text, "url": None}
    mine = Line("in1", NOON, text, mine=True, status="failed")
    theirs = Line("out1", NOON, text, agent=text, buttons=[button], files=[{"name": text, "number": 0}])
    theirs.reactions.append(text)
    for line in (mine, theirs):
        Page(str(macros.line(line))).check()
    Page(str(macros.working([SimpleNamespace(folder=text, activity=text, at=NOON, lease_expires_at=NOON)]))).check()


def test_a_text_cannot_turn_the_page_around_or_hide() -> None:
    assert marked("a\u202eb\u2066c\x1b[31m\x00") == "a⟨U+202E⟩b⟨U+2066⟩c⟨U+001B⟩[31m⟨U+0000⟩"
    assert marked("line\n\ttab 👩\u200d💻") == "line\n\ttab 👩\u200d💻"
    assert marked("zero\u200bwidth") == "zero⟨U+200B⟩width"
    assert spoken("می\u200cخواهم\u200f") == "می\u200cخواهم\u200f"
    assert spoken("\u202egnirts") == "⟨U+202E⟩gnirts"
    html = Pen(GUEST, SESSION).entry(Asked("a", NOON, "approval", "a1", row=approval("rm \u202e/ fr-")), TurnView("t"))
    assert "\u202e" not in html
    assert "rm ⟨U+202E⟩/ fr-" in html


def test_the_beginning_of_a_text_is_one_line_without_signs() -> None:
    assert brief("**demo** wants `x`\n\n- a <b>") == "demo wants x • a <b>"
    assert brief("word " * 100, 12) == "word word w…"


@pytest.mark.parametrize("text", ["x" * 3_000_000, "[" * 300_000, "> " * 100_000, "**a" * 200_000, "\n" * 500_000])
def test_a_huge_text_is_shown_in_part(text: str) -> None:
    html = Pen(GUEST, SESSION).entry(Sent("e1", NOON, text=text), TurnView("t"))
    assert "more characters" in html
    assert len(html) < 500_000


def test_the_form_of_an_approval_carries_what_was_shown() -> None:
    html = Pen(GUEST, SESSION).entry(Asked("a", NOON, "approval", "a1", row=approval("x")), TurnView("t"))
    inputs = {tag["name"]: tag["value"] for name, tag in Page(html).tags if name == "input"}
    assert inputs == {"csrf": "c5rf", "shown": "h", "back": "/console/x"}


def test_who_may_not_decide_sees_no_buttons() -> None:
    reader = Guest(Visitor("i", "web:bo", frozenset({"read"})), Reach(True), "c", None, "/console/x")
    for entry in entries("x"):
        assert "<button" not in Pen(reader, SESSION).entry(entry, TurnView("t"))


def test_two_texts_are_compared_by_words_and_long_ones_by_lines() -> None:
    pieces = difference("the tide comes in", "the tide goes in") or []
    assert pieces == [("same", "the tide "), ("gone", "comes"), ("new", "goes"), ("same", " in")]
    lines = "word " * 2000 + "\n"
    assert difference(lines + "a\n", lines + "b\n") == [("same", lines), ("gone", "a\n"), ("new", "b\n")]
    assert difference("a\n" * 4000, "") is None
    assert difference("same", "same") == [("same", "same")]


@pytest.mark.parametrize("kinds", [1, 2, 5, 50])
def test_texts_that_repeat_themselves_are_not_compared_word_by_word(
    kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []

    def note(before: list[str], after: list[str]) -> list[Any]:
        compared.append(steps(before, after))
        return []

    monkeypatch.setattr(diffs, "_pieces", note)
    some, others = ("".join(f"{number % kinds}{sign}" for number in range(900)) for sign in ("!", "?!"))
    assert difference(some, others) == []
    assert difference(some.replace("!", "!\n"), others.replace("!", "!\n") + "x") in ([], None)
    assert max(compared) <= MAX_STEPS
    assert steps(["!"] * 900, ["!"] * 450) > MAX_STEPS


def test_spaces_are_nothing_to_compare() -> None:
    old, new = ("".join(f"{word}{n} " for n in range(900)) for word in ("a", "b"))
    assert steps(re.findall(r"\s+|\w+", old), re.findall(r"\s+|\w+", new)) == 0
    assert difference(old, new) is not None
