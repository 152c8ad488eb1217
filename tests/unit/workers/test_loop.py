"""Jobs: stopped before, while and after they run; the reason is kept, and clean-up is waited for."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from models.database import uninterrupted
from workers.loop import Job, LoopThread, Stop, StoppedError, current_job, offer_job, process_loop


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


class Patient:
    """A coroutine that waits for ever, and needs a moment to clean up."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.cleaned_up = False
        self.told: tuple[Any, ...] = ()

    async def run(self) -> None:
        try:
            self.started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            self.told = error.args
            await asyncio.sleep(0.01)
            self.cleaned_up = True
            raise


@pytest.mark.spec("F2")
def test_a_coroutine_runs_on_the_loop_and_its_value_comes_back(loop: LoopThread) -> None:
    async def work() -> tuple[str, Job]:
        return threading.current_thread().name, current_job()

    name, job = loop.run_job(work())
    assert name == "longshore-loop"
    assert job.reason is None


@pytest.mark.spec("F2")
def test_what_a_coroutine_raises_is_raised(loop: LoopThread) -> None:
    async def work() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        loop.run_job(work())


@pytest.mark.spec("F2")
def test_a_job_stopped_before_it_runs_never_runs(loop: LoopThread) -> None:
    job, ran = Job(), []

    async def work() -> None:
        ran.append(True)

    job.stop(Stop.REVOKED)
    with pytest.raises(StoppedError) as caught:
        loop.submit(job.run(work())).result(5)
    assert caught.value.reason is Stop.REVOKED
    assert ran == []


@pytest.mark.spec("F2")
@pytest.mark.parametrize("reason", Stop)
def test_a_job_stopped_while_it_runs_is_told_why_and_cleans_up_first(reason: Stop, loop: LoopThread) -> None:
    job, patient = Job(), Patient()
    future = loop.submit(job.run(patient.run()))
    assert patient.started.wait(5)
    job.stop(reason)
    with pytest.raises(StoppedError) as caught:
        future.result(5)
    assert patient.cleaned_up
    assert patient.told == (str(reason),)
    assert (caught.value.reason, job.reason) == (reason, reason)


@pytest.mark.spec("F2")
def test_a_job_stopped_after_it_ran_keeps_its_value(loop: LoopThread) -> None:
    job = Job()
    assert loop.submit(job.run(asyncio.sleep(0, "done"))).result(5) == "done"
    job.stop(Stop.SHUTDOWN)
    assert loop.submit(asyncio.sleep(0, "another")).result(5) == "another"


@pytest.mark.spec("F2")
def test_the_first_reason_is_kept(loop: LoopThread) -> None:
    job = Job()
    job.stop(Stop.LEASE_LOST)
    job.stop(Stop.SHUTDOWN)
    assert job.reason is Stop.LEASE_LOST


@pytest.mark.spec("F2")
def test_a_coroutine_that_ends_itself_properly_was_stopped_all_the_same(loop: LoopThread) -> None:
    job, started = Job(), threading.Event()

    async def stubborn() -> str:
        try:
            started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "handed over"
        return "never"

    future = loop.submit(job.run(stubborn()))
    assert started.wait(5)
    job.stop(Stop.SHUTDOWN)
    with pytest.raises(StoppedError) as raised:  # so that Celery does not call a revoked task a success
        future.result(5)
    assert raised.value.reason is Stop.SHUTDOWN


@pytest.mark.spec("F2")
async def test_a_cancellation_that_is_not_ours_stays_one() -> None:
    job = Job()
    task = asyncio.create_task(job.run(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert job.reason is None


@pytest.mark.spec("F2")
async def test_a_coroutine_knows_its_job() -> None:
    job = Job()

    async def work() -> Job:
        return await asyncio.create_task(_current())

    async def _current() -> Job:
        return current_job()

    assert await job.run(work()) is job
    assert current_job() is not job


@pytest.mark.spec("F2")
def test_a_time_limit_stops_the_job_and_tells_celery(loop: LoopThread) -> None:
    told: list[tuple[bool, float]] = []
    passed = threading.Event()

    def on_limit(soft: bool, seconds: float) -> None:
        told.append((soft, seconds))
        passed.set()

    job, patient = Job([(0.05, True), (3600.0, False)], on_limit), Patient()
    with pytest.raises(StoppedError) as caught:
        loop.submit(job.run(patient.run())).result(5)
    assert caught.value.reason is Stop.TIME_LIMIT
    assert patient.cleaned_up
    assert passed.wait(5)
    assert told == [(True, 0.05)]


@pytest.mark.spec("F2")
def test_a_limit_that_was_not_reached_is_forgotten(loop: LoopThread) -> None:
    job = Job([(0.05, True)])
    assert loop.submit(job.run(asyncio.sleep(0, "quick"))).result(5) == "quick"
    loop.submit(asyncio.sleep(0.1)).result(5)
    assert job.reason is None


@pytest.mark.spec("F2")
def test_the_pool_s_job_is_the_one_that_runs(loop: LoopThread) -> None:
    job = Job()

    async def work() -> Job:
        return current_job()

    offer_job(job)
    try:
        assert loop.run_job(work()) is job
    finally:
        offer_job(None)
    assert loop.run_job(work()) is not job


@pytest.mark.spec("F2")
def test_an_exception_thrown_into_the_waiting_thread_stops_the_coroutine(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefork's soft time limit is raised wherever the thread happens to be: here, in its wait."""
    patient = Patient()
    submit = loop.submit

    class SoftLimit(BaseException): ...

    def interrupted(coroutine: Coroutine[Any, Any, Any]) -> Any:
        future = submit(coroutine)

        def result(timeout: float | None = None) -> None:
            assert patient.started.wait(5)
            raise SoftLimit

        monkeypatch.setattr(future, "result", result)
        return future

    monkeypatch.setattr(loop, "submit", interrupted)
    with pytest.raises(SoftLimit):
        loop.run_job(patient.run())
    assert patient.cleaned_up
    assert patient.told == (str(Stop.TIME_LIMIT),)


async def test_what_must_not_be_torn_apart_ends_before_the_cancellation() -> None:
    half, done, go = asyncio.Event(), [], asyncio.Event()

    async def transaction() -> str:
        half.set()
        await go.wait()
        done.append("committed")
        return "value"

    task = asyncio.create_task(uninterrupted(transaction()))
    await half.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["committed"]


async def test_what_must_not_be_torn_apart_returns_and_raises_as_usual() -> None:
    async def broken() -> None:
        raise LookupError

    assert await uninterrupted(asyncio.sleep(0, "value")) == "value"
    with pytest.raises(LookupError):
        await uninterrupted(broken())


def test_a_process_has_one_loop() -> None:
    assert process_loop() is process_loop()
