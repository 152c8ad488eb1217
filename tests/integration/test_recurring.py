"""Recurring rows: each finished one is followed by the next, from its own date, once, on the terms of its task."""

import asyncio
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from sqlalchemy import delete, event, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models import MessageIn, MessagingGroup, Series, Session, User, UserDm, UserRole
from models.base import now
from models.dead_letters import revive
from models.lookup import short
from scheduler.recurrence import first_at_or_after, jittered, next_after
from scheduler.recurring import discard_missed
from tests.support.fleet import Fleet, MakeFleet
from tests.support.task_runs import add_run, add_session, clock, runs_of
from workers.session_reset import begin_anew

pytestmark = pytest.mark.both_databases

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
EVERY_MINUTE = "* * * * *"


def full_hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


async def add_owner(fleet: Fleet) -> None:
    await fleet.insert(User, {"id": "local:olga", "kind": "local"})
    await fleet.insert(MessagingGroup, {"id": "dm", "channel_type": "local", "platform_id": "olga"})
    await fleet.insert(UserDm, {"user_id": "local:olga", "channel_type": "local", "messaging_group_id": "dm"})
    await fleet.insert(UserRole, {"user_id": "local:olga", "role": "owner"})


def each_day_at(date: datetime) -> str:
    return f"{date.minute} {date.hour} * * *"


async def _daily(fleet: Fleet) -> datetime:
    """A task of each day whose date came an hour ago; returns the date. No other is near, whatever the time is."""
    due = (await clock(fleet) - HOUR).replace(second=0, microsecond=0)
    await fleet.send("look around", kind="task", process_after=due, recurrence=each_day_at(due))
    await fleet.sweep()
    return due


@pytest.mark.spec("S1")
async def test_a_finished_one_is_followed_by_the_next_from_its_own_date(fleet: Fleet) -> None:
    await fleet.add_group()
    due = await _daily(fleet)
    await fleet.settle_down()
    await fleet.sweep()
    first, second = sorted(await fleet.rows(MessageIn), key=lambda row: row.process_after)
    assert (first.status, first.process_after) == ("completed", due)
    assert (second.status, second.process_after) == ("pending", due + DAY)
    assert second.series_id == first.series_id == first.id
    assert second.content == first.content


@pytest.mark.spec("S1", "S5")
async def test_several_sweeps_write_one_next_row(fleet: Fleet) -> None:
    await fleet.add_group()
    await _daily(fleet)
    await fleet.settle_down()
    await asyncio.gather(*(fleet.sweep() for _ in range(4)))
    await fleet.sweep()
    assert len(await fleet.rows(MessageIn)) == 2


@pytest.mark.spec("S1", "S5")
async def test_several_sweepers_write_each_next_row_once(make_fleet: MakeFleet) -> None:
    sweepers = [await make_fleet() for _ in range(3)]
    fleet = sweepers[0]
    await fleet.add_group()
    at = await clock(fleet)
    sessions = [await add_session(fleet) for _ in range(8)]
    series = [
        await add_run(fleet, full_hour(at), ended=at, session_id=session_id, seq=number, platform_id=session_id)
        for session_id in sessions
        for number in (1, 2, 3)
    ]
    await fleet.execute(update(Session).values(message_seq=3))
    await asyncio.gather(*(sweeper.sweep() for sweeper in sweepers for _ in range(2)))
    await fleet.sweep()
    for series_id in series:
        assert [run.scheduled_for for run in await runs_of(fleet, series_id)] == [full_hour(at), full_hour(at) + HOUR]
    for session in await fleet.sessions():
        numbers = [row.seq for row in await fleet.inbox() if row.session_id == session.id]
        assert sorted(numbers) == [1, 2, 3, 4, 5, 6]
        assert session.message_seq == 6


@pytest.mark.spec("S1")
async def test_many_cost_as_many_statements_as_few(fleet: Fleet) -> None:
    await fleet.add_group()
    at = await clock(fleet)

    async def statements(rows: int) -> int:
        for _ in range(rows):
            await add_run(fleet, full_hour(at), ended=at, recurrence="@yearly", terms={"failures": 1})
        seen: list[str] = []

        def note(*call: Any) -> None:
            seen.append(call[2])

        event.listen(fleet.db.engine.sync_engine, "before_cursor_execute", note)
        await fleet.sweep()
        event.remove(fleet.db.engine.sync_engine, "before_cursor_execute", note)
        return len(seen)

    assert await statements(30) == await statements(3)
    assert len(await fleet.rows(MessageIn)) == 66


