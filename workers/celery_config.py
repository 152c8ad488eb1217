"""The Celery app's configuration: queues, routes, the broker. Whoever publishes wake-ups needs no more; the tasks, and
what a worker imports to run them, are in `workers/app.py`."""

from celery import Celery
from celery.schedules import schedule
from kombu.entity import Exchange, Queue

from adapters.registry import Registry
from scheduler.beat import beat_schedule, steady_now
from workers.broker import mend_broker
from workers.envelopes import read_anything
from workers.queues import queue_names
from workers.settings import Settings

# Only `messages.ingest` is acknowledged late: its message is the only copy until its row is committed.
INGEST_VISIBILITY_SECONDS = 120
_TASK_MODULES = [
    "tasks.messages",
    "tasks.agent",
    "tasks.delivery",
    "tasks.upkeep",
    "tasks.retention",
    "tasks.workflows",
]


def make_app(settings: Settings, registry: Registry) -> Celery:
    queues = queue_names(registry)
    app = Celery("longshore", broker=settings.broker or "redis://", include=_TASK_MODULES)
    app.conf.update(
        # Each its own exchange and key: what is published to one queue can reach no other.
        task_queues=[Queue(name, Exchange(name, type="direct"), routing_key=name) for name in queues],
        task_create_missing_queues=False,  # a typo is an error at the sender, not a list nobody reads
        task_default_queue="messages",
        task_routes={
            "messages.*": {"queue": "messages"},
            "delivery.*": {"queue": "delivery"},
            "upkeep.*": {"queue": "upkeep"},
            "workflow.*": {"queue": "upkeep"},
        },
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=False,
        worker_pool=settings.pool,
        worker_consumer="workers.consumer:Consumer",  # keeps what cannot be run
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_send_task_events=True,
        task_send_sent_event=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": INGEST_VISIBILITY_SECONDS,
            "socket_timeout": 30,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "unacked_restore_throttle": 1,
        },
        beat_scheduler="celery.beat:Scheduler",  # keeps nothing, so it needs no file
        beat_schedule={
            name: entry | {"schedule": schedule(entry["schedule"], nowfun=steady_now)}
            for name, entry in beat_schedule(settings.sweep_seconds).items()
        },
        beat_max_loop_interval=min(1.0, settings.sweep_seconds),
        timezone="UTC",
    )
    app.conf.longshore_grace_seconds = settings.grace_seconds
    mend_broker()
    read_anything()
    return app
