"""The published schema is the model's, and says of a message what the door says."""

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker  # type: ignore[import-untyped]

from workers.intake.contract import COMMAND, FILE, message_schema, written_schema
from workers.intake.incoming import parse_incoming
from workers.refusals import RefusedError

SCHEMA = Draft202012Validator(json.loads(FILE.read_text()), format_checker=FormatChecker())
TASK = {"kind": "task", "text": "look"}


def taken(message: dict[str, Any]) -> bool:
    try:
        parse_incoming(message)
    except RefusedError:
        return False
    return True


@pytest.mark.spec("G1")
def test_the_published_schema_is_up_to_date() -> None:
    assert FILE.read_text() == written_schema(), f"Incoming has changed. Write its schema anew: {COMMAND}"
    Draft202012Validator.check_schema(message_schema())


@pytest.mark.spec("G1")
def test_every_message_in_the_documentation_is_valid_by_the_schema() -> None:
    page = (FILE.parents[1] / "producers.md").read_text()
    messages = [json.loads(block) for block in re.findall(r"```json\n(\{.*?\})\n```", page, re.DOTALL)]
    assert len(messages) >= 3
    for message in messages:
        SCHEMA.validate(message)


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    "message",
    [
        {"text": "hello"},
        {"text": "hello", "content": None},
        {"text": None, "content": {"text": "hello"}},
        {"text": "hello", "content": {"text": "hello"}},
        {},
        {"text": " \n "},
        {"text": 5},
        {"text": "hello", "agent_group": ""},
        {"text": "hello", "agent_group": "x" * 256},
        {"text": "hello", "sender_name": "a\nb"},
        {"text": "hello", "txt": "x"},
        {"text": "hello", "kind": "system"},
        {"text": "hello", "kind": "webhook"},
        {"kind": "webhook", "content": {"source": "crm"}},
        {"content": {"attachments": "x"}},
        {"content": {"attachments": [{"name": "a"}]}},
        {"content": []},
        {"text": "hello", "recurrence": "@daily"},
        TASK | {"recurrence": "@daily"},
        {"text": "hello", "terms": {}},
        TASK | {"terms": {"jitter_seconds": 5}},
        TASK | {"terms": {"jitter_seconds": -1}},
        TASK | {"terms": {"script": "rm"}},
        TASK | {"follow_up": "never"},
        TASK | {"follow_up": None, "process_after": "2027-01-11T09:00:00+01:00"},
    ],
)
def test_the_schema_and_the_door_agree(message: dict[str, Any]) -> None:
    assert SCHEMA.is_valid(message) == taken(message)
