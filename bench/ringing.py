"""The fleet's own bells on the bench's broker, and how long they take. Nobody answers them."""
# mypy: disallow-untyped-calls=False

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import redis
from celery import Celery
from kombu.entity import Queue

from bench.plain import SETTINGS
from scheduler.ringing import Wake
from workers.bells import CeleryBells, agent_queue

QUEUE = agent_queue("scripted")


class Bells:
    def __init__(self, broker: str) -> None:
        app = Celery("bench", broker=broker)
        app.conf.update(SETTINGS, task_queues=[Queue(QUEUE)], task_default_queue=QUEUE)
        self._bells = CeleryBells(app)
        self._broker = redis.Redis.from_url(broker)

    def ring(self, wakes: Sequence[Wake]) -> float:
        """Returns the seconds until the broker has them all. Then its list is emptied."""
        started = time.perf_counter()
        for wake in wakes:
            self._bells.wake(wake.session_id, wake.provider)
        while self._broker.llen(QUEUE) < len(wakes):
            time.sleep(0.0005)
        taken = time.perf_counter() - started
        self._broker.delete(QUEUE)
        return taken

    def close(self) -> None:
        self._bells.close()
        self._broker.close()


@contextmanager
def hang_bells(broker: str) -> Iterator[Bells]:
    bells = Bells(broker)
    try:
        yield bells
    finally:
        bells.close()
