"""The lists in the broker: our queues with what waits in them, and lists with messages for us that nobody reads.

A producer that names a wrong queue, or none, makes such a list, and Celery tells nobody. Only what is a Celery message
for one of our tasks is called ours: other applications may keep their data, and their own queues, in the same Redis."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio import Redis

from adapters.registry import Registry
from workers.bells import agent_queue
from workers.refusals import RefusedError

MESSAGES: Final = "messages"
INGEST: Final = "messages.ingest"
TASKS: Final = frozenset(
    {INGEST, "agent.wake", "delivery.send", "delivery.settle", "upkeep.sweep", "upkeep.prune", "workflow.advance"}
)  # a test compares them with the app's
# kombu keeps messages of a priority in lists of their own, of which workers read those of these steps.
SEPARATOR: Final = "\x06\x16"
STEPS: Final = (0, 3, 6, 9)
_KEYS_AT_ONCE: Final = 1000
_ITEMS_AT_ONCE: Final = 100
# One message from one list to another, if it is still there: killed in between, it is in exactly one of them.
_MOVE: Final = """
if redis.call('LREM', KEYS[1], -1, ARGV[1]) == 0 then return 0 end
redis.call('LPUSH', KEYS[2], ARGV[1])
return 1
"""


@dataclass(frozen=True)
class Look:
    """A list in the broker. `waiting`: messages in it; those that run are in no list. Of one that `is_ours` workers are
    to read, else nobody is."""

    name: str
    waiting: int
    is_ours: bool


@dataclass(frozen=True)
class Rescued:
    """`moved`: messages now on our queue. `left`: what is none, and stays where it was."""

    moved: int
    left: int


def queue_names(registry: Registry) -> list[str]:
    return [MESSAGES, "delivery", "upkeep", *(agent_queue(name) for name in registry.providers.names)]


async def waiting(client: Redis, queues: Sequence[str]) -> list[Look]:
    """Our queues, of all priorities. One round trip."""
    pipe = client.pipeline(transaction=False)
    for queue in queues:
        for key in _lists_of(queue):
            pipe.llen(key)
    lengths = await pipe.execute()
    size = len(STEPS)
    return [Look(queue, sum(lengths[at * size : (at + 1) * size]), True) for at, queue in enumerate(queues)]


async def look(client: Redis, queues: Sequence[str]) -> list[Look]:
    """Our queues, then the stray lists by name. Walks over all keys of the database, a thousand at a time, without
    holding up the server: for people who look, not for every second."""
    found = []
    for key in await _other_lists(client, queues):
        if await _is_for_us(client, key):
            found.append(Look(_printable(key), await client.llen(key), False))
    return [*await waiting(client, queues), *found]


async def rescue(client: Redis, name: str, queues: Sequence[str]) -> Rescued:
    """Move the messages for `messages.ingest` from a stray list to our queue, the oldest first; all else stays. May be
    stopped and begun again at any time. `name`: as `look` tells it."""
    if name in queues:
        raise RefusedError(f"{name} is no stray list but a queue of ours: workers read it")
    key = next((key for key in await _other_lists(client, queues) if _printable(key) == name), None)
    if key is None:
        raise RefusedError(f"there is no list {name!r} in the broker (any more); see: longshore queues")
    move = client.register_script(_MOVE)
    moved = left = 0
    while items := await client.lrange(key, -left - _ITEMS_AT_ONCE, -left - 1):
        for item in reversed(items):
            if task_of(item) == INGEST and await move(keys=[key, MESSAGES], args=[item]):
                moved += 1
            else:
                left += 1
    return Rescued(moved, left)


async def _other_lists(client: Redis, queues: Sequence[str]) -> list[bytes]:
    ours = {key for queue in queues for key in _lists_of(queue)}
    return sorted({key async for key in client.scan_iter(count=_KEYS_AT_ONCE, _type="list")} - ours)


def _printable(key: bytes) -> str:
    """A name that can be shown, and typed."""
    text = key.decode(errors="backslashreplace")
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def task_of(item: bytes | str) -> str | None:
    """The name of the task in a Celery message of either protocol; None: it is no such message."""
    try:
        envelope = json.loads(item)
        name = (envelope.get("headers") or {}).get("task") or _body_of(envelope).get("task")
        return name if "delivery_tag" in envelope["properties"] and isinstance(name, str) else None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _body_of(envelope: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(envelope["body"]))


async def _is_for_us(client: Redis, key: bytes) -> bool:
    """By its oldest and its newest message."""
    ends = [await client.lindex(key, position) for position in (-1, 0)]
    return any(item is not None and (task_of(item) or "") in TASKS for item in ends)


def _lists_of(queue: str) -> list[bytes]:
    return [(f"{queue}{SEPARATOR}{step}" if step else queue).encode() for step in STEPS]
