"""Beat rings evenly, and what it rings for is taken, whoever's clock is wrong."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine
from celery import Celery
from celery.apps.beat import Beat
from celery.beat import ScheduleEntry, Scheduler, Service
from celery.worker.request import Request

from workers.app import app

TEN_MINUTES = timedelta(minutes=10)
AN_HOUR = timedelta(hours=1)
RINGS = sorted(app.conf.beat_schedule)


@pytest.fixture
def broker() -> Iterator[Celery]:
    """One in this process."""
    made = Celery("here", broker="memory://", set_as_current=False)

    def nothing() -> None: ...

    made.task(name="nothing", shared=False)(nothing)
    yield made
    made.close()


def received(broker: Celery, ring: str, **options: float) -> Request:
    """A ring as the worker gets it."""
    entry = app.conf.beat_schedule[ring]
    broker.send_task(entry["task"], kwargs=entry.get("kwargs"), **entry["options"] | options)
    with broker.connection_for_read() as connection, connection.SimpleQueue("upkeep") as queue:
        message = queue.get(timeout=5)
        message.ack()
        return Request(message, app=broker, task=broker.tasks["nothing"])


@pytest.mark.spec("S5", "S6")
@pytest.mark.parametrize("wrong_by", [TEN_MINUTES, -TEN_MINUTES], ids=["ahead", "behind"])
@pytest.mark.parametrize("ring", RINGS)
def test_a_worker_whose_clock_is_wrong_takes_it(broker: Celery, ring: str, wrong_by: timedelta) -> None:
    request = received(broker, ring)
    with time_machine.travel(datetime.now(UTC) + wrong_by):
        assert not request.maybe_expire()


@pytest.mark.spec("S5")
def test_such_a_worker_throws_away_what_expires_within_its_error(broker: Celery) -> None:
    """Why rings are given an hour: the date in the message is beat's, and is judged by the worker's clock."""
    request = received(broker, "sweep", expires=10.0)
    with time_machine.travel(datetime.now(UTC) + TEN_MINUTES):
        assert request.maybe_expire()


class SilentScheduler(Scheduler):  # type: ignore[misc]  # Celery has no types
    """Notes what it would ring for."""

    producer = None

    def __init__(self, of: Celery) -> None:
        self.rung: list[str] = []
        super().__init__(of)

    def apply_entry(self, entry: ScheduleEntry, producer: object = None) -> None:
        self.rung.append(entry.name)


@pytest.mark.spec("S5", "S6")
@pytest.mark.parametrize("set_by", [-AN_HOUR, AN_HOUR], ids=["back", "forward"])
def test_it_goes_on_evenly_when_its_clock_is_set(set_by: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    started, elapsed = time.monotonic(), 0.0
    monkeypatch.setattr("scheduler.beat.time.monotonic", lambda: started + elapsed)
    scheduler = SilentScheduler(app)
    scheduler.tick()
    with time_machine.travel(datetime.now(UTC) + set_by):
        for second in range(1, 6):
            elapsed = float(second)
            while scheduler.tick() == 0:
                pass
    assert scheduler.rung.count("sweep") == 5


@pytest.mark.spec("S1", "S5")
def test_it_keeps_nothing_and_rings_for_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No schedule file, and no entries of Celery's own: whichever beat is started, wherever, rings the same."""
    monkeypatch.chdir(tmp_path)
    made = Service(app=app, scheduler_cls=Beat(app=app).scheduler_cls).get_scheduler()
    assert sorted(made.schedule) == RINGS
    made.sync()
    made.close()
    assert list(tmp_path.iterdir()) == []
