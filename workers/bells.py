"""Ringing: Celery messages that carry ids and say "look". Losing one only costs time, so ringing never fails a caller.

One thread publishes, because Celery's publishing blocks and the event loop must not; when the broker is away, rings
are dropped with one log line, and the sweep finds what they were for."""

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, Protocol

import redis
import structlog

from adapters.events import Envelope
from workers.events import ALL, channel_of
from workers.nudges import nudge_channel

if TYPE_CHECKING:
    from celery import Celery

log = structlog.get_logger()

LIMIT = 10_000
_PUBLISH = "publish"  # not a task: a word on a channel, for whoever listens just now
_END = None


def agent_queue(provider: str) -> str:
    return f"agent.{provider}"


class Bells(Protocol):
    """Says that there is something to do. Never fails and never blocks its caller."""

    def wake(self, session_id: str, provider: str) -> None: ...

    def deliver(self, message_out_id: str) -> None: ...

    def settle(self, message_out_id: str) -> None: ...

    def advance(self, workflow_id: str) -> None: ...

    def nudge(self, session_id: str) -> None:
        """Tell the worker that runs a session to look at it: it has been spoken to, or was taken away."""

    def tell(self, *envelopes: Envelope) -> None:
        """Say what has happened to those who watch. The events are on record."""

    def close(self) -> None: ...


class CeleryBells:
    def __init__(self, app: "Celery", redis_url: str = "") -> None:
        """`redis_url`: where nudges and events go; without it, turns and readers notice by themselves, only later."""
        self._app = app
        self._redis = redis.Redis.from_url(redis_url, socket_timeout=5, socket_connect_timeout=5) if redis_url else None
        self._queue: queue.Queue[tuple[str, list[str], str] | None] = queue.Queue(LIMIT)
        self._silent = False
        self._thread = threading.Thread(target=self._publish, name="longshore-bells", daemon=True)
        self._thread.start()

    def wake(self, session_id: str, provider: str) -> None:
        self._ring("agent.wake", session_id, agent_queue(provider))

    def deliver(self, message_out_id: str) -> None:
        self._ring("delivery.send", message_out_id, "delivery")

    def settle(self, message_out_id: str) -> None:
        self._ring("delivery.settle", message_out_id, "delivery")

    def advance(self, workflow_id: str) -> None:
        self._ring("workflow.advance", workflow_id, "upkeep")

    def nudge(self, session_id: str) -> None:
        self._ring(_PUBLISH, "look", nudge_channel(session_id))

    def tell(self, *envelopes: Envelope) -> None:
        for item in envelopes:
            for channel in (channel_of(item.session), ALL):
                self._ring(_PUBLISH, item.to_json(), channel)

    def close(self, seconds: float = 5.0) -> None:
        """Publish what is queued, then stop."""
        with contextlib.suppress(queue.Full):
            self._queue.put(_END, timeout=seconds)
            self._thread.join(seconds)
        if self._redis is not None:
            self._redis.close()

    def _ring(self, task: str, row_id: str, queue_name: str) -> None:
        try:
            self._queue.put_nowait((task, [row_id], queue_name))
        except queue.Full:
            log.warning("bell.dropped", task=task, id=row_id if task != _PUBLISH else queue_name)

    def _publish(self) -> None:
        with self._app.connection_for_write() as connection, self._app.amqp.Producer(connection) as producer:
            while (item := self._queue.get()) is not _END:
                task, args, queue_name = item
                self._send(producer, task, args, queue_name)

    def _send(self, producer: Any, task: str, args: list[str], queue_name: str) -> None:
        try:
            if task != _PUBLISH:
                self._app.send_task(
                    task, args=args, queue=queue_name, producer=producer, retry=False, ignore_result=True
                )
            elif self._redis is not None:
                self._redis.publish(queue_name, args[0])
        except Exception as error:  # noqa: BLE001 - whatever the broker's driver raises, the row is safe
            if not self._silent:
                log.warning("bell.broker_away", error=type(error).__name__)
            self._silent = True
        else:
            self._silent = False
