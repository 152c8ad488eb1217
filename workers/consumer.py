"""The worker's consumer: what comes from a queue and is no task that can be run is kept as `rejected`, with the reason.

Celery's own drops such a message with a log line, or ends the worker over it. Here it is acknowledged only when its
row is committed, and goes back on the queue while the database is away. It must never run what it does not understand,
nor unpickle anything."""

import asyncio
import base64
import queue
import threading
import time
from collections.abc import Callable
from numbers import Real
from typing import Any, Final

import structlog
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.consumer import Consumer as CeleryConsumer
from kombu.exceptions import ContentDisallowed
from kombu.message import Message

from models.database import Database
from workers.app import settings
from workers.envelopes import UNREADABLE
from workers.intake.rejections import record_rejection, row_id_of
from workers.pool import TaskPool

log = structlog.get_logger()

PAUSE_SECONDS: Final = 1.0  # how long a message stays off the queue when the database is away
KEPT_CHARACTERS: Final = 100_000  # of a body that is no task's
# Those of our own making carry nothing and are rung again and again: one row tells of all of a name.
_BELLS: Final = ("agent.", "delivery.", "upkeep.")
# Headers that Celery stumbles over in the pool, where nobody would acknowledge the message then.
_TEXTS: Final = ("shadow", "group", "root_id", "parent_id", "argsrepr", "kwargsrepr")
# Tasks of others that ours would have to send on: none of their queues is known here.
_CANVAS: Final = ("callbacks", "errbacks", "chain", "chord")
_Rejection = tuple[str, str, str, dict[str, Any]]
_logger = get_logger(__name__)


class Consumer(CeleryConsumer):  # type: ignore[misc]  # Celery has no types
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Apart from the pool, which may be full or be of processes, and from this thread, which must go on reading.
        # What is still here when the worker leaves goes back on its queue.
        self._refused: queue.SimpleQueue[tuple[Message, _Rejection]] = queue.SimpleQueue()
        self._keeper = threading.Thread(target=self._keep_all, name="longshore-rejections", daemon=True)

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Message], Any]:
        handle = super().create_task_handler(*args, **kwargs)
        broker_away = tuple(one for one in self.connection_errors if one is not KeyError)  # kombu counts it among them

        def on_task_received(message: Message) -> Any:
            try:
                wrong = complaint(message)
                return handle(message) if wrong is None else self._refuse(message, wrong)
            except broker_away:  # Celery connects again
                raise
            except Exception as error:  # noqa: BLE001  whatever Celery stumbles over, the next message is waiting
                return self._refuse(message, _in_words(message, error))

        return on_task_received

    def cancel_active_requests(self) -> None:
        """On a cold stop (SIGQUIT, a second Ctrl-C) Celery cancels running tasks as if an operator had revoked them,
        and a revoked turn is given up for good. So turns are handed over first."""
        if isinstance(self.pool, TaskPool):  # -P may choose another
            self.pool.hand_over()
        super().cancel_active_requests()

    def on_unknown_message(self, body: Any, message: Message) -> None:
        self._refuse(message, "it names no task: messages are sent as 'messages.ingest'")

    def on_unknown_task(self, body: Any, message: Message, exc: Exception) -> None:
        self._refuse(message, f"there is no task {exc.args[0]!r} here: messages are sent as 'messages.ingest'")

    def on_invalid_task(self, body: Any, message: Message, exc: Exception) -> None:
        self._refuse(message, _in_words(message, exc))

    def on_decode_error(self, message: Message, exc: Exception) -> None:
        self._refuse(message, _in_words(message, exc))

    def _refuse(self, message: Message, reason: str) -> None:
        for request in [one for one in state.reserved_requests if one.message is message]:
            state.task_ready(request)  # it was about to run, and must not count as running for ever
        name = str((message.delivery_info or {}).get("routing_key"))
        log.warning("message.unreadable", queue=name, id=_id_of(message), reason=reason)
        self._refused.put((message, (_id_of(message), f"queue {name}"[:100], reason, _shown(message))))
        if not self._keeper.is_alive():
            self._keeper.start()

    def _keep_all(self) -> None:
        while True:
            message, rejection = self._refused.get()
            try:
                asyncio.run(_record(*rejection))
            except Exception as error:  # noqa: BLE001  the broker keeps what the database does not
                log.error("message.not_stored", task=rejection[0], error=type(error).__name__)
                time.sleep(PAUSE_SECONDS)
                self.call_soon_ack(message.reject_log_error, _logger, self.connection_errors, requeue=True)
            else:
                self.call_soon_ack(message.ack_log_error, _logger, self.connection_errors)


