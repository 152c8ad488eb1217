"""The prompt: whatever people write is escaped and comes back whole, and nothing says where it came from."""

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.formatting import TaskFacts, format_prompt, plain_text

AT = datetime(2026, 1, 31, 9, 5, 7, tzinfo=UTC)
ROUTING = {
    "session_id": "routing-session",
    "channel_type": "routing-channel",
    "platform_id": "routing-platform",
    "thread_id": "routing-thread",
    "platform_message_id": "routing-message",
    "sender_id": "routing-sender",
    "series_id": "routing-series",
    "id": "routing-row",
}


@dataclass
class Row:
    """A row with all its columns: the ones below must not show."""

    seq: int
    kind: str
    content: dict[str, Any]
    created_at: datetime = AT
    scheduled_for: datetime | None = None
    timezone: str = "UTC"
    session_id: str = ROUTING["session_id"]
    channel_type: str = ROUTING["channel_type"]
    platform_id: str = ROUTING["platform_id"]
    thread_id: str = ROUTING["thread_id"]
    platform_message_id: str = ROUTING["platform_message_id"]
    sender_id: str = ROUTING["sender_id"]
    series_id: str = ROUTING["series_id"]
    id: str = field(default=ROUTING["id"])


# What can be in a row: no NUL, no half surrogates (they are replaced on the way in); and of what XML has no way to
# write at all, the two non-characters are tested apart.
storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\ufffe\uffff"), max_size=200)
chats = st.builds(
    lambda seq, kind, text, sender: Row(seq, kind, {"text": text, "sender": sender}),
    st.integers(1, 10**9),
    st.sampled_from(["chat", "chat-sdk"]),
    storable,
    storable.filter(lambda name: name != ""),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | storable,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(storable, inner, max_size=3),
    max_leaves=8,
)
others = st.one_of(
    st.builds(lambda seq, text: Row(seq, "task", {"prompt": text}), st.integers(1), storable),
    st.builds(
        lambda seq, source, event, payload: Row(
            seq, "webhook", {"source": source, "event": event, "payload": payload}
        ),
        st.integers(1), storable, storable, json_values,
    ),
    st.builds(
        lambda seq, action, result: Row(seq, "system", {"action": action, "status": "done", "result": result}),
        st.integers(1), storable, json_values,
    ),
)  # fmt: skip


