"""Emptying a full queue: how fast, and at what cost in the worker processes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from bench.backlog import Backlog
from bench.ledger import Ledger
from gateway.supervisor import Child

PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Drain:
    per_second: float
    cpu_ms: float  # of all the workers together, per message


def drain(
    ledger: Ledger,
    broker: str,
    workers: Sequence[Child],
    queue: str,
    task: str,
    calls: Sequence[tuple[list[Any], dict[str, Any]]],
    last_task: str | None = None,
    patience_seconds: float = 90,
) -> Drain:
    """Fill `queue` with calls of `task`, let go, and wait until as many `last_task` have ended."""
    backlog = Backlog(broker, queue)
    backlog.fill(task, calls)
    ledger.forget()
    cpu = _cpu_seconds(workers)
    started = backlog.release()
    ended = ledger.last_end(last_task or task, len(calls), patience_seconds)
    return Drain(len(calls) / (ended - started), (_cpu_seconds(workers) - cpu) * 1000 / len(calls))


def drain_until(
    broker: str,
    workers: Sequence[Child],
    queue: str,
    task: str,
    calls: Sequence[tuple[list[Any], dict[str, Any]]],
    ended: Callable[[], float | None],
) -> Drain:
    """The same for work whose tasks cannot be counted beforehand: `ended` tells when it was done, once it is."""
    backlog = Backlog(broker, queue)
    backlog.fill(task, calls)
    cpu = _cpu_seconds(workers)
    started = backlog.release()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (end := ended()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(calls)} calls of {task} were not done in {PATIENCE_SECONDS} s")
        time.sleep(0.2)
    return Drain(len(calls) / (end - started), (_cpu_seconds(workers) - cpu) * 1000 / len(calls))


class Drains:
    """What was measured, by name. The first of each is the warm-up and is not shown."""

    def __init__(self) -> None:
        self._of: dict[str, list[Drain]] = {}

    def add(self, name: str, measured: Drain) -> None:
        self._of.setdefault(name, []).append(measured)

    def rates(self, ours: str, peer: str) -> tuple[list[float], list[float]]:
        return [d.per_second for d in self._of[ours][1:]], [d.per_second for d in self._of[peer][1:]]

    def costs(self, ours: str, peer: str) -> tuple[list[float], list[float]]:
        return [d.cpu_ms for d in self._of[ours][1:]], [d.cpu_ms for d in self._of[peer][1:]]

    def __str__(self) -> str:
        return ", ".join(f"{name} {d[-1].per_second:.0f}/s {d[-1].cpu_ms:.1f} ms" for name, d in self._of.items())


def _cpu_seconds(workers: Sequence[Child]) -> float:
    times = [psutil.Process(worker.process.pid).cpu_times() for worker in workers]
    return sum(t.user + t.system for t in times)
