"""The Celery app: `celery -A workers.app worker|beat|flower`. Tasks as coroutines, and a worker's start and end."""

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from celery import Task, signals
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

from adapters.registry import Registry
from models import schema
from models.errors import DatabaseDownError, StoreError
from workers.bells import CeleryBells, agent_queue
from workers.celery_config import make_app
from workers.logs import QuietSweeps, configure_logs, hide_secrets
from workers.loop import Stop, StoppedError, process_loop
from workers.outbox import tidy
from workers.runtime import Node, Runtime
from workers.settings import SettingsError, load_settings, require_broker

START_SECONDS = 10.0

try:
    settings = load_settings()
except SettingsError as error:
    raise SystemExit(f"longshore: {error}") from None
registry = Registry()
app = make_app(settings, registry)


@dataclass(frozen=True)
class Call:
    """What a task gets besides its arguments."""

    runtime: Runtime
    task_id: str
    queue: str


TaskBody = Callable[..., Awaitable[Any]]


def coroutine_task(name: str, **options: Any) -> Callable[[TaskBody], Task]:
    """Register `async def body(call, ...)` as the Celery task `name`, run on the process's event loop."""

    def register(body: TaskBody) -> Task:
        @functools.wraps(body)
        def run(self: Task, /, *args: Any, **kwargs: Any) -> Any:
            runtime = process_runtime()
            queue = (self.request.delivery_info or {}).get("routing_key") or ""
            call = Call(runtime, self.request.id, queue)

            async def start() -> Any:
                return await body(call, *args, **kwargs)

            try:
                return process_loop().run_job(start())
            except StoppedError as stopped:
                if stopped.reason is Stop.TIME_LIMIT:
                    raise SoftTimeLimitExceeded(str(stopped.reason)) from None
                if (
                    self.acks_late
                ):  # the broker's copy is the only one; the row's id makes a second delivery one message
                    raise Reject(str(stopped.reason), requeue=True) from None
                # Celery has already said what became of it (revoked), or nobody is left to be told (shutdown).
                raise Ignore(str(stopped.reason)) from None

        return app.task(name=name, bind=True, typing=False, **options)(run)

    return register


_runtime: tuple[int, Runtime] | None = None
_runtime_lock = threading.Lock()
_node: Node | None = None


def process_runtime() -> Runtime:
    """This process's runtime, made on its loop when a task first needs it (a forked child makes its own)."""
    global _runtime
    loop = process_loop()
    with _runtime_lock:
        if _runtime is None or _runtime[0] != id(loop):
            _runtime = (id(loop), loop.submit(_make_runtime()).result())
        return _runtime[1]


async def _make_runtime() -> Runtime:
    return Runtime(settings, CeleryBells(app, settings.redis_url), registry, _node)


@signals.setup_logging.connect
def _logs(loglevel: int | str | None = None, **_: Any) -> None:
    configure_logs(settings.log_level, as_json=settings.log_json)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=settings.log_level.upper())
    for handler in logging.getLogger().handlers:
        handler.addFilter(QuietSweeps())
        hide_secrets(handler)


@signals.worker_init.connect
def _check_configuration(sender: Any = None, **_: Any) -> None:
    """Refuse to start with a sentence instead of failing at the first message. A database that is just being
    restarted is waited for."""
    give_up = time.monotonic() + START_SECONDS
    while True:
        try:
            require_broker(settings)
            schema.check(settings.database_url)
        except DatabaseDownError as error:
            if time.monotonic() > give_up:
                raise SystemExit(f"longshore: {error}") from None
            time.sleep(1)
        except (SettingsError, StoreError) as error:
            raise SystemExit(f"longshore: {error}") from None
        else:
            return


@signals.celeryd_after_setup.connect
def _name_node(sender: str, instance: Any, **_: Any) -> None:
    global _node
    slots = instance.max_concurrency or instance.concurrency  # the former if the pool grows and shrinks
    _node = Node(sender, queues=tuple(sorted(instance.app.amqp.queues.consume_from)), slots=slots)


@signals.worker_ready.connect
def _start_early(sender: Any = None, **_: Any) -> None:
    """Report alive before the first message comes. Prefork's parent must not: its children make their own."""
    if "prefork" not in type(sender.pool).__module__:
        runtime = process_runtime()
        if any(queue.startswith(agent_queue("")) for queue in runtime.node.queues):
            # Tried out now, so that the log says at the start whether agents have their programs.
            process_loop().submit(runtime.sandbox())
        if "delivery" in runtime.node.queues:
            process_loop().submit(tidy(runtime.db, runtime.outbox))


@signals.worker_shutdown.connect
@signals.worker_process_shutdown.connect
def _close_runtime(**_: Any) -> None:
    global _runtime
    if _runtime is None:
        return
    loop, runtime = process_loop(), _runtime[1]
    _runtime = None
    with contextlib.suppress(TimeoutError, StoreError):
        loop.submit(asyncio.wait_for(runtime.close(), 8)).result(10)
    loop.stop()
