"""Whatever lies on a queue's list, kombu can take it apart afterwards."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.transport.virtual import Channel, Message
from kombu.utils.json import loads

from workers.envelopes import UNREADABLE, readable

ENVELOPE: dict[str, Any] = {
    "body": base64.b64encode(b'[[], {"text": "hello"}, {}]').decode(),
    "content-type": "application/json",
    "content-encoding": "utf-8",
    "headers": {"task": "messages.ingest", "id": "one"},
    "properties": {
        "delivery_tag": "tag",
        "delivery_info": {"exchange": "", "routing_key": "messages"},
        "body_encoding": "base64",
    },
}
make_message: Any = Message  # kombu has no types
loads_json: Any = loads
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)


class Reader:
    """As much of a channel as a message needs to be taken apart."""

    codecs = Channel.codecs
    decode_body = Channel.decode_body


def taken(item: bytes) -> Message:
    """As kombu does it; the queue it goes back to is the one it came from."""
    message: Message = make_message(loads_json(readable("messages", item).decode()), channel=Reader())
    assert isinstance(message.headers, dict)
    assert message.delivery_info["routing_key"] == "messages"
    assert message.delivery_tag
    return message


@pytest.mark.spec("G1")
def test_a_celery_message_is_left_as_it_is() -> None:
    item = json.dumps(ENVELOPE).encode()
    assert readable("messages", item) is item


@pytest.mark.spec("G1")
@pytest.mark.parametrize("given_info", [None, {}, "x", {"exchange": "celery", "routing_key": "messagez"}])
def test_where_it_goes_back_to_is_where_it_came_from(given_info: Any) -> None:
    properties = ENVELOPE["properties"] | {"delivery_info": given_info}
    message = taken(json.dumps(ENVELOPE | {"properties": properties}).encode())
    assert message.headers == ENVELOPE["headers"]
    assert message.body == b'[[], {"text": "hello"}, {}]'


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    ("item", "why"),
    [
        (b"hello", "it is not JSON"),
        (b"\xff\xfe\x00", "it is not JSON"),
        (b'{"__type__": "uuid", "__value__": {"hex": 5}}', "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"5", "it is no JSON object"),
        (b"{}", "it has no properties"),
        (json.dumps(ENVELOPE | {"headers": [1]}).encode(), "its headers are no object"),
        (json.dumps(ENVELOPE | {"body": 5}).encode(), "its body is no text"),
        (json.dumps(ENVELOPE | {"body": "x"}).encode(), "its body is not base64"),
    ],
)
def test_what_is_no_celery_message_is_wrapped_into_one_that_says_so(item: bytes, why: str) -> None:
    message = taken(item)
    assert message.headers[UNREADABLE].startswith(why)
    assert message.body == item
    assert message.headers["id"] == ("one" if b'"one"' in item and b'"headers": [' not in item else None)


@given(st.one_of(st.binary(), JSON.map(lambda value: json.dumps(value).encode())))
def test_anything_at_all_can_be_taken_apart(item: bytes) -> None:
    assert UNREADABLE in taken(item).headers


@given(st.sampled_from(sorted(ENVELOPE)), JSON)
def test_so_can_a_message_with_anything_in_one_of_its_parts(part: str, value: Any) -> None:
    taken(json.dumps(ENVELOPE | {part: value}).encode())


@given(st.sampled_from(sorted(ENVELOPE["properties"])), JSON)
def test_and_with_anything_in_one_of_its_properties(part: str, value: Any) -> None:
    taken(json.dumps(ENVELOPE | {"properties": ENVELOPE["properties"] | {part: value}}).encode())
