"""An hour of downtime, and everything is due at once: it is caught up with at the workers' pace. The broker never holds
more than they have room for, who says something meanwhile is answered before the backlog, and nothing is run twice.

The long version has 100,000 due tasks. So many turns would take an hour of two cores, so a part of them is run, with
deaths among it; what nobody has begun by then is taken away."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import celery
import pytest
import redis

from scheduler.ringing import SHARE
from tests.support.processes import Operator, procfile
from tests.support.servers import Valkey
from tests.support.task_rows import EVERY_HOUR, check_runs, count_unsettled, write_tasks

QUEUE = "agent.scripted"
# kombu's Redis lists: the queue's own, and one for each higher priority.
LISTS = (QUEUE, *(f"{QUEUE}\x06\x16{priority}" for priority in (3, 6, 9)))
AGENTS, SLOTS_EACH = 2, 20
SLOTS = AGENTS * SLOTS_EACH
ROOM = int(SLOTS * SHARE)
SWEEPERS = 2
CHAT = "hello"
NOT_BEGUN = "platform_id = 'late' AND status = 'pending' AND turn_id IS NULL AND seq = 1"
SCRIPT = f"""
- when: {CHAT}
  play:
  - answer: hello yourself
- play:
  - wait: 0.2
  - answer: 'done: {{texts}}'
"""


@dataclass(frozen=True)
class Scale:
    due: int
    turns: int  # of them, that are run
    chats: int  # sent meanwhile, one after the other
    kills: int

    @property
    def deaths(self) -> set[int]:
        """After which chats somebody dies."""
        return {self.chats * (kill + 1) // (self.kills + 1) - 1 for kill in range(self.kills)}


SMALL = Scale(due=1_500, turns=150, chats=5, kills=1)
LARGE = Scale(due=100_000, turns=4_000, chats=80, kills=4)


class Watch(threading.Thread):
    """Looks at the broker all the time."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.most = self.most_sweeps = self.looks = 0
        self._client = redis.Redis(port=port)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.002):
            pipeline = self._client.pipeline(transaction=True)
            for name in (*LISTS, "upkeep"):
                pipeline.llen(name)
            *waiting, sweeps = pipeline.execute()
            self.most = max(self.most, sum(waiting))
            self.most_sweeps = max(self.most_sweeps, sweeps)
            self.looks += 1

    def __enter__(self) -> "Watch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join(10)
        self._client.close()


@pytest.fixture
def operator(tmp_path: Path, postgres_database: str) -> Iterator[Operator]:
    broker = Valkey(tmp_path / "valkey")
    broker.start()
    # A ring that nobody took for so long counts as lost: with less, a slow machine would be rung at again and again.
    operator = Operator(tmp_path, postgres_database, broker, LONGSHORE_REPEAT_SECONDS="5")
    yield operator
    operator.close()
    broker.stop()


