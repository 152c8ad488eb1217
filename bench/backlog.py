"""A queue that is full from one moment to the next.

Sending costs as much CPU as a no-op task, so a sender that works while the queue drains would be measured too. The
messages are sent to another database of the same Redis server and moved in one step when the clock starts."""

import time
from collections.abc import Iterable
from typing import Any

import redis
from celery import Celery

STAGING_DATABASE = 15


class Backlog:
    def __init__(self, broker: str, queue: str) -> None:
        self._queue = queue
        self._client = redis.Redis.from_url(broker.rsplit("/", 1)[0], db=STAGING_DATABASE)
        self._app = Celery(broker=f"{broker.rsplit('/', 1)[0]}/{STAGING_DATABASE}")
        self._client.delete(queue)

    def fill(self, task: str, calls: Iterable[tuple[list[Any], dict[str, Any]]]) -> None:
        for args, kwargs in calls:
            self._app.send_task(task, args=args, kwargs=kwargs, queue=self._queue, ignore_result=True)

    def release(self) -> float:
        """Let the workers see it. Returns the time (of the machine's clock, as in Celery's events)."""
        started = time.time()
        if not self._client.move(self._queue, 0):
            raise RuntimeError(f"{self._queue} is not empty: a measurement before this one has left something behind")
        self._app.close()
        self._client.close()
        return started
