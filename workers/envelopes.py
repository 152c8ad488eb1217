"""What lies on a queue's list, as something Celery's transport can read.

Whoever has the broker's address can put anything there, and kombu ends the whole worker over an item it cannot take
apart, and loses it. So every item is looked at first: one that is no Celery message is wrapped into one that says so,
which the consumer refuses and keeps."""

import base64
import json
import uuid
from typing import Any, Final

from kombu.transport import redis
from kombu.utils.json import loads

UNREADABLE: Final = "longshore-unreadable"  # a header: what is wrong with the item in the body


def readable(queue: str, item: bytes) -> bytes:
    """The item itself, if kombu can read it, else one around it. Where it goes if it is given back is the queue that it
    came from, whatever it says: else it would end on a list nobody reads."""
    envelope: Any = None
    try:
        envelope = loads(item.decode())  # type: ignore[no-untyped-call]
        wrong = _wrong_with(envelope)
    except Exception:  # noqa: BLE001  its decoders are run on whatever somebody wrote
        wrong = "it is not JSON"
    if wrong is not None:
        return _wrapped(queue, item, f"{wrong}, and so no Celery message", _id_in(envelope))
    given = envelope["properties"].get("delivery_info")
    if isinstance(given, dict) and given.get("routing_key") == queue and given.get("exchange") in ("", queue):
        return item
    plain = json.loads(item)
    plain["properties"]["delivery_info"] = _from(queue)
    return json.dumps(plain).encode()


def _wrong_with(envelope: Any) -> str | None:
    if not isinstance(envelope, dict):
        return "it is no JSON object"
    properties = envelope.get("properties")
    tag = properties.get("delivery_tag") if isinstance(properties, dict) else None
    if not isinstance(tag, str) or not tag or not tag.isprintable():
        return "it has no properties with a delivery_tag"
    if not isinstance(envelope.get("headers") or {}, dict):
        return "its headers are no object"
    if not isinstance(body := envelope.get("body"), str):
        return "its body is no text"
    encoding = envelope["properties"].get("body_encoding")
    if encoding not in (None, "base64"):
        return "its body_encoding is not base64"
    if encoding is not None:
        try:
            base64.b64decode(body)
        except ValueError:
            return "its body is not base64"
    return None


def _id_in(envelope: Any) -> str | None:
    """What its sender would follow it by, if it has that much."""
    headers = envelope.get("headers") if isinstance(envelope, dict) else None
    given = headers.get("id") if isinstance(headers, dict) else None
    return given if isinstance(given, str) else None


def _wrapped(queue: str, item: bytes, wrong: str, task_id: str | None) -> bytes:
    properties = {
        "delivery_tag": str(uuid.uuid4()),
        "delivery_info": _from(queue),
        "body_encoding": "base64",
        "priority": 0,
    }
    wrapped = {
        "body": base64.b64encode(item).decode(),
        "content-type": "application/octet-stream",
        "content-encoding": "binary",
        "headers": {UNREADABLE: wrong, "id": task_id},
        "properties": properties,
    }
    return json.dumps(wrapped).encode()


def _from(queue: str) -> dict[str, str]:
    return {"exchange": "", "routing_key": queue}


class _Reading:
    """The answer to BRPOP, which is how a worker takes an item from its queues."""

    def __init__(self, separator: str) -> None:
        self._separator = separator.encode()

    def __call__(self, answer: Any, **_: Any) -> tuple[bytes, bytes] | None:
        if not answer:
            return None
        name, item = answer
        return name, readable(name.rsplit(self._separator, 1)[0].decode(errors="replace"), item)


_create_client = redis.Channel._create_client


def _reading_client(self: redis.Channel, asynchronous: bool = False) -> Any:
    client = _create_client(self, asynchronous)  # type: ignore[no-untyped-call]
    client.set_response_callback("BRPOP", _Reading(self.sep))
    return client


def read_anything() -> None:
    """Make the transport's channels look at what they take."""
    redis.Channel._create_client = _reading_client  # type: ignore[method-assign]
