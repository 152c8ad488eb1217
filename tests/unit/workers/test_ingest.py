"""What a producer may send, and what it is told when it sends something else."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest

from models.series import DEFAULT_TERMS
from scheduler.recurrence import EXAMPLES
from workers.intake.incoming import _NO_SCRIPT, MAX_CONTENT_BYTES, Incoming, parse_incoming
from workers.refusals import RefusedError

TASK = {"kind": "task", "text": "water the plants", "process_after": "2026-01-31T09:00:00+01:00"}

REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "message: give either text or content"),
    "text and content": ({"text": "x", "content": {}}, "message: give either text or content"),
    "an empty text": ({"text": ""}, "message: text is empty"),
    "a blank text": ({"text": " \n\t"}, "message: text is empty"),
    "a text that is a number": ({"text": 5}, "text: Input should be a valid string"),
    "a content that is a list": ({"content": [1]}, "content: Input should be a valid dictionary"),
    "a field that does not exist": ({"text": "x", "txet": "y"}, "txet: Extra inputs are not permitted"),
    "an unknown kind": (
        {"text": "x", "kind": "poem"},
        "kind: Input should be 'chat', 'chat-sdk', 'task' or 'webhook'",
    ),
    "a system message": (
        {"text": "x", "kind": "system"},
        "kind: Input should be 'chat', 'chat-sdk', 'task' or 'webhook'",
    ),
    "a webhook with text": (
        {"text": "x", "kind": "webhook"},
        "message: a webhook message has content (source, event, payload), not text",
    ),
    "an empty agent group": ({"text": "x", "agent_group": ""}, "agent_group: String should have at least 1 character"),
    "a long message id": (
        {"text": "x", "message_id": "m" * 256},
        "message_id: String should have at most 255 characters",
    ),
    "a time without an offset": (
        {"text": "x", "process_after": "2026-01-31T09:00:00"},
        "message: process_after needs a UTC offset, for example 2026-01-31T09:00:00+01:00",
    ),
    "a time that is none": (
        {"text": "x", "process_after": "tomorrow"},
        "process_after: Input should be a valid datetime or date, input is too short",
    ),
    "a recurring chat": (
        {"text": "x", "recurrence": "@daily", "process_after": "2026-01-31T09:00:00Z"},
        "message: recurrence needs kind task",
    ),
    "terms of a chat": (
        {"text": "x", "terms": {"overlap": "queue"}},
        "message: terms need kind task",
    ),
    "a script among the terms": (TASK | {"terms": {"script": "true"}}, f"terms: {_NO_SCRIPT}"),
    "a script in the content": (
        {"kind": "task", "content": {"prompt": "x", "script": "true"}},
        f"message: content: {_NO_SCRIPT}",
    ),
    "what a script would have said": (
        {"kind": "task", "content": {"prompt": "x", "script_output": {"all": "well"}}},
        f"message: content: {_NO_SCRIPT}",
    ),
    "terms nobody knows": (TASK | {"terms": {"retries": 3}}, "terms.retries: Extra inputs are not permitted"),
    "a policy nobody knows": (
        TASK | {"terms": {"catch_up": "some"}},
        "terms.catch_up: Input should be 'skip', 'one' or 'all'",
    ),
    "a jitter of more than a day": (
        TASK | {"terms": {"jitter_seconds": 86_401}},
        "terms.jitter_seconds: Input should be less than or equal to 86400",
    ),
    "a cap of nothing": (
        TASK | {"terms": {"daily_usd": 0.009}},
        "terms.daily_usd: Input should be greater than or equal to 0.01",
    ),
    "a bad cron expression": (
        TASK | {"recurrence": "every day"},
        f"message: 'every day' is not a cron expression that ever comes due (Wrong number of fields); {EXAMPLES}",
    ),
    "a cron with seconds": (
        TASK | {"recurrence": "*/5 * * * * *"},
        f"message: '*/5 * * * * *' has 6 fields, and a task runs at most once a minute; {EXAMPLES}",
    ),
    "a date that never comes": (
        TASK | {"recurrence": "0 0 30 2 *"},
        f"message: '0 0 30 2 *' is not a cron expression that ever comes due (Bad day-of-month); {EXAMPLES}",
    ),
    "a bad time zone": (
        TASK | {"recurrence": "@daily", "timezone": "Mars/Phobos"},
        "message: 'Mars/Phobos' is not a time zone; give an IANA name like Europe/Vienna",
    ),
    "a mention that is a word": (
        {"text": "x", "is_mention": "perhaps"},
        "is_mention: Input should be a valid boolean, unable to interpret input",
    ),
    "several mistakes": (
        {"text": 5, "kind": "poem", "sender_id": 7},
        "kind: Input should be 'chat', 'chat-sdk', 'task' or 'webhook'; text: Input should be a valid string; "
        "sender_id: Input should be a valid string",
    ),
}


@pytest.mark.spec("M1", "G1")
@pytest.mark.parametrize("what", REFUSALS)
def test_a_malformed_message_is_refused_with_a_reason(what: str) -> None:
    payload, reason = REFUSALS[what]
    with pytest.raises(RefusedError) as caught:
        parse_incoming(payload)
    assert str(caught.value) == reason


@pytest.mark.spec("M1", "G1")
@pytest.mark.parametrize(
    "field", ["agent_group", "channel_type", "platform_id", "thread_id", "message_id", "sender_id"]
)
@pytest.mark.parametrize("value", ["", "a\x00b", "a\nb", "\x1b[2J", "x" * 256, 5, ["x"], "half \ud800"])
def test_a_name_that_cannot_be_stored_is_refused_by_its_field(field: str, value: Any) -> None:
    with pytest.raises(RefusedError, match=f"^{field}: "):
        parse_incoming({"text": "x", field: value})


@pytest.mark.spec("M1", "G1")
def test_a_hundred_mistakes_are_not_all_repeated() -> None:
    with pytest.raises(RefusedError) as caught:
        parse_incoming({"text": "x"} | {f"field{n}": "y" * 1000 for n in range(100)})
    assert str(caught.value).count(";") == 4
    assert len(str(caught.value)) < 1000


@pytest.mark.spec("M1", "F9")
def test_a_refusal_does_not_repeat_the_content() -> None:
    with pytest.raises(RefusedError) as caught:
        parse_incoming({"text": "x", "kind": "hunter2", "content": ["hunter2"]})
    assert "hunter2" not in str(caught.value)


@pytest.mark.spec("M1", "G1")
@pytest.mark.parametrize(
    ("payload", "content"),
    [
        ({"text": "hi"}, {"text": "hi", "sender": "someone"}),
        ({"text": "hi", "sender_id": "u1"}, {"text": "hi", "sender": "u1"}),
        ({"text": "hi", "sender_id": "u1", "sender_name": "Ada"}, {"text": "hi", "sender": "Ada"}),
        ({"content": {"text": "hi", "sender": "Bob"}, "sender_name": "Ada"}, {"text": "hi", "sender": "Bob"}),
        ({"text": "hi", "kind": "chat-sdk"}, {"text": "hi", "sender": "someone"}),
        ({"text": "do it", "kind": "task"}, {"prompt": "do it"}),
        ({"kind": "webhook", "content": {"source": "x"}}, {"source": "x"}),
        ({"kind": "task", "content": {"prompt": "x", "n": 1}}, {"prompt": "x", "n": 1}),
    ],
)
def test_what_is_stored(payload: dict[str, Any], content: dict[str, Any]) -> None:
    assert parse_incoming(payload).stored_content() == content


@pytest.mark.spec("M1")
def test_the_defaults_are_those_of_a_person_at_the_terminal() -> None:
    incoming = parse_incoming({"text": "hi"})
    assert (incoming.channel_type, incoming.platform_id, incoming.kind) == ("local", "inbox", "chat")
    assert (incoming.agent_group, incoming.thread_id, incoming.message_id) == (None, None, None)


@pytest.mark.spec("S1", "S2")
def test_a_recurring_task_is_taken() -> None:
    incoming = parse_incoming(TASK | {"recurrence": "0 9 * * *", "timezone": "Europe/Vienna"})
    assert incoming.process_after == datetime(2026, 1, 31, 8, tzinfo=UTC)


@pytest.mark.spec("S1", "S3")
def test_a_recurring_task_needs_no_date_and_may_say_how_it_is_run() -> None:
    """Its first date is found when it is stored, by the database's clock: what is checked here needs none."""
    asked = {"catch_up": "all", "jitter_seconds": 60, "daily_usd": 0.5, "provider": "echo", "model": "large"}
    incoming = parse_incoming({"text": "x", "kind": "task", "recurrence": "@daily", "terms": asked})
    assert incoming.process_after is None
    assert asdict(incoming.run_on()) == asdict(DEFAULT_TERMS) | asked
    assert parse_incoming(TASK).run_on() == DEFAULT_TERMS


@pytest.mark.spec("M1")
def test_the_content_has_a_size_limit() -> None:
    room = MAX_CONTENT_BYTES - len(json.dumps({"text": "", "sender": "someone"}))
    assert parse_incoming({"text": "x" * room}).text == "x" * room
    with pytest.raises(RefusedError) as caught:
        parse_incoming({"text": "x" * (room + 1)})
    limit = MAX_CONTENT_BYTES
    assert str(caught.value) == (
        f"the content has {limit + 1} bytes; at most {limit} are taken: send a reference instead"
    )


@pytest.mark.spec("G1")
def test_the_published_schema_explains_the_fields() -> None:
    schema = Incoming.model_json_schema()
    assert schema["additionalProperties"] is False
    for name in ("agent_group", "platform_id", "message_id", "text", "content", "process_after", "recurrence", "terms"):
        assert schema["properties"][name]["description"]
