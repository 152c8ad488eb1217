"""(b) The whole path, ingest -> turn -> delivered, against a chain of three plain no-op tasks.

Three worker processes on each side, one per queue, as in the Procfile. The messages come from a plain Celery producer.
Two cases: each belongs to a new conversation, so that each is one turn and one answer on the `local` channel (the
dearest there is); and many come to a few conversations at once, which take what is due together."""

from functools import partial
from typing import Any

from bench.drain import Drains, drain, drain_until
from bench.figures import Aim, Figure
from bench.ledger import Ledger
from bench.lineup import start_lineup
from bench.rows import GROUP, PLACE, add_group, count_delivered, count_messages, last_delivery
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage
from models.base import new_id

WARM_UP = 30
ANSWER = "ok"
CONVERSATIONS = 20
PER_CONVERSATION = 4  # times as many messages as in the other case
AIM = Aim("at least", 0.6)


def measure(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    url = stage.make_database(kind)
    add_group(url, script=ANSWER)
    drains = Drains()
    with stage.workers(url) as workers, Ledger(stage.broker) as ledger:
        lineup = start_lineup(workers)
        for repeat in range(scale.repeats + 1):
            count = scale.chains if repeat else WARM_UP
            words: list[tuple[list[Any], dict[str, Any]]] = [([str(n)], {}) for n in range(count)]
            drains.add(
                "chains",
                drain(ledger, stage.broker, lineup.plain, "plain.first", "plain.first", words, "plain.third"),
            )
            before = count_delivered(url)
            messages: list[tuple[list[Any], dict[str, Any]]] = [([], message(new_id())) for _ in range(count)]
            drains.add(
                "messages",
                drain(ledger, stage.broker, lineup.ours, "messages", "messages.ingest", messages, "delivery.send"),
            )
            delivered = count_delivered(url) - before
            assert delivered == count, f"{delivered} of {count} answers were delivered"
            shared = count * PER_CONVERSATION
            total = count_messages(url) + shared
            busy: list[tuple[list[Any], dict[str, Any]]] = [
                ([], message(f"busy-{n % CONVERSATIONS}")) for n in range(shared)
            ]
            drains.add(
                "busy chats",
                drain_until(
                    stage.broker, lineup.ours, "messages", "messages.ingest", busy, partial(last_delivery, url, total)
                ),
            )
            say(f"(b) {kind}, {f'repeat {repeat}' if repeat else 'warm-up'}: {drains}")
    return [
        Figure("b", f"ingest, turn, delivered ({kind})", *drains.rates("messages", "chains"), "/s", AIM),
        Figure("b", "  CPU of the three workers", *drains.costs("messages", "chains"), "ms"),
        Figure("b", f"{CONVERSATIONS} busy conversations ({kind})", *drains.rates("busy chats", "chains"), "/s", AIM),
        Figure("b", "  CPU of the three workers", *drains.costs("busy chats", "chains"), "ms"),
    ]


def message(thread_id: str) -> dict[str, Any]:
    """What a producer sends."""
    place = {"channel_type": "local", "platform_id": PLACE, "thread_id": thread_id}
    return {"agent_group": GROUP, "text": "hello", **place}
