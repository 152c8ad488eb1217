"""What has a date is run on time and once, whoever's clock is wrong, however many beats and sweepers there are."""

import re
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.processes import ROOT, Operator, Process, procfile
from tests.support.task_rows import EVERY_HOUR, EVERY_MINUTE, check_runs, count_unsettled, write_tasks

TASKS = 60
RECURRENCES = (None, EVERY_MINUTE, EVERY_HOUR)
TEN_MINUTES = 600
BEGUN = "SELECT count(*) FROM messages_in WHERE kind = 'task' AND turn_id IS NOT NULL"
SCRIPT = "- play:\n  - wait: 0.3\n  - answer: 'done: {texts}'"


def start(operator: Operator, line: str, name: str, clock: int = 0, queues: str = "") -> Process:
    """A line of the Procfile under a name of its own, on a machine whose clock is off by so many seconds. `queues`:
    what it serves besides its own."""
    command = procfile()[line].replace(f"{line}@%h", f"{name}@%h").replace(" -c ", f"{queues} -c ")
    if clock == 0:
        return operator.start(command, name, ready=False)
    wrong = f"{sys.executable} -m tests.support.wrong_clock {clock:+d} {command}"
    return operator.start(wrong, name, ready=False, PYTHONPATH=str(ROOT))


def wait_until_ready(operator: Operator, workers: list[Process]) -> None:
    ready = "SELECT count(*) FROM processes WHERE pid = ANY(%s)"
    pids = [worker.pid for worker in workers]
    operator.wait_for(lambda: operator.value(ready, pids) == len(pids), "the workers to be ready", 60)


def clock_of(operator: Operator, name: str) -> float:
    """How far the clock of a process is off, to the minute: what it wrote beside what its first line was written at."""
    log = operator.folder / f"{name}.log"
    found = re.search(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d+ INFO", log.read_text(), re.MULTILINE)
    assert found is not None, log.read_text()
    said = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return round((said - datetime.now(UTC)) / timedelta(minutes=1))


def check_in_the_end(operator: Operator) -> None:
    operator.wait_for(lambda: count_unsettled(operator.database_url, "tasks") == 0, "all tasks to be run and followed")
    check_runs(operator.database_url, "tasks")


def kill(*processes: Process) -> None:
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.spec("S1", "S2", "S5", "S6")
@pytest.mark.parametrize(
    "beats",
    [
        pytest.param((TEN_MINUTES, -TEN_MINUTES), id="beats-with-wrong-clocks"),
        pytest.param((0, 0), id="beats", marks=pytest.mark.long),
    ],
)
def test_wrong_clocks_make_nothing_early_double_or_lost(operator: Operator, beats: tuple[int, int]) -> None:
    operator.add_group(script=SCRIPT)
    workers = {
        (line, clock): start(operator, line, f"{line}{clock:+d}", clock)
        for line in ("messages", "agent")
        for clock in (TEN_MINUTES, -TEN_MINUTES)
    }
    first_beat, _ = (start(operator, "beat", f"beat{number}", clock) for number, clock in enumerate(beats))
    wait_until_ready(operator, list(workers.values()))

    write_tasks(operator.database_url, "tasks", TASKS, 2, 8, RECURRENCES)
    assert "done: hello" in operator.cli("send", "demo", "hello").stdout
    operator.wait_for(lambda: operator.value(BEGUN) >= TASKS // 4, "some tasks to have begun")
    # What is left: workers ten minutes ahead, and a beat that may be ten minutes behind.
    kill(first_beat, workers["messages", -TEN_MINUTES], workers["agent", -TEN_MINUTES])
    check_in_the_end(operator)

    for line, clock in workers:
        assert clock_of(operator, f"{line}{clock:+d}") == pytest.approx(clock / 60, abs=2)
    for number, clock in enumerate(beats):
        assert clock_of(operator, f"beat{number}") == pytest.approx(clock / 60, abs=2)


@pytest.mark.spec("S3", "S5", "S6")
def test_after_ten_minutes_without_beat_each_task_is_run_once(operator: Operator) -> None:
    operator.add_group(script=SCRIPT)
    write_tasks(operator.database_url, "tasks", TASKS, -TEN_MINUTES, 0, RECURRENCES)
    workers = [start(operator, "messages", f"worker{number}", queues=",agent.scripted,delivery") for number in range(3)]
    wait_until_ready(operator, workers)
    assert "done: hello" in operator.cli("send", "demo", "hello").stdout
    assert count_unsettled(operator.database_url, "tasks") == TASKS
    assert operator.value(BEGUN) == 0, "nobody was to look for them yet"

    beat = start(operator, "beat", "beat")
    operator.wait_for(lambda: operator.value(BEGUN), "tasks to be run")
    kill(beat, workers[0])
    start(operator, "beat", "next-beat")
    check_in_the_end(operator)
