"""The pool, driven as Celery drives it: revoke, time limits and shutdown reach the coroutine and wait for it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from workers import pool as pool_module
from workers.loop import LoopThread, StoppedError
from workers.pool import RunningTask, TaskPool

SECONDS = 10


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


@pytest.fixture
def grace() -> float:
    return 0.0


@pytest.fixture
def pool(loop: LoopThread, grace: float) -> Iterator[TaskPool]:
    """Stopped before the loop is: its tasks end on it."""
    stack = threading.stack_size()
    made = TaskPool(4, app=SimpleNamespace(conf=SimpleNamespace(longshore_grace_seconds=grace)))
    made.start()
    yield made
    made.terminate()
    threading.stack_size(stack)  # it holds for the whole process


class Celery:
    """One task, with the callbacks Celery would give."""

    def __init__(self, pool: TaskPool, loop: LoopThread, work: Callable[["Celery"], Any], **options: Any) -> None:
        self.running = threading.Event()
        self.accepted = threading.Event()
        self.cleaned_up = False
        self.outcome: object = None
        self.limits: list[tuple[bool, float]] = []
        self.limited = threading.Event()
        self._loop, self._work = loop, work
        self.task: RunningTask = pool.apply_async(
            self._target,
            (),
            {},
            callback=lambda value: None,
            accept_callback=lambda pid, time: self.accepted.set(),
            timeout_callback=self._on_limit,
            **options,
        )

    def _target(self) -> None:
        """Celery's tracer turns what a task raises into a result; so does this."""
        try:
            self.outcome = self._loop.run_job(self._work(self))
        except Exception as error:  # noqa: BLE001 - as the tracer does
            self.outcome = error

    def _on_limit(self, soft: bool, seconds: float) -> None:
        self.limits.append((soft, seconds))
        self.limited.set()

    def stopped(self) -> str:
        self.task.wait(SECONDS)
        assert isinstance(self.outcome, StoppedError), self.outcome
        return str(self.outcome.reason)


async def wait_for_ever(task: Celery) -> None:
    try:
        task.running.set()
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.02)
        task.cleaned_up = True


async def be_quick(task: Celery) -> str:
    task.running.set()
    return "done"


@pytest.mark.spec("F2")
def test_a_task_runs_in_a_thread_and_its_coroutine_on_the_loop(pool: TaskPool, loop: LoopThread) -> None:
    task = Celery(pool, loop, be_quick)
    task.task.wait(SECONDS)
    assert task.accepted.is_set()
    assert task.outcome == "done"


@pytest.mark.spec("F2")
def test_as_many_tasks_run_at_once_as_there_are_slots(pool: TaskPool, loop: LoopThread) -> None:
    tasks = [Celery(pool, loop, wait_for_ever) for _ in range(5)]
    for task in tasks[:4]:
        assert task.running.wait(SECONDS)
    assert not tasks[4].running.is_set()
    assert pool.info["running"] == 5
    tasks[0].task.terminate()
    assert tasks[4].running.wait(SECONDS), "a slot that is free is used"


@pytest.mark.spec("F2", "M15")
def test_a_revoked_task_is_cancelled_and_cleans_up(pool: TaskPool, loop: LoopThread) -> None:
    revoked, other = Celery(pool, loop, wait_for_ever), Celery(pool, loop, wait_for_ever)
    assert revoked.running.wait(SECONDS)
    assert other.running.wait(SECONDS)
    revoked.task.terminate(15)
    assert revoked.stopped() == "revoked"
    assert revoked.cleaned_up
    assert other.outcome is None
    assert not other.cleaned_up


@pytest.mark.spec("F2")
def test_a_task_revoked_before_its_turn_never_runs(pool: TaskPool, loop: LoopThread) -> None:
    running = [Celery(pool, loop, wait_for_ever) for _ in range(4)]
    for task in running:
        assert task.running.wait(SECONDS)
    waiting = Celery(pool, loop, wait_for_ever)
    waiting.task.terminate()
    running[0].task.terminate()
    assert waiting.stopped() == "revoked"
    assert not waiting.running.is_set()


@pytest.mark.spec("F2")
@pytest.mark.parametrize(("option", "soft"), [("soft_timeout", True), ("timeout", False)])
def test_a_time_limit_cancels_the_coroutine_and_tells_celery(
    option: str, soft: bool, pool: TaskPool, loop: LoopThread
) -> None:
    task = Celery(pool, loop, wait_for_ever, **{option: 0.05})
    assert task.stopped() == "time limit"
    assert task.cleaned_up
    assert task.limited.wait(SECONDS)
    assert task.limits == [(soft, 0.05)]


@pytest.mark.spec("F4")
def test_a_shutdown_without_grace_cancels_and_waits_for_the_clean_up(pool: TaskPool, loop: LoopThread) -> None:
    tasks = [Celery(pool, loop, wait_for_ever) for _ in range(3)]
    for task in tasks:
        assert task.running.wait(SECONDS)
    pool.stop()
    assert [task.stopped() for task in tasks] == ["shutdown"] * 3
    assert all(task.cleaned_up for task in tasks)
    assert pool.info["running"] == 0


@pytest.mark.spec("F4")
@pytest.mark.parametrize("grace", [30.0])
def test_a_shutdown_lets_tasks_finish_within_the_grace(pool: TaskPool, loop: LoopThread) -> None:
    async def take_a_moment(task: Celery) -> str:
        task.running.set()
        await asyncio.sleep(0.1)
        return "finished"

    task = Celery(pool, loop, take_a_moment)
    assert task.running.wait(SECONDS)
    pool.stop()
    assert task.outcome == "finished"


@pytest.mark.spec("F4")
@pytest.mark.parametrize("grace", [30.0])
def test_a_cold_stop_does_not_wait_for_the_grace(pool: TaskPool, loop: LoopThread) -> None:
    task = Celery(pool, loop, wait_for_ever)
    assert task.running.wait(SECONDS)
    pool.terminate()
    assert task.stopped() == "shutdown"
    assert task.cleaned_up


@pytest.mark.spec("F4")
def test_tasks_that_wait_for_a_slot_are_not_started_by_a_shutdown(pool: TaskPool, loop: LoopThread) -> None:
    tasks = [Celery(pool, loop, wait_for_ever) for _ in range(6)]
    for task in tasks[:4]:
        assert task.running.wait(SECONDS)
    pool.stop()
    assert [task.running.is_set() for task in tasks] == [True] * 4 + [False] * 2


@pytest.mark.spec("F4")
def test_a_clean_up_that_never_ends_does_not_hold_up_the_shutdown(
    pool: TaskPool, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "CLEAN_UP_SECONDS", 0.1)
    released = asyncio.Event()

    async def stubborn(task: Celery) -> None:
        try:
            task.running.set()
            await asyncio.Event().wait()
        finally:
            await released.wait()

    task = Celery(pool, loop, stubborn)
    assert task.running.wait(SECONDS)
    pool.stop()
    assert task.outcome is None
    loop.loop.call_soon_threadsafe(released.set)
    assert task.stopped() == "shutdown"


def test_revoking_by_process_does_nothing(pool: TaskPool, loop: LoopThread) -> None:
    """All tasks share one: it would end them all."""
    task = Celery(pool, loop, wait_for_ever)
    assert task.running.wait(SECONDS)
    pool.terminate_job(0, 9)
    assert task.outcome is None
    task.task.terminate()
    assert task.stopped() == "revoked"