@pytest.mark.spec("S1", "M9")
async def test_a_run_that_had_to_be_tried_again_does_not_move_the_schedule(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n  - fail: {class: transport}\n    until_attempt: 2\n  - answer: done")
    due = await _daily(fleet)
    assert await fleet.answer_wakes() == ["waiting"]
    await fleet.execute(update(Session).values(resume_after=now(-1)))
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]
    await fleet.sweep()
    assert max(row.process_after for row in await fleet.rows(MessageIn)) == due + DAY


@pytest.mark.spec("S1")
async def test_one_that_was_given_up_or_put_away_does_not_end_its_series(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n  - fail: {class: auth}")
    await _daily(fleet)
    assert await fleet.answer_wakes() == ["failed"]
    await fleet.execute(update(MessageIn).values(status="discarded"))
    await fleet.sweep()
    assert sorted(row.status for row in await fleet.rows(MessageIn)) == ["discarded", "pending"]


@pytest.mark.spec("S1")
async def test_all_that_belongs_to_a_run_goes_along(fleet: Fleet) -> None:
    await fleet.add_group()
    at = await clock(fleet)
    own: dict[str, Any] = {
        "wakes": False,
        "follow_up": "separate",
        "thread_id": "t",
        "sender_id": "7",
        "timezone": "Asia/Kathmandu",
    }
    series_id = await add_run(fleet, full_hour(at), ended=at, **own, content={"prompt": "p", "agent": {"hops": 2}})
    await fleet.sweep()
    first, second = await runs_of(fleet, series_id)
    same = [*own, "kind", "content", "recurrence", "channel_type", "platform_id", "session_id", "agent_group_id"]
    assert {name: getattr(second, name) for name in same} == {name: getattr(first, name) for name in same}
    assert (second.status, second.tries, second.turn_id, second.recurred) == ("pending", 0, None, False)


# --- dates that were missed, or came while it ran ---


@pytest.mark.spec("S3")
async def test_a_late_run_is_made_once_and_the_other_missed_dates_are_passed_over(fleet: Fleet) -> None:
    await fleet.add_group()
    at = await clock(fleet)
    series_id = await add_run(fleet, full_hour(at) - 5 * HOUR)
    await fleet.sweep()
    await fleet.settle_down()
    await fleet.sweep()
    first, second = await runs_of(fleet, series_id)
    assert first.status == "completed"
    assert (second.status, second.scheduled_for) == ("pending", next_after("@hourly", first.status_changed_at))


@pytest.mark.spec("S3")
async def test_every_missed_date_is_made_up_for_if_its_task_asks_for_that(fleet: Fleet) -> None:
    await fleet.add_group()
    first = (await clock(fleet) - HOUR).replace(second=0, microsecond=0) - 3 * DAY
    series_id = await add_run(fleet, first, recurrence=each_day_at(first), terms={"catch_up": "all"})
    for _ in range(5):
        await fleet.sweep()
        await fleet.settle_down()
    runs = await runs_of(fleet, series_id)
    assert [run.scheduled_for for run in runs] == [first + n * DAY for n in range(5)]
    assert [run.status for run in runs] == [*["completed"] * 4, "pending"]


@pytest.mark.spec("S3")
async def test_a_run_that_is_too_late_is_passed_over_if_its_task_asks_for_that(fleet: Fleet) -> None:
    await fleet.add_group()
    date = (await clock(fleet) - HOUR).replace(second=0, microsecond=0)
    daily: dict[str, Any] = {"recurrence": each_day_at(date), "terms": {"catch_up": "skip", "failures": 2}}
    series_id = await add_run(fleet, date, **daily)
    found = await fleet.sweep()
    assert found.wakes == []
    first, second = await runs_of(fleet, series_id)
    assert (first.status, first.error_class, first.turn_id) == ("discarded", None, None)
    assert first.error.startswith("missed: it could not begin within 15 minutes")
    assert (second.status, second.scheduled_for) == ("pending", date + DAY)
    [series] = await fleet.rows(Series)
    assert series.failures == 2  # that was no failure, and no success


@pytest.mark.spec("S3")
@pytest.mark.parametrize(
    "row",
    [
        {"late": 600},
        {"late": 3600, "tries": 1},
        {"late": 3600, "created_at": now(-600)},
        {"late": 3600, "status_changed_at": now(-600)},
        {"late": 3600, "recurrence": None, "recurred": True},
        {"late": 3600, "terms": {"catch_up": "one"}},
        {"late": 3600, "terms": {"catch_up": "all"}},
        {"late": 3600, "terms": None},
    ],
    ids=["not so late", "begun", "written late", "resumed late", "run now", "one", "all", "no terms"],
)
async def test_a_run_that_is_not_to_be_passed_over_is_made(fleet: Fleet, row: dict[str, Any]) -> None:
    await fleet.add_group()
    row = {"terms": {"catch_up": "skip"}} | row
    date = await clock(fleet) - timedelta(seconds=row.pop("late"))
    await add_run(fleet, date, **row)
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]