class Fleet:
    """The Procfile's lines, each twice, with fewer slots; those that sweep deliver as well."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.producer = celery.Celery(broker=operator.broker.url)
        lines = ["messages"] * SWEEPERS + ["agent"] * AGENTS + ["beat", "beat"]
        self.names = [f"{line}{number}" for number, line in enumerate(lines)]
        self.processes = {name: self._start(name) for name in self.names}
        pids = [process.pid for name, process in self.processes.items() if not name.startswith("beat")]
        ready = "SELECT count(*) FROM processes WHERE pid = ANY(%s)"
        operator.wait_for(lambda: operator.value(ready, pids) == len(pids), "the workers to be ready", 60)

    def _start(self, name: str) -> Any:
        line = name.rstrip("0123456789")
        command = procfile()[line].replace(f"{line}@%h", f"{name}@%h")
        command = command.replace("-c 200", f"-c {SLOTS_EACH}").replace("messages,upkeep", "messages,upkeep,delivery")
        return self.operator.start(command, name, ready=False)

    def kill(self, line: str, *, again: bool) -> None:
        """The one of its kind that has lived longest. `again`: a supervisor starts it again."""
        name = next(name for name in self.names if name.startswith(line))
        self.names.append(self.names.pop(self.names.index(name)))
        self.processes[name].kill()
        self.processes[name].wait()
        if again:
            self.processes[name] = self._start(name)

    def chat(self, number: int) -> tuple[float, int]:
        """Say something and wait for the answer. Returns how long it took, and how many tasks began meanwhile."""
        sent = self.operator.value("SELECT statement_timestamp()")
        place = {"agent_group": "demo", "text": CHAT, "thread_id": f"chat{number}"}
        message = str(self.producer.send_task("messages.ingest", kwargs=place, queue="messages").id)
        ended = "SELECT t.ended_at FROM messages_in m JOIN turns t ON t.id = m.turn_id WHERE m.id = %s"
        self.operator.wait_for(lambda: self.operator.value(ended, message), "a chat to be answered", 60)
        answered = self.operator.value(ended, message)
        began = "SELECT count(*) FROM turns WHERE started_at > %s AND started_at < %s AND session_id LIKE 'late-%%'"
        return (answered - sent).total_seconds(), self.operator.value(began, sent, answered)

    def begun(self) -> int:
        return int(self.operator.value("SELECT count(*) FROM turns WHERE session_id LIKE 'late-%%'"))

    def wait_for_turns(self, count: int) -> None:
        self.operator.wait_for(lambda: self.begun() >= count, f"{count} tasks to have begun", 120)


@pytest.mark.spec("S1", "S3", "S5", "S6", "F4")
@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(SMALL, id="small"),
        pytest.param(LARGE, id="large", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_a_backlog_floods_nobody_and_holds_nobody_up(
    operator: Operator, scale: Scale, capsys: pytest.CaptureFixture[str]
) -> None:
    operator.add_group(script=SCRIPT)
    fleet = Fleet(operator)
    idle = [fleet.chat(-number)[0] for number in range(1, 4)]
    write_tasks(operator.database_url, "late", scale.due, -3600, -1, (None, EVERY_HOUR))
    started = time.monotonic()
    chats = []
    with Watch(operator.broker.port) as watch:
        for number in range(scale.chats):
            fleet.wait_for_turns(scale.turns * number // scale.chats + 1)
            chats.append(fleet.chat(number))
            if number in scale.deaths:
                for line in ("agent", "messages", "beat"):
                    fleet.kill(line, again=scale.kills > 1)
        fleet.wait_for_turns(scale.turns)
        begun, seconds = fleet.begun(), time.monotonic() - started
        left = len(operator.rows(f"DELETE FROM messages_in WHERE {NOT_BEGUN} RETURNING id"))
        operator.wait_for(lambda: count_unsettled(operator.database_url, "late") == 0, "what was begun to be ended", 60)

    again = operator.value("SELECT count(*) FROM turns WHERE attempt > 1")
    with capsys.disabled():
        print(
            f"\ncatching up: {scale.due:,} due, {begun} begun in {seconds:.1f} s, {again} in more than one attempt, "
            f"{left:,} left; at most {watch.most} rings of {ROOM} waited ({watch.looks} looks), {watch.most_sweeps} "
            f"sweeps\n  chats: {median(took for took, _ in chats):.3f} s, beside {median(idle):.3f} s when idle: "
            f"{median(took for took, _ in chats) / median(idle):.1f} times; the slowest {max(chats)[0]:.3f} s; at most "
            f"{max(passed for _, passed in chats)} tasks began meanwhile"
        )
    assert left > 0, "the backlog was gone before it was looked at"
    # A chat's own ring may be among them. The sessions of a worker that died are rung for whatever the room is.
    assert 0 < watch.most <= ROOM + SLOTS_EACH + 1
    assert max(passed for _, passed in chats) <= SLOTS + ROOM
    check_runs(operator.database_url, "late")