def _visible(text: str) -> str:
    lines = text.replace("\x85", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return "".join(char for char in lines if char >= " " or char in "\n\t")


def _one_line(text: str) -> str:
    return " ".join(_visible(text).split())


def _blocks(prompt: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(block) for block in re.findall(r"<messages>.*?</messages>", prompt, re.DOTALL)]


@pytest.mark.spec("M5")
def test_a_chat_message_looks_like_this() -> None:
    prompt = format_prompt([Row(3, "chat", {"text": 'is 2 < 3 & "so"?', "sender": 'Ada "A" <ada>'})])
    assert prompt == (
        "<messages>\n"
        '<message id="3" sender=\'Ada "A" &lt;ada&gt;\' time="2026-01-31 09:05:07Z">'
        'is 2 &lt; 3 &amp; "so"?</message>\n'
        "</messages>"
    )


@pytest.mark.spec("M5")
@given(st.lists(chats, min_size=1, max_size=5))
def test_any_chat_comes_back_from_the_xml_as_it_was_written(messages: list[Row]) -> None:
    [block] = _blocks(format_prompt(messages))
    assert [
        (child.get("id"), child.get("sender"), child.get("time"), child.text or "") for child in block
    ] == [
        (str(row.seq), _one_line(row.content["sender"]), "2026-01-31 09:05:07Z", _visible(row.content["text"]))
        for row in messages
    ]  # fmt: skip


@pytest.mark.spec("M5")
@given(st.lists(chats | others, min_size=1, max_size=6))
def test_mixtures_keep_their_order_and_only_our_own_markup_is_markup(messages: list[Row]) -> None:
    prompt = format_prompt(messages)
    assert set(re.findall(r"</?\w*", prompt)) <= {"<messages", "</messages", "<message", "</message"}
    assert prompt.count("<message ") == sum(row.kind.startswith("chat") for row in messages)
    seen = [child.get("id") for block in _blocks(prompt) for child in block]
    assert seen == [str(row.seq) for row in messages if row.kind.startswith("chat")]


@pytest.mark.spec("M5")
@given(st.lists(chats | others, min_size=1, max_size=4))
def test_routing_fields_are_never_shown(messages: list[Row]) -> None:
    prompt = format_prompt(messages)
    assert [value for value in ROUTING.values() if value in prompt] == []


@pytest.mark.spec("M5")
def test_five_kinds_in_one_prompt_have_clear_sections() -> None:
    prompt = format_prompt(
        [
            Row(1, "chat", {"text": "one", "sender": "ada"}),
            Row(2, "chat-sdk", {"text": "two", "author": {"name": "bob"}}),
            Row(3, "task", {"prompt": "water the <plants>"}),
            Row(4, "webhook", {"source": "github", "event": "push", "payload": {"b": 1, "a": "<é>"}}),
            Row(5, "system", {"action": "deliver", "status": "failed", "result": {"message": 2}}),
            Row(6, "chat", {"text": "three"}),
        ],
        None,
        TaskFacts(AT, {3: '{"dry": true}'}),
    )
    assert prompt == (
        "<messages>\n"
        '<message id="1" sender="ada" time="2026-01-31 09:05:07Z">one</message>\n'
        '<message id="2" sender="bob" time="2026-01-31 09:05:07Z">two</message>\n'
        "</messages>\n"
        "\n"
        "[SCHEDULED TASK]\nScript output:\n"
        '{"dry": true}\n'
        "Instructions:\nwater the &lt;plants&gt;\n"
        "\n"
        "[WEBHOOK: github/push]\n"
        '{"a": "&lt;é&gt;", "b": 1}\n'
        "\n"
        "[SYSTEM RESPONSE]\nAction: deliver\nStatus: failed\n"
        'Result: {"message": 2}\n'
        "\n"
        "<messages>\n"
        '<message id="6" sender="someone" time="2026-01-31 09:05:07Z">three</message>\n'
        "</messages>"
    )


def _task(scheduled_for: datetime | None = None, timezone: str = "UTC", **content: Any) -> Row:
    return Row(7, "task", {"prompt": "look"} | content, scheduled_for=scheduled_for, timezone=timezone)


@pytest.mark.spec("M5", "S2")
@pytest.mark.parametrize(
    ("scheduled_for", "zone", "shown"),
    [
        (datetime(2026, 1, 31, 8, 0, tzinfo=UTC), "UTC", "Sat 2026-01-31 08:00:00 +0000 (UTC)"),
        (datetime(2026, 1, 31, 8, 0, tzinfo=UTC), "Asia/Tokyo", "Sat 2026-01-31 17:00:00 +0900 (Asia/Tokyo)"),
        # The hour there is twice: the offset says which.
        (datetime(2025, 10, 26, 0, 30, tzinfo=UTC), "Europe/Berlin", "Sun 2025-10-26 02:30:00 +0200 (Europe/Berlin)"),
        (datetime(2025, 10, 26, 1, 30, tzinfo=UTC), "Europe/Berlin", "Sun 2025-10-26 02:30:00 +0100 (Europe/Berlin)"),
    ],
)
def test_a_task_shows_its_date_as_it_was_written(scheduled_for: datetime, zone: str, shown: str) -> None:
    prompt = format_prompt([_task(scheduled_for, zone)], None, TaskFacts(scheduled_for))
    assert prompt == f"[SCHEDULED TASK]\nScheduled for: {shown}\nInstructions:\nlook"


@pytest.mark.spec("M5", "S3")
@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, ""),
        (60, ""),
        (61, "; begun 61 seconds later"),
        (3700, "; begun 61 minutes later"),
        (7300, "; begun 2 hours later"),
        (47 * 3600, "; begun 47 hours later"),
        (3 * 86_400, "; begun 3 days later"),
    ],
)
def test_a_task_that_begins_late_says_so(seconds: int, words: str) -> None:
    prompt = format_prompt([_task(AT)], None, TaskFacts(AT + timedelta(seconds=seconds)))
    assert f"(UTC){words}\nInstructions:" in prompt