class Interrupted:
    """A connection on which something happens after its first statement, as if somebody else had been quicker."""

    def __init__(self, conn: AsyncConnection, change: Any) -> None:
        self._conn, self._change = conn, change

    async def execute(self, *given: Any) -> Any:
        result = await self._conn.execute(*given)
        if self._change is not None:
            rows, self._change = self._change, None
            await self._conn.execute(rows)
        return result


@pytest.mark.spec("S3", "T3")
@pytest.mark.parametrize(
    "change",
    [
        update(MessageIn).values(process_after=now(86400)),
        update(MessageIn).values(status_changed_at=now()),
        update(Series).values(catch_up="one"),
    ],
    ids=["another date", "resumed", "other terms"],
)
async def test_a_run_that_is_changed_meanwhile_is_not_passed_over(fleet: Fleet, change: Any) -> None:
    """It was chosen as it was before somebody changed it."""
    await fleet.add_group()
    series_id = await add_run(fleet, await clock(fleet) - HOUR, terms={"catch_up": "skip"})
    await fleet.db.transact(lambda conn: discard_missed(cast(AsyncConnection, Interrupted(conn, change)), 10))
    assert [run.status for run in await runs_of(fleet, series_id)] == ["pending"]


@pytest.mark.spec("S3", "M8")
async def test_a_dead_run_that_is_tried_again_is_not_missed(fleet: Fleet) -> None:
    await fleet.add_group()
    date = await clock(fleet) - HOUR
    dead: dict[str, Any] = {
        "status": "failed",
        "status_changed_at": date,
        "error_class": "auth",
        "recurred": True,
        "tries": 1,
    }
    series_id = await add_run(fleet, date, **dead, terms={"catch_up": "skip"})
    assert await fleet.db.transact(lambda conn: revive(conn, series_id))
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]


@pytest.mark.spec("S3")
async def test_one_that_is_due_once_and_too_late_is_over(fleet: Fleet) -> None:
    await fleet.add_group()
    date = await clock(fleet) - HOUR
    await add_run(fleet, date, recurrence=None, terms={"catch_up": "skip"})
    await fleet.sweep()
    await fleet.sweep()
    assert [row.status for row in await fleet.rows(MessageIn)] == ["discarded"]


@pytest.mark.spec("S3", "S5")
async def test_several_sweepers_pass_over_a_missed_run_once(make_fleet: MakeFleet) -> None:
    sweepers = [await make_fleet() for _ in range(3)]
    fleet = sweepers[0]
    await fleet.add_group()
    date = full_hour(await clock(fleet)) - 3 * HOUR
    series = [await add_run(fleet, date, terms={"catch_up": "skip"}) for _ in range(6)]
    await asyncio.gather(*(sweeper.sweep() for sweeper in sweepers))
    await fleet.sweep()
    for series_id in series:
        assert [run.status for run in await runs_of(fleet, series_id)] == ["discarded", "pending"]


