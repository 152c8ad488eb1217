"""(d) Memory of a session that waits, in one worker process, against a plain task that sleeps in a thread.

Each repeat has fresh processes: what a process has once taken it does not give back."""

import time

import psutil

from bench.backlog import Backlog
from bench.drain import drain
from bench.figures import Aim, Figure
from bench.ledger import Ledger
from bench.rows import add_group, add_sessions, count_running
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage
from gateway.supervisor import Child
from tests.support.servers import wait_until

AGENT, PLAIN = "agent.scripted", "plain.first"
WARM_UP = 50
SETTLE_SECONDS = 1.0
PATIENCE_SECONDS = 180.0
# The second scene is for the warm-up: connections, caches and modules are there before the first reading.
SCRIPT = """
- when: wait
  play:
    - wait: 3600
- play:
    - answer: ok
"""
AIM = Aim("at most", 80, of="ours", unit=" kB")


def measure(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    ours: list[float] = []
    plain: list[float] = []
    for repeat in range(1, scale.repeats + 1):
        ours.append(_waiting_sessions(stage, kind, scale.waiting))
        plain.append(_sleeping_tasks(stage, scale.waiting))
        say(f"(d) repeat {repeat}: {ours[-1]:.0f} kB per waiting session, {plain[-1]:.0f} kB per sleeping plain task")
    return [Figure("d", f"memory per waiting session ({scale.waiting:,})", ours, plain, "kB", AIM)]


def _waiting_sessions(stage: Stage, kind: DatabaseKind, count: int) -> float:
    url = stage.make_database(kind)
    add_group(url, SCRIPT)
    with stage.workers(url) as workers:
        worker = workers.ours("agent", AGENT, count)
        with Ledger(stage.broker) as ledger:
            short = [([session], dict[str, object]()) for session in add_sessions(url, WARM_UP, text="warm up")]
            drain(ledger, stage.broker, [worker], AGENT, "agent.wake", short)
        before = _resident_kb(worker)
        _release(stage, AGENT, "agent.wake", add_sessions(url, count, text="wait"))
        _until_running(url, count)
        return _per_piece(worker, before, count)


def _until_running(url: str, count: int) -> None:
    """Looks once a second: looking costs CPU that the worker needs."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (running := count_running(url)) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {running} of {count} sessions run after {PATIENCE_SECONDS:g} s")
        time.sleep(1)


def _sleeping_tasks(stage: Stage, count: int) -> float:
    with stage.workers() as workers:
        worker = workers.plain("plain", PLAIN, count)
        with Ledger(stage.broker) as ledger:
            short = [([0.01], dict[str, object]())] * WARM_UP
            drain(ledger, stage.broker, [worker], PLAIN, "plain.wait", short)
        before = _resident_kb(worker)
        _release(stage, PLAIN, "plain.wait", [3600.0] * count)
        process = psutil.Process(worker.process.pid)
        wait_until(lambda: process.num_threads() > count, 60, f"{count} sleeping threads")
        return _per_piece(worker, before, count)


def _release(stage: Stage, queue: str, task: str, arguments: list[str] | list[float]) -> None:
    backlog = Backlog(stage.broker, queue)
    backlog.fill(task, [([argument], {}) for argument in arguments])
    backlog.release()


def _per_piece(worker: Child, before: float, count: int) -> float:
    time.sleep(SETTLE_SECONDS)
    per_piece = (_resident_kb(worker) - before) / count
    worker.process.kill()  # politely, it would wait for them and hand each of them over
    worker.process.wait()
    return per_piece


def _resident_kb(worker: Child) -> float:
    return float(psutil.Process(worker.process.pid).memory_info().rss) / 1000
