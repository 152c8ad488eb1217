"""The Celery pool for agents: a light thread per task, all coroutines on one event loop, and controls that work.

The app's default: `celery -A workers.app worker -c 200`. Threads that wait cost little, and a Redis that stalls holds
up one thread, not the loop. Revoke, soft and hard time limits and shutdown cancel the task's coroutine and let
it clean up: Celery's own threads pool obeys none of them."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from celery.concurrency.base import BasePool, apply_target

from workers.loop import Job, Stop, offer_job

# After the grace, and after a cold stop: how long coroutines may take to hand their turns over.
CLEAN_UP_SECONDS = 10.0
STACK_BYTES = 512 * 1024


class RunningTask:
    """What Celery holds for a task it gave us: it terminates it through this."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.future: Future[None] | None = None

    def terminate(self, signum: int | None = None) -> None:
        self.job.stop(Stop.REVOKED)

    def wait(self, timeout: float | None = None) -> None:
        if self.future is not None:
            wait([self.future], timeout)


class TaskPool(BasePool):  # type: ignore[misc]  # Celery has no types
    body_can_be_buffer = True
    signal_safe = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        threading.stack_size(STACK_BYTES)
        self._executor = ThreadPoolExecutor(max_workers=self.limit, thread_name_prefix="task")
        self._running: set[RunningTask] = set()
        self._lock = threading.Lock()

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        soft_timeout: float | None = None,
        timeout: float | None = None,
        timeout_callback: Callable[[bool, float], None] | None = None,
        **_: Any,
    ) -> RunningTask:
        limits = [(seconds, soft) for seconds, soft in ((soft_timeout, True), (timeout, False)) if seconds]
        running = RunningTask(Job(limits, timeout_callback))
        with self._lock:
            self._running.add(running)

        def run() -> None:
            offer_job(running.job)
            try:
                apply_target(target, args, kwargs, callback, accept_callback)
            finally:
                offer_job(None)
                with self._lock:
                    self._running.discard(running)

        running.future = self._executor.submit(run)
        return running

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """All tasks share one process: they are stopped one by one, through RunningTask.terminate."""

    def on_stop(self) -> None:
        """Warm: let tasks finish within the grace, then have their turns handed over."""
        self._finish(float(self.app.conf.longshore_grace_seconds))

    def on_terminate(self) -> None:
        self._finish(0.0)

    def hand_over(self) -> None:
        """End the grace: running turns go on at once on other workers."""
        for running in self._snapshot():
            running.job.stop(Stop.SHUTDOWN)

    def _finish(self, grace: float) -> None:
        self._wait_until_idle(grace)
        self.hand_over()
        self._wait_until_idle(CLEAN_UP_SECONDS)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _wait_until_idle(self, seconds: float) -> None:
        wait([running.future for running in self._snapshot() if running.future is not None], seconds)

    def _snapshot(self) -> list[RunningTask]:
        with self._lock:
            return list(self._running)

    def _get_info(self) -> dict[str, Any]:
        info: dict[str, Any] = super()._get_info()
        return info | {"running": len(self._snapshot()), "threads": len(self._executor._threads)}