@pytest.mark.spec("S3")
@pytest.mark.parametrize(("overlap", "hours"), [("skip", 3), ("queue", 1)])
async def test_dates_that_came_while_it_ran(fleet: Fleet, overlap: str, hours: int) -> None:
    """It ran for more than two hours."""
    await fleet.add_group()
    date = full_hour(await clock(fleet)) - 10 * HOUR
    run: dict[str, Any] = {"began": date + timedelta(seconds=1), "ended": date + 2 * HOUR + MINUTE}
    series_id = await add_run(fleet, date, **run, terms={"overlap": overlap})
    await fleet.sweep()
    assert (await runs_of(fleet, series_id))[1].scheduled_for == date + hours * HOUR


@pytest.mark.spec("S3")
async def test_jitter_delays_a_run_and_not_those_after_it(fleet: Fleet) -> None:
    await fleet.add_group()
    at = full_hour(await clock(fleet))
    delayed: dict[str, Any] = {
        "process_after": at + 40 * MINUTE,
        "ended": at + 45 * MINUTE,
        "terms": {"jitter_seconds": 3000},
    }
    series = [await add_run(fleet, at, **delayed) for _ in range(8)]
    await fleet.sweep()
    following = [(await runs_of(fleet, series_id))[1] for series_id in series]
    assert {run.scheduled_for for run in following} == {at + HOUR}
    delays = {run.process_after - run.scheduled_for for run in following}
    assert all(timedelta() <= delay < timedelta(seconds=3000) for delay in delays)
    assert len(delays) > 1


@pytest.mark.spec("S2", "S3")
async def test_a_date_that_came_during_a_long_jitter_is_not_lost(fleet: Fleet) -> None:
    """The next date is worked out from the one it had, not from when it began."""
    await fleet.add_group()
    at = full_hour(await clock(fleet)) - 5 * HOUR
    delayed: dict[str, Any] = {"process_after": at + 70 * MINUTE, "ended": at + 75 * MINUTE, "began": at + 70 * MINUTE}
    terms: dict[str, Any] = {"jitter_seconds": 5000, "overlap": "queue"}
    series_id = await add_run(fleet, at, **delayed, terms=terms, created_at=at - HOUR)
    await fleet.sweep()
    assert sorted(run.scheduled_for for run in await runs_of(fleet, series_id)) == [at, at + HOUR]


# --- failures ---


@pytest.mark.spec("S3")
@pytest.mark.parametrize("status", ["failed", "discarded"])
async def test_dates_soon_after_a_failure_are_passed_over(fleet: Fleet, status: str) -> None:
    """The third failure in a row: four minutes."""
    await fleet.add_group()
    ended = full_hour(await clock(fleet)) + timedelta(seconds=5)
    failure: dict[str, Any] = {"status": status, "error_class": "auth", "error": "no key", "recurrence": EVERY_MINUTE}
    series_id = await add_run(fleet, full_hour(ended), ended=ended, **failure, terms={"failures": 2})
    await fleet.sweep()
    assert (await runs_of(fleet, series_id))[1].scheduled_for == first_at_or_after(EVERY_MINUTE, ended + 4 * MINUTE)
    assert [series.failures for series in await fleet.rows(Series)] == [3]
    await fleet.execute(delete(MessageIn).where(MessageIn.id != series_id))
    await fleet.execute(update(MessageIn).values(recurred=False, status="completed"))
    await fleet.sweep()
    assert (await runs_of(fleet, series_id))[1].scheduled_for == full_hour(ended) + MINUTE
    assert [series.failures for series in await fleet.rows(Series)] == [0]


@pytest.mark.spec("S3")
async def test_a_task_that_fails_again_and_again_is_paused_and_people_are_told_once(make_fleet: MakeFleet) -> None:
    fleet, other = await make_fleet(repeat_seconds=60), await make_fleet(repeat_seconds=60)
    await fleet.add_group()
    await add_owner(fleet)
    at = await clock(fleet)
    failure: dict[str, Any] = {"status": "failed", "error_class": "auth", "error": "no key", "thread_id": "t"}
    series_id = await add_run(fleet, full_hour(at), ended=at, **failure, terms={"failures": 2, "pause_after": 3})
    found = await asyncio.gather(fleet.sweep(), other.sweep())
    await fleet.sweep()
    first, second = await runs_of(fleet, series_id)
    assert (first.recurred, second.status) == (True, "paused")
    assert second.error == "paused: it failed 3 times in a row (the last time: auth: no key)"
    assert (await fleet.rows(Series))[0].failures == 3
    said, told = await fleet.outbox()
    assert (said.platform_id, said.thread_id) == (first.platform_id, "t")
    assert said.content["text"] == (
        f"I have paused a scheduled task, because it failed 3 times in a row: `look around` (task {short(series_id)})"
    )
    assert (told.platform_id, said.idempotency_key) == ("olga", f"{series_id}:paused:{first.id}")
    assert "the last time: auth: no key" in told.content["text"]
    assert f"longshore tasks resume {short(series_id)}" in told.content["text"]
    assert sorted(id for one in found for id in one.deliveries) == sorted([said.id, told.id])
    assert (await fleet.sessions())[0].message_seq == 4