async def _record(task_id: str, source: str, reason: str, payload: dict[str, Any]) -> None:
    db = Database(settings.database_url, pool_size=1)
    try:
        await record_rejection(db, task_id, source, reason, payload)
    finally:
        await db.close()


def complaint(message: Message) -> str | None:
    """What is wrong with a message that Celery would stumble over or hang on, in the words of Celery's protocol."""
    headers = message.headers
    if UNREADABLE in headers:
        return str(headers[UNREADABLE])
    body = message.payload
    if isinstance(body, dict) and "task" in (headers | body):  # protocol 1
        said, args, kwargs, embed = body | headers, body.get("args", []), body.get("kwargs", {}), None
    elif "task" not in headers:
        return None  # Celery asks what to do with it
    elif isinstance(body, list) and len(body) == 3:
        said, (args, kwargs, embed) = headers, body
    else:
        return "its body is not [args, kwargs, embed] as JSON (content-type application/json)"
    if not isinstance(said["task"], str):
        return "its task is no text"
    if not isinstance(said.get("id"), str) or not said["id"]:
        return "its id is no text"
    if not isinstance(args, list) or not isinstance(kwargs, dict) or not isinstance(embed or {}, dict):
        return "its body is not [args, kwargs, embed]: a list, an object and an object"
    if "self" in kwargs:  # Celery's own name for the task
        return "self: Extra inputs are not permitted"
    limits = said.get("timelimit") or [None, None]
    if not isinstance(limits, list) or len(limits) != 2 or not all(isinstance(one or 0, Real) for one in limits):
        return "its timelimit is not two numbers"
    if not all(isinstance(said.get(name) or "", str) for name in _TEXTS):
        return f"one of its headers {', '.join(_TEXTS)} is no text"
    if any((embed or said).get(name) for name in _CANVAS):
        return "other tasks are chained to it (link, chain, chord), and are not sent on from here: send it by itself"
    return None


def _in_words(message: Message, error: Exception) -> str:
    if isinstance(error, ContentDisallowed):
        return f"its content-type is {message.content_type!r}: send JSON (application/json)"
    return f"it is no task that can be run ({type(error).__name__}: {error})"[:500]


def _id_of(message: Message) -> str:
    """As its sender knows it, else one that the same message has again."""
    name, given = message.headers.get("task"), message.headers.get("id")
    if isinstance(name, str) and name.startswith(_BELLS):
        return row_id_of(f"{name} is rung for, and nobody knows what it is")
    if isinstance(given, str) and given:
        return given
    return row_id_of(f"{message.delivery_tag} with {_bytes_of(message)!r}")


def _bytes_of(message: Message) -> bytes:
    return message.body.encode() if isinstance(message.body, str) else bytes(message.body or b"")


def _shown(message: Message) -> dict[str, Any]:
    """All that its sender meant, if it can be read that far, so that it can be sent again as it should have been."""
    shown = {"task": message.headers.get("task"), "content_type": message.content_type}
    try:
        args, kwargs, _ = message.payload
        return shown | {"args": args, "kwargs": kwargs}
    except Exception:  # noqa: BLE001  it is refused because it cannot be read
        body = _bytes_of(message)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = f"base64: {base64.b64encode(body).decode()}"
    return shown | {"bytes": len(body), "body": text[:KEPT_CHARACTERS]}
