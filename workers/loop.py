"""The bridge between Celery's threads and the process's one event loop.

A Celery task runs in a thread (ours: a light one per task). It hands its coroutine to the loop and waits. Whoever
wants the task to stop cancels its `Job`, with a reason; the coroutine's own clean-up runs before the thread goes on."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class Stop(StrEnum):
    """Why a running coroutine is told to stop; it is the argument of the CancelledError it gets."""

    REVOKED = "revoked"
    TIME_LIMIT = "time limit"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease lost"


class StoppedError(Exception):
    """A coroutine was stopped from outside, and has cleaned up."""

    def __init__(self, reason: Stop) -> None:
        super().__init__(reason)
        self.reason = reason


class Job:
    """One Celery task's coroutine. `stop` may be called from any thread, before, while or after it runs."""

    def __init__(
        self, limits: Sequence[tuple[float, bool]] = (), on_limit: Callable[[bool, float], None] | None = None
    ) -> None:
        """`limits`: seconds and whether it is a soft limit; `on_limit` is told when one has passed."""
        self.reason: Stop | None = None
        self._limits = limits
        self._on_limit = on_limit
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def stop(self, reason: Stop) -> None:
        with self._lock:
            if self.reason is not None:
                return  # it is cleaning up already, and must not be torn out of that
            self.reason = reason
            loop, task = self._loop, self._task
        if loop is not None and task is not None:
            loop.call_soon_threadsafe(task.cancel, str(reason))

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on the loop, as the job; raises StoppedError if it was stopped."""
        with self._lock:
            if self.reason is not None:
                coroutine.close()
                raise StoppedError(self.reason)
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        token = _current.set(self)
        timers = [self._loop.call_later(seconds, self._expire, seconds, soft) for seconds, soft in self._limits]
        try:
            result = await coroutine
            if self.reason is not None:
                raise StoppedError(self.reason)  # it ended itself properly, but for that reason
            return result
        except asyncio.CancelledError:
            if self.reason is None:
                raise
            raise StoppedError(self.reason) from None
        finally:
            _current.reset(token)
            for timer in timers:
                timer.cancel()
            with self._lock:
                self._task = None

    def _expire(self, seconds: float, soft: bool) -> None:
        self.stop(Stop.TIME_LIMIT)
        if self._on_limit is not None and self._loop is not None:
            self._loop.run_in_executor(None, self._on_limit, soft, seconds)


_current: ContextVar[Job | None] = ContextVar("current_job", default=None)
_thread = threading.local()


def current_job() -> Job:
    """The job this coroutine is run by; a new one for coroutines that were not started by Celery."""
    return _current.get() or Job()


def offer_job(job: Job | None) -> None:
    """The pool says which job the task of this thread is to be."""
    _thread.job = job


class LoopThread:
    """An event loop in a thread of its own. One per process; a forked child makes its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._given: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="longshore-loop", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        self._given.add(future)
        future.add_done_callback(self._given.discard)
        return future

    def run_job(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from a task's thread and wait for it. An exception thrown into the waiting thread (prefork's
        soft time limit) stops the coroutine and waits for its clean-up before it goes on."""
        job: Job = getattr(_thread, "job", None) or Job()
        future = self.submit(job.run(coroutine))
        try:
            return future.result()
        except StoppedError:
            raise
        except BaseException:
            if not future.done():
                job.stop(Stop.TIME_LIMIT)
                _wait(future)
            raise

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(timeout=5)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        # Nobody may wait for ever for a loop that has ended: threads that do keep the process from ending.
        for future in list(self._given):
            future.cancel()
        self.loop.close()


def _wait(future: Future[Any]) -> None:
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    done.wait(timeout=30)


_instance: tuple[int, LoopThread] | None = None
_instance_lock = threading.Lock()


def process_loop() -> LoopThread:
    """This process's loop, started when it is first needed."""
    global _instance
    with _instance_lock:
        if _instance is None or _instance[0] != os.getpid():
            _instance = (os.getpid(), LoopThread())
        return _instance[1]