@pytest.mark.spec("S3")
@pytest.mark.parametrize("terms", [{"catch_up": "all"}, {"overlap": "queue"}], ids=["missed", "overlapping"])
async def test_dates_that_are_made_up_for_wait_after_a_failure_too(fleet: Fleet, terms: dict[str, Any]) -> None:
    """The second failure in a row: two minutes. Each keeps its date."""
    await fleet.add_group()
    date = full_hour(await clock(fleet)) - 10 * HOUR
    began, ended = (date, date + 5 * HOUR) if "overlap" in terms else (date + 5 * HOUR, date + 5 * HOUR)
    failure: dict[str, Any] = {"status": "failed", "error_class": "auth", "error": "no key", "began": began}
    never: dict[str, Any] = {"failures": 1, "pause_after": 0, "jitter_seconds": 30}
    series_id = await add_run(fleet, date, ended=ended, **failure, terms=terms | never)
    await fleet.sweep()
    second = (await runs_of(fleet, series_id))[1]
    assert (second.scheduled_for, second.process_after) == (date + HOUR, ended + 2 * MINUTE)
    failed = {"status": "failed", "error_class": "auth", "status_changed_at": ended + 3 * MINUTE}
    await fleet.execute(update(MessageIn).where(MessageIn.id == second.id).values(created_at=ended, **failed))
    await fleet.sweep()
    third = (await runs_of(fleet, series_id))[2]
    assert (third.scheduled_for, third.process_after) == (date + 2 * HOUR, ended + 7 * MINUTE)
    done = {"status": "completed", "status_changed_at": ended + 8 * MINUTE}
    await fleet.execute(update(MessageIn).where(MessageIn.id == third.id).values(created_at=ended + 3 * MINUTE, **done))
    await fleet.sweep()
    fourth = next(run for run in await runs_of(fleet, series_id) if run.status == "pending")
    assert fourth.scheduled_for == date + 3 * HOUR
    assert fourth.process_after == jittered(fourth.scheduled_for, series_id, 30), "it is well again, and makes up"


@pytest.mark.spec("S3")
@pytest.mark.parametrize("pause_after", [0, 5])
async def test_a_task_that_may_fail_more_often_goes_on(fleet: Fleet, pause_after: int) -> None:
    await fleet.add_group()
    at = await clock(fleet)
    failure: dict[str, Any] = {"status": "failed", "error_class": "auth", "error": "no key"}
    terms = {"failures": 3, "pause_after": pause_after}
    series_id = await add_run(fleet, full_hour(at), ended=at, **failure, terms=terms)
    await fleet.sweep()
    assert (await runs_of(fleet, series_id))[1].status == "pending"
    assert await fleet.outbox() == []


@pytest.mark.spec("S3")
async def test_failures_are_counted_from_the_turns_themselves(fleet: Fleet) -> None:
    """A task without terms of its own: five in a row."""
    await fleet.add_group(script="- play:\n  - fail: {class: auth}")
    at = await clock(fleet)
    series_id = await add_run(fleet, full_hour(at), recurrence="@yearly")
    for _ in range(5):
        await fleet.execute(update(MessageIn).where(MessageIn.status == "pending").values(process_after=now(-1)))
        await fleet.sweep()
        assert await fleet.answer_wakes() == ["failed"]
        await fleet.sweep()
    runs = await runs_of(fleet, series_id)
    assert sorted(run.status for run in runs) == ["failed"] * 5 + ["paused"]


