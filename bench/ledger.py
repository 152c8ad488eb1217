"""Which tasks have ended and when, from Celery's own events: the same clock and the same cost for both sides."""

import base64
import json
import threading
import time
from collections import defaultdict
from typing import Any

import redis

CHANNELS = "/0.celeryev*"


class Ledger:
    """Listens while it is open. Times are those the worker wrote into the event."""

    def __init__(self, broker: str) -> None:
        self._pubsub = redis.Redis.from_url(broker).pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._pubsub.psubscribe(CHANNELS)
        self._names: dict[str, str] = {}
        self._ended: dict[str, float] = {}
        self._failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="ledger", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)
        self._pubsub.close()

    def last_end(self, task: str, count: int, seconds: float = 90) -> float:
        """Wait until `count` tasks of that name have succeeded; when the last one did."""
        deadline = time.monotonic() + seconds
        while True:
            ends = self._ends()[task]
            if len(ends) >= count:
                return max(ends)
            if self._failed or time.monotonic() > deadline:
                raise RuntimeError(f"{task}: {len(ends)} of {count} succeeded; failed: {self._failed[:3]}")
            time.sleep(0.05)

    def forget(self) -> None:
        """A new measurement begins; all earlier tasks have ended."""
        self._names.clear()
        self._ended.clear()

    def _ends(self) -> dict[str, list[float]]:
        ends: dict[str, list[float]] = defaultdict(list)
        for task_id, at in list(self._ended.items()):
            ends[self._names.get(task_id, "")].append(at)
        return ends

    def _listen(self) -> None:
        while not self._stop.is_set():
            item = self._pubsub.get_message(timeout=0.2)
            if item is not None:
                body = json.loads(base64.b64decode(json.loads(item["data"])["body"]))
                for event in body if isinstance(body, list) else [body]:
                    self._note(event)

    def _note(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "task-received":
                self._names[event["uuid"]] = event["name"]
            case "task-succeeded":
                self._ended[event["uuid"]] = event["timestamp"]
            case "task-failed" | "task-rejected":
                self._failed.append(f"{event['type']} {event.get('exception', '')}")
