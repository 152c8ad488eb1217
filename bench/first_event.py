"""(c) From sending a message to its first event on `events:all`, against a plain task that publishes when it runs.

The fleet is otherwise idle. One message is under way at a time, and the two sides take turns, sample by sample. The
message belongs to a conversation that exists; the first event says that its turn has started."""

import json
import time
from typing import Any

import redis
from celery import Celery

from bench.figures import Aim, Figure, percentile
from bench.lineup import start_lineup
from bench.path import ANSWER, message
from bench.plain import CHANNEL
from bench.rows import add_group
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage
from workers.events import ALL

WARM_UP = 10
PATIENCE_SECONDS = 60.0
AIM = Aim("at most", 3)


def measure(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    url = stage.make_database(kind)
    add_group(url, script=ANSWER)
    ours: list[list[float]] = []
    plain: list[list[float]] = []
    with stage.workers(url) as workers, redis.Redis.from_url(stage.broker) as client:
        start_lineup(workers)
        clock = _Stopwatch(stage.broker, client)
        for repeat in range(scale.repeats + 1):
            samples = scale.samples if repeat else WARM_UP
            pairs = [(clock.ours(), clock.plain()) for _ in range(samples)]
            if repeat:
                ours.append([pair[0] for pair in pairs])
                plain.append([pair[1] for pair in pairs])
                p50, peer = percentile(ours[-1], 0.5), percentile(plain[-1], 0.5)
                say(f"(c) {kind}, repeat {repeat}: p50 {p50:.1f} ms, plain {peer:.1f} ms")
    return [
        Figure(
            "c",
            f"send to first event, {name} ({kind})",
            [percentile(values, share) for values in ours],
            [percentile(values, share) for values in plain],
            "ms",
            AIM,
        )
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]


class _Stopwatch:
    """Milliseconds from just before the sending to the arrival of the first word."""

    def __init__(self, broker: str, client: "redis.Redis") -> None:
        self._app = Celery(broker=broker)
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._pubsub.subscribe(ALL, CHANNEL)
        while self._pubsub.get_message(timeout=0.1) is not None:
            pass

    def plain(self) -> float:
        started = time.perf_counter()
        self._app.send_task("plain.tell", args=["x"], queue="plain.first", ignore_result=True)
        self._next()
        return (time.perf_counter() - started) * 1000

    def ours(self) -> float:
        started = time.perf_counter()
        self._app.send_task("messages.ingest", kwargs=message("one"), queue="messages", ignore_result=True)
        first = self._next()
        taken = (time.perf_counter() - started) * 1000
        assert first["event"]["type"] == "turn_started", first
        # The next sample must find an idle fleet: the last event of a message is that of its delivery.
        while self._next()["event"]["type"] != "delivery":
            pass
        return taken

    def _next(self) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            item = self._pubsub.get_message(timeout=1)
            if item is not None:
                return json.loads(item["data"]) if item["channel"] == ALL.encode() else None
        raise TimeoutError(f"nothing was heard for {PATIENCE_SECONDS:g} s")