@pytest.mark.spec("S2", "S3")
async def test_a_task_whose_dates_cannot_be_worked_out_is_paused_and_holds_up_nobody(fleet: Fleet) -> None:
    await fleet.add_group()
    await add_owner(fleet)
    at = await clock(fleet)
    broken = await add_run(fleet, full_hour(at), ended=at, timezone="Mars/Phobos")
    sound = await add_run(fleet, full_hour(at), ended=at)
    await fleet.sweep()
    await fleet.sweep()
    assert [run.status for run in await runs_of(fleet, broken)] == ["completed", "paused"]
    assert [run.status for run in await runs_of(fleet, sound)] == ["completed", "pending"]
    said, told = await fleet.outbox()
    assert "because its next date cannot be worked out" in said.content["text"]
    assert "'Mars/Phobos' is not a time zone" in told.content["text"]


# --- odd moments ---


@pytest.mark.spec("S1", "S2")
async def test_a_date_that_another_run_has_is_passed_over(fleet: Fleet) -> None:
    await fleet.add_group()
    at = await clock(fleet)
    date = full_hour(at)
    series_id = await add_run(fleet, date, ended=at)
    extra: dict[str, Any] = {"series_id": series_id, "recurrence": None, "recurred": True, "scheduled_for": None}
    await add_run(fleet, date + HOUR, ended=at, **extra)
    await add_run(fleet, date + 2 * HOUR, ended=at, **extra)
    await fleet.sweep()
    runs = await runs_of(fleet, series_id)
    assert [run.status for run in runs] == ["completed", "completed", "completed", "pending"]
    assert runs[-1].scheduled_for == date + 3 * HOUR


@pytest.mark.spec("S1", "S5")
async def test_a_series_that_has_its_next_row_gets_no_second(fleet: Fleet) -> None:
    await fleet.add_group()
    at = await clock(fleet)
    series_id = await add_run(fleet, full_hour(at), ended=at)
    await add_run(fleet, full_hour(at) + HOUR, series_id=series_id)
    await fleet.sweep()
    assert [(run.status, run.recurred) for run in await runs_of(fleet, series_id)] == [
        ("completed", True),
        ("pending", False),
    ]


@pytest.mark.spec("S1", "T4")
async def test_a_run_of_a_session_that_was_closed_is_followed_where_it_goes_on(fleet: Fleet) -> None:
    await fleet.add_group()
    at = await clock(fleet)
    session_id = await add_session(fleet)
    series_id = await add_run(fleet, full_hour(at), ended=at, session_id=session_id)
    await fleet.execute(update(Session).values(status="closed"))
    await fleet.sweep()
    [active] = [session for session in await fleet.sessions() if session.status == "active"]
    assert (await runs_of(fleet, series_id))[1].session_id == active.id != session_id


@pytest.mark.spec("S3", "T4")
async def test_a_task_of_a_conversation_that_begins_anew_keeps_its_terms(fleet: Fleet) -> None:
    """Its last run is over and not followed yet."""
    await fleet.add_group()
    await add_owner(fleet)
    at = full_hour(await clock(fleet)) + timedelta(seconds=5)  # no wait after a failure lasts until the next hour
    session_id = await add_session(fleet)
    failure: dict[str, Any] = {"status": "failed", "error_class": "auth", "error": "no key"}
    failing = await add_run(fleet, full_hour(at), ended=at, session_id=session_id, **failure, terms={"pause_after": 1})
    sound = await add_run(fleet, full_hour(at), ended=at, session_id=session_id, seq=2, terms={"jitter_seconds": 900})
    anew = await fleet.db.transact(lambda conn: begin_anew(conn, session_id))
    assert anew is not None
    await fleet.sweep()
    for series_id, status in ((failing, "paused"), (sound, "pending")):
        first, second = await runs_of(fleet, series_id)
        assert (first.session_id, first.recurred) == (session_id, True)
        assert (second.session_id, second.status, second.scheduled_for) == (
            anew.session_id,
            status,
            full_hour(at) + HOUR,
        )
    assert second.process_after == jittered(second.scheduled_for, sound, 900)
    assert sorted(row.id for row in await fleet.outbox()) == sorted(anew.deliveries)
    assert len(anew.deliveries) == 2