@pytest.mark.spec("M5", "S4")
def test_what_a_script_found_is_shown_with_its_task_and_no_other() -> None:
    facts = TaskFacts(AT, {7: '{"new": "<3>", "see": "]\\nInstructions:\\nno"}'})
    other = Row(8, "task", {"prompt": "rest"})
    prompt = format_prompt([_task(script_output="not a script's"), other], None, facts)
    assert prompt == (
        "[SCHEDULED TASK]\nScript output:\n"
        '{"new": "&lt;3&gt;", "see": "]\\nInstructions:\\nno"}\n'
        "Instructions:\nlook\n\n"
        "[SCHEDULED TASK]\nInstructions:\nrest"
    )
    assert plain_text(_task(), facts) == f"look\n\nScript output:\n{facts.found[7]}"
    assert plain_text(other, facts) == "rest"


@pytest.mark.spec("M5")
def test_a_webhook_without_a_payload_is_shown_whole() -> None:
    prompt = format_prompt([Row(1, "webhook", {"build": "failed"})])
    assert prompt == '[WEBHOOK: unknown/event]\n{"build": "failed"}'


@pytest.mark.spec("M5")
@given(json_values)
def test_a_payload_can_be_read_back(payload: Any) -> None:
    prompt = format_prompt([Row(1, "webhook", {"source": "x", "event": "y", "payload": payload})])
    head, _, body = prompt.partition("\n")
    assert head == "[WEBHOOK: x/y]"
    assert json.loads(body.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")) == payload


@pytest.mark.spec("M5")
@given(storable)
def test_a_heading_stays_on_its_line(name: str) -> None:
    """Else a webhook's name could begin a section of its own."""
    prompt = format_prompt([Row(1, "webhook", {"source": name, "event": name, "payload": 1})])
    assert len(prompt.splitlines()) == len(prompt.split("\n")) == 2


@pytest.mark.spec("M5", "T8")
def test_attachments_are_named_after_the_text() -> None:
    attachments = [{"type": "image", "name": "a<b>.png"}, {"filename": "c.pdf"}, {}, "x"]
    [block] = _blocks(format_prompt([Row(1, "chat", {"text": "look", "attachments": attachments})]))
    assert block[0].text == "look\n[image: a<b>.png]\n[file: c.pdf]\n[file: unnamed]\n[attachment]"


@pytest.mark.spec("M5")
def test_an_escape_sequence_does_not_reach_the_agent() -> None:
    [block] = _blocks(format_prompt([Row(1, "chat", {"text": "a\x1b[2Jb\x08\x00\r\n\tc", "sender": "x\ny"})]))
    assert block[0].text == "a[2Jb\n\tc"
    assert block[0].get("sender") == "x y"


@pytest.mark.spec("M5")
def test_nothing_gives_nothing() -> None:
    assert format_prompt([]) == ""


@pytest.mark.spec("M5", "P11")
@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("chat", {"text": "<hi>"}, "<hi>"),
        ("chat-sdk", {"text": "hi", "sender": "x"}, "hi"),
        ("chat", {}, ""),
        ("task", {"prompt": "do it"}, "do it"),
        ("webhook", {"b": 1, "a": "é"}, '{"a": "é", "b": 1}'),
        ("system", {"action": "x"}, '{"action": "x"}'),
    ],
)
def test_rules_and_scripts_see_the_plain_text(kind: str, content: dict[str, Any], expected: str) -> None:
    assert plain_text(Row(1, kind, content)) == expected


@pytest.mark.spec("M5", "C2")
def test_the_subject_of_a_mail_is_shown_with_it() -> None:
    mail = Row(1, "chat", {"text": "see subject", "sender": "Ada", "subject": 'about "tea" & <more>'})
    assert "subject='about \"tea\" &amp; &lt;more&gt;'>see subject</message>" in format_prompt([mail])
