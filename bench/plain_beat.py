"""`python -m bench.plain_beat ENTRIES`: the peer of the schedule, Celery's own beat with so many static entries.

A process of its own, because its memory is measured. It is told on stdin how many entries are to be due and how long
it may take to send them, a line of JSON each, and answers with a line: what was sent, and in how many seconds."""
# mypy: disallow-untyped-calls=False

import copy
import gc
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psutil
import redis
from celery.beat import ScheduleEntry, Scheduler
from celery.schedules import crontab

from bench.plain import QUEUES, app

LONG_AGO: Final = timedelta(days=2)


@dataclass(frozen=True)
class Sent:
    count: int
    seconds: float


class Beat:
    """What `celery beat` runs, with the clock in our hands. Every entry is daily, at some minute."""

    def __init__(self, entries: int) -> None:
        before = _memory()
        self._names = [f"task-{number}" for number in range(entries)]
        self._scheduler = Scheduler(app, schedule={}, lazy=True)
        for number, name in enumerate(self._names):
            self._scheduler.schedule[name] = _entry(name, number)
        self._start()
        self._scheduler.old_schedulers = copy.copy(self._scheduler.schedule)
        self.bytes_each = (_memory() - before) / entries

    def send(self, due: int, seconds: float) -> Sent:
        """Let so many of them be due, spread over all, and tick until they are sent or the time is over."""
        step = len(self._names) // due
        long_ago = datetime.now(UTC) - LONG_AGO
        for name in self._names[: due * step : step]:
            self._scheduler.schedule[name].last_run_at = long_ago
        self._start()
        self._scheduler.producer  # noqa: B018 - it connects
        sent, began = 0, time.perf_counter()
        while self._scheduler.tick() == 0:
            sent += 1
            if time.perf_counter() - began > seconds:
                break
        taken = time.perf_counter() - began
        with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
            arrived = client.llen(QUEUES[0])
            client.delete(QUEUES[0])
        assert sent == arrived <= due, f"{sent} entries sent, {arrived} have arrived, {due} were due"
        for name in self._names[: due * step : step]:
            self._scheduler.schedule[name].last_run_at = datetime.now(UTC)
        return Sent(sent, taken)

    def _start(self) -> None:
        """What it does once, when it is started: it works out the next date of each."""
        self._scheduler.populate_heap()


def _entry(name: str, number: int) -> Any:
    later = 2 + number // 60 % 12  # hours: none comes due by itself while this runs
    at = crontab(minute=number % 60, hour=(datetime.now(UTC).hour + later) % 24, app=app)
    place = {"options": {"queue": QUEUES[0], "ignore_result": True}}
    return ScheduleEntry(name, "plain.nothing", schedule=at, args=(name,), app=app, **place)


def _memory() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


class PlainBeat:
    """Such a process, as the bench holds it."""

    def __init__(self, broker: str, entries: int) -> None:
        command = [sys.executable, "-m", "bench.plain_beat", str(entries)]
        self.entries = entries
        environment = os.environ | {"REDIS_URL": broker}
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.bytes_each = float(self._answer()["bytes_each"])

    def send(self, due: int, seconds: float) -> Sent:
        assert self._process.stdin is not None
        print(json.dumps([due, seconds]), file=self._process.stdin, flush=True)
        return Sent(**self._answer())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"plain beat has ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    beat = Beat(int(sys.argv[1]))
    print(json.dumps({"bytes_each": beat.bytes_each}), flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(beat.send(*json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
