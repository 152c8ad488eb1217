"""The peer: a Celery app that does nothing, started with the same command line as ours.

It must not import our app, or it would carry our signals and memory. So it repeats our Celery settings, and
`settings_differ` lets the bench refuse to compare what is not alike. It runs on our pool, and on Celery's `threads`."""
# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False

import os
import time
from typing import Any, Final

import redis
from celery import Celery
from kombu.entity import Queue

QUEUES: Final = ("plain.first", "plain.second", "plain.third")
CHANNEL: Final = "plain:told"

SETTINGS: Final[dict[str, Any]] = {
    "task_create_missing_queues": False,
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_ignore_result": True,
    "task_acks_late": False,
    "worker_pool": "workers.pool:TaskPool",
    "worker_prefetch_multiplier": 1,
    "worker_disable_prefetch": True,
    "worker_send_task_events": True,
    "task_send_sent_event": True,
    "worker_redirect_stdouts": False,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_transport_options": {
        "visibility_timeout": 120,
        "socket_timeout": 30,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "unacked_restore_throttle": 1,
    },
}

app = Celery("plain", broker=os.environ.get("REDIS_URL", "redis://"))
app.conf.update(
    SETTINGS,
    task_queues=[Queue(name) for name in QUEUES],
    task_default_queue=QUEUES[0],
    longshore_grace_seconds=1,  # our pool asks for it
)
_client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://"))


@app.task(name="plain.nothing")
def nothing(word: str = "") -> None:
    """What a wake is measured against."""


@app.task(name="plain.wait")
def wait(seconds: float) -> None:
    """What a waiting session is measured against: a thread that sleeps."""
    time.sleep(seconds)


@app.task(name="plain.tell")
def tell(word: str) -> None:
    """What the first event is measured against."""
    _client.publish(CHANNEL, word)


# The chain has the shape of our path: the first link is acknowledged late, as `messages.ingest` is.
@app.task(name="plain.first", acks_late=True, reject_on_worker_lost=True)
def first(word: str) -> None:
    app.send_task("plain.second", args=[word], queue=QUEUES[1])


@app.task(name="plain.second")
def second(word: str) -> None:
    app.send_task("plain.third", args=[word], queue=QUEUES[2])


@app.task(name="plain.third")
def third(word: str) -> None:
    """The end of the chain."""


def settings_differ(ours: Any) -> list[str]:
    """Names of settings in which our app (its `conf`) and this one are not alike."""
    return [name for name, value in SETTINGS.items() if ours.get(name) != value]
