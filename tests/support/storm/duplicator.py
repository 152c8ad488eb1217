"""Watches the broker and pushes each task that wakes an agent or asks for a delivery a second time.

What is pushed is the very same Celery message, as a broker that redelivers would do it."""

import threading
import time
from contextlib import suppress

import redis


class Duplicator:
    def __init__(self, port: int, queues: tuple[str, ...]) -> None:
        self._port = port
        self._starts = tuple(f"LPUSH {queue} " for queue in queues)
        self._stopped = threading.Event()
        self.doubled = 0
        self._thread = threading.Thread(target=self._run, name="chaos-duplicator")
        self._thread.start()

    def stop(self) -> None:
        """Returns when the server is gone or says something more: stop the server first."""
        self._stopped.set()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._stopped.is_set():
            with (
                suppress(redis.RedisError, OSError),
                redis.Redis(port=self._port) as reader,
                redis.Redis(port=self._port) as writer,
            ):
                self._watch(reader, writer)
            time.sleep(0.05)

    def _watch(self, reader: redis.Redis, writer: redis.Redis) -> None:
        ours: set[str] = set()
        with reader.monitor() as monitor:  # type: ignore[no-untyped-call]
            for seen in monitor.listen():
                if self._stopped.is_set():
                    return
                command = str(seen["command"])
                if not command.startswith(self._starts):
                    continue
                if command in ours:
                    ours.remove(command)
                    continue
                _, queue, message = command.split(" ", 2)
                ours.add(command)
                writer.lpush(queue, message)
                self.doubled += 1
