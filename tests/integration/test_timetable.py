"""Tasks as operators and agents see and change them: which one is meant, what it looks like, and changes that come at
once, also while the sweep is just writing the next run."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models import MessageIn, Session, Turn
from models.base import new_id, now
from models.conversation import Usage
from models.dead_letters import revive
from models.lookup import short
from models.series import DEFAULT_TERMS, Series
from models.tasks import write_next
from scheduler.recurrence import jittered, next_after
from tests.support.database_locks import wait_for_blocked_query
from tests.support.fleet import Fleet, MakeFleet
from tests.support.task_runs import add_run, add_session, clock, runs_of
from workers import timetable
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import accept
from workers.refusals import RefusedError
from workers.timetable import EVERYTHING, Changes, Scope, Task

pytestmark = pytest.mark.both_databases

HOUR = timedelta(hours=1)
sqlite_only = pytest.mark.parametrize("database_kind", ["sqlite"])


@pytest.fixture
async def fleet(make_fleet: MakeFleet) -> Fleet:
    fleet = await make_fleet()
    await fleet.add_group()
    return fleet


async def find(fleet: Fleet, handle: str, scope: Scope = EVERYTHING) -> Task:
    return await fleet.db.read(lambda conn: timetable.find_task(conn, scope, handle))


async def listed(fleet: Fleet, scope: Scope = EVERYTHING) -> list[Task]:
    return await fleet.db.read(lambda conn: timetable.list_tasks(conn, scope))


async def change(fleet: Fleet, do: Callable[[AsyncConnection, Task], Awaitable[Any]], handle: str) -> Any:
    """As the command line does it: find it and change it, in one transaction."""

    async def work(conn: AsyncConnection) -> Any:
        return await do(conn, await timetable.find_task(conn, EVERYTHING, handle))

    return await fleet.db.transact(work)


async def update_task(fleet: Fleet, handle: str, **changes: Any) -> str:
    named: Changes = changes  # type: ignore[assignment]
    said = await change(fleet, lambda conn, task: timetable.update(conn, task, named), handle)
    return str(said)


async def set_row(fleet: Fleet, row_id: str, **values: Any) -> None:
    await fleet.execute(update(MessageIn).where(MessageIn.id == row_id).values(**values))


async def put_under_way(fleet: Fleet, row_id: str, status: str = "processing", turn: str = "running") -> None:
    """Somebody runs it, or it is tried again, or it waits for a person."""
    [row] = [row for row in await fleet.rows(MessageIn) if row.id == row_id]
    values = {"id": new_id(), "session_id": row.session_id, "number": 1, "provider": "scripted", "lease_token": 1}
    await fleet.execute(insert(Turn).values(**values, status=turn))
    await set_row(fleet, row_id, status=status, turn_id=values["id"], tries=1, status_changed_at=now())


async def series_rows(fleet: Fleet) -> dict[str, Any]:
    return {row.id: row for row in await fleet.rows(Series)}


# --- Which one is meant --------------------------------------------------------------------------------------------


@pytest.mark.spec("T3")
async def test_any_id_of_a_task_that_ever_was_reaches_its_live_row(fleet: Fleet) -> None:
    """The first, one in the middle, the last, and the end of each."""
    at = await clock(fleet)
    first = await add_run(fleet, at - 3 * HOUR, ended=at - 2 * HOUR)
    ids = [first]
    for _ in range(2):
        await fleet.sweep()
        [waiting] = [row for row in await runs_of(fleet, first) if row.status == "pending"]
        ids.append(waiting.id)
        await set_row(fleet, waiting.id, status="completed", status_changed_at=now())
    await fleet.sweep()
    [live] = [row for row in await runs_of(fleet, first) if row.status == "pending"]
    own = Scope(live.session_id)
    for handle in (*ids, live.id, *map(short, [*ids, live.id])):
        for scope in (EVERYTHING, own):
            task = await find(fleet, handle, scope)
            assert (task.id, task.scheduled, task.handle) == (first, live.scheduled_for, short(first))
    assert len(await listed(fleet)) == 1


@pytest.mark.spec("T3", "F8")
async def test_a_scope_sees_only_its_own(fleet: Fleet) -> None:
    at = await clock(fleet)
    await fleet.add_group("other")
    ours, theirs = await add_session(fleet), await add_session(fleet, "other")
    mine = await add_run(fleet, at + HOUR, session_id=ours)
    foreign = await add_run(fleet, at + 2 * HOUR, session_id=theirs)
    past = await add_run(fleet, at - HOUR, ended=at, session_id=theirs, series_id=foreign, recurred=True, seq=2)
    assert [task.id for task in await listed(fleet)] == [mine, foreign]
    assert [(task.id, task.agent) for task in await listed(fleet, Scope(ours))] == [(mine, "demo")]
    [group] = {row.agent_group_id for row in await fleet.sessions() if row.id == theirs}
    assert [(task.id, task.agent) for task in await listed(fleet, Scope(agent_group_id=group))] == [(foreign, "other")]
    for handle in (foreign, short(foreign), past, short(past)):
        assert (await find(fleet, handle)).id == foreign
        with pytest.raises(RefusedError, match=f"there is no scheduled task '{handle}' in this conversation"):
            await find(fleet, handle, Scope(ours))


@pytest.mark.spec("T3")
async def test_what_cannot_be_meant(fleet: Fleet) -> None:
    at = await clock(fleet)
    one = await add_run(fleet, at + HOUR, id="a-00000000-1234", series_id="a-00000000-1234")
    await add_run(fleet, at + HOUR, id="b-00000000-1234", series_id="b-00000000-1234")
    with pytest.raises(RefusedError, match="may be one of several tasks; give the whole id: a-00000000-1234, b-0000"):
        await find(fleet, "00000000-1234")
    assert (await find(fleet, "a-00000000-1234")).id == "a-00000000-1234"
    for handle in ("", "123", "%%%%", "____", "nothing", "\x00\ud800nothing"):
        with pytest.raises(RefusedError, match="there is no scheduled task"):
            await find(fleet, handle)
        with pytest.raises(RefusedError, match="is no task"):
            await fleet.db.read(lambda conn, handle=handle: timetable.find_past(conn, handle))  # type: ignore[misc]
    await change(fleet, timetable.cancel, "a-00000000-1234")
    assert one
    with pytest.raises(RefusedError, match="there is no scheduled task"):
        await find(fleet, "a-00000000-1234")


# --- What it looks like --------------------------------------------------------------------------------------------


@pytest.mark.spec("T3", "S3")
async def test_a_task_is_one_however_many_rows_it_has(fleet: Fleet) -> None:
    at = await clock(fleet)
    session_id = await add_session(fleet)
    terms = {"failures": 2, "daily_usd": 1.5}
    task_id = await add_run(
        fleet, at - 3 * HOUR, ended=at - 2 * HOUR, session_id=session_id, terms=terms, recurred=True
    )
    rest: dict[str, Any] = {"session_id": session_id, "series_id": task_id}
    why: dict[str, Any] = {"status": "failed", "error": "it broke", "error_class": "transport"}
    failed = await add_run(fleet, at - 2 * HOUR, ended=at - HOUR, seq=2, recurred=True, **rest, **why)
    await add_run(fleet, at + HOUR, seq=3, **rest)
    extra: dict[str, Any] = {"recurrence": None, "recurred": True, "scheduled_for": None}
    await add_run(fleet, at - HOUR / 2, seq=4, **rest, **extra)
    [task] = await listed(fleet)
    assert (task.id, task.scheduled, task.state, task.goes_on) == (task_id, at + HOUR, "pending", True)
    assert (task.failures, task.terms.daily_usd, task.prompt) == (2, 1.5, "look around")
    assert (task.agent, task.channel_type, task.platform_id) == ("demo", "local", session_id)
    assert task.last is not None
    assert (task.last.message_id, task.last.status, task.last.error) == (failed, "failed", "it broke")


@pytest.mark.spec("T3")
@pytest.mark.parametrize(("status", "turn"), [("processing", "running"), ("pending", "waiting"), ("pending", "parked")])
async def test_a_run_that_has_begun_is_under_way_until_it_is_over(fleet: Fleet, status: str, turn: str) -> None:
    at = await clock(fleet)
    task_id = await add_run(fleet, at - HOUR / 2, recurrence="@yearly")
    await put_under_way(fleet, task_id, status, turn)
    [task] = await listed(fleet)
    assert (task.state, task.under_way, task.goes_on) == ("running now", True, True)
    assert task.scheduled == next_after("@yearly", at)

    assert await change(fleet, timetable.cancel, task_id) == "runs now, and this is its last run"
    [row] = await runs_of(fleet, task_id)
    assert (row.status, row.recurred) == (status, True), "it is not taken from whoever runs it"
    [task] = await listed(fleet)
    assert (task.state, task.scheduled) == ("running now, for the last time", None)
    await set_row(fleet, task_id, status="completed")
    await fleet.sweep()
    assert await listed(fleet) == []


@pytest.mark.spec("T3", "F5")
async def test_the_runs_so_far(fleet: Fleet) -> None:
    at = await clock(fleet)
    session_id = await add_session(fleet, message_seq=9)
    task_id = await add_run(
        fleet, at - 2 * HOUR, began=at - 2 * HOUR, ended=at - HOUR, session_id=session_id, recurred=True
    )
    [row] = await runs_of(fleet, task_id)
    used = {"session_id": session_id, "turn_id": row.turn_id, "agent_group_id": row.agent_group_id, "provider": "x"}
    await fleet.insert(Usage, *({**used, "id": new_id(), "cost_usd": cost} for cost in (0.25, 0.5)))
    rest: dict[str, Any] = {"session_id": session_id, "series_id": task_id}
    missed: dict[str, Any] = {"status": "discarded", "error": "missed: nobody was there"}
    await add_run(fleet, at - HOUR, ended=at, seq=2, recurred=True, **rest, **missed)
    await add_run(fleet, at + HOUR, seq=3, **rest)
    await change(fleet, timetable.run_now, task_id)
    [extra] = [row for row in await runs_of(fleet, task_id) if row.scheduled_for is None]
    await set_row(fleet, extra.id, status="completed")
    task = await find(fleet, task_id)
    runs = await fleet.db.read(lambda conn: timetable.runs_of(conn, task, 20))
    assert [(run.status, run.extra) for run in runs] == [
        ("completed", True),
        ("discarded", False),
        ("completed", False),
    ]
    assert (runs[1].scheduled, runs[1].began, runs[1].error) == (at - HOUR, None, "missed: nobody was there")
    assert (runs[2].began, runs[2].ended, runs[2].usd) == (at - 2 * HOUR, at - HOUR, 0.75)
    assert len(await fleet.db.read(lambda conn: timetable.runs_of(conn, task, 1))) == 1


# --- Changes -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S3", "T3")
async def test_resume_forgets_failures_and_goes_on_with_the_next_date_to_come(fleet: Fleet) -> None:
    at = await clock(fleet)
    task_id = await add_run(fleet, at - 9 * HOUR, status="paused", error="paused: it failed", terms={"failures": 5})
    [task] = await listed(fleet)
    assert (task.state, task.error) == ("paused after 5 failures in a row", "paused: it failed")
    said = await change(fleet, timetable.resume, task_id)
    assert said.startswith("goes on: At the start of every hour (UTC). Next runs:\n- ")
    assert said.count("\n- ") == 5
    [row] = await runs_of(fleet, task_id)
    assert (row.status, row.error) == ("pending", None)
    assert row.scheduled_for in {next_after("@hourly", moment) for moment in (at, await clock(fleet))}
    assert (await series_rows(fleet))[task_id].failures == 0
    assert await change(fleet, timetable.resume, task_id) == "is not paused"


@pytest.mark.spec("S3", "T3")
async def test_what_comes_once_and_was_paused_past_its_date_runs_although_late_ones_are_skipped(fleet: Fleet) -> None:
    at = await clock(fleet)
    once: dict[str, Any] = {"recurrence": None, "status": "paused", "terms": {"catch_up": "skip"}}
    task_id = await add_run(fleet, at - 9 * HOUR, **once)
    await change(fleet, timetable.resume, task_id)
    await fleet.sweep()
    assert [session_id for session_id, _ in fleet.bells.wakes] == [(await runs_of(fleet, task_id))[0].session_id]
    [row] = await runs_of(fleet, task_id)
    assert (row.status, row.scheduled_for) == ("pending", at - 9 * HOUR)


@pytest.mark.spec("T3", "S3")
async def test_a_change_keeps_what_it_does_not_name(fleet: Fleet) -> None:
    at = await clock(fleet)
    task_id = await add_run(fleet, at + HOUR, terms={"script": "true", "catch_up": "all"}, sender_id="ann")
    await update_task(fleet, task_id, prompt="look up")
    task = await find(fleet, task_id)
    assert (task.prompt, task.scheduled, task.sender_id) == ("look up", at + HOUR, "ann")
    assert (task.terms.script, task.terms.catch_up) == ("true", "all")
    said = await update_task(fleet, task_id, daily_usd=2.0, overlap="queue")
    assert "(missed dates: each is made up for; dates that come while it runs: run afterwards; at most 2 USD" in said
    task = await find(fleet, task_id)
    assert (task.terms.script, task.terms.catch_up, task.terms.overlap) == ("true", "all", "queue")
    assert (task.prompt, task.terms.daily_usd) == ("look up", 2.0)
    await update_task(fleet, task_id, script="", daily_usd=None, catch_up="one", overlap="skip")
    assert (await find(fleet, task_id)).terms == DEFAULT_TERMS


@pytest.mark.spec("T3", "S3")
async def test_a_task_has_terms_of_its_own_only_if_they_are_not_as_usual(fleet: Fleet) -> None:
    at = await clock(fleet)
    task_id = await add_run(fleet, at + HOUR, recurrence=None, series_id=None)
    await update_task(fleet, task_id, prompt="look up", catch_up="one")
    assert await series_rows(fleet) == {}
    assert [row.series_id for row in await fleet.rows(MessageIn)] == [None]
    await update_task(fleet, task_id, catch_up="skip")
    assert [row.id for row in await fleet.rows(Series)] == [task_id]
    assert [row.series_id for row in await fleet.rows(MessageIn)] == [task_id]


@pytest.mark.spec("S2", "T3")
async def test_jitter_moves_when_it_begins_and_not_its_date(fleet: Fleet) -> None:
    at = await clock(fleet)
    task_id = await add_run(fleet, at + HOUR)
    said = await update_task(fleet, task_id, jitter_seconds=600)
    assert "begins up to 10 minutes later" in said
    [row] = await runs_of(fleet, task_id)
    assert (row.scheduled_for, row.process_after) == (at + HOUR, jittered(at + HOUR, task_id, 600))
    await update_task(fleet, task_id, prompt="look up")
    assert (await runs_of(fleet, task_id))[0].process_after == row.process_after
    await update_task(fleet, task_id, jitter_seconds=0)
    assert (await runs_of(fleet, task_id))[0].process_after == at + HOUR


@pytest.mark.spec("T3", "S3")
async def test_a_change_from_within_a_run_is_for_the_next_and_makes_up_for_what_was_missed(fleet: Fleet) -> None:
    at = await clock(fleet)
    date = at.replace(minute=0, second=0, microsecond=0) - 3 * HOUR
    terms = {"catch_up": "all", "failures": 3}
    task_id = await add_run(fleet, date, created_at=date, terms=terms, sender_id="ann")
    await put_under_way(fleet, task_id)
    assert (await update_task(fleet, task_id, pause_after=9)).startswith("is changed from its next run on: ")
    assert len(await runs_of(fleet, task_id)) == 1, "nothing of the row has changed"
    await update_task(fleet, task_id, prompt="look up")
    running, following = await runs_of(fleet, task_id)
    assert (running.content["prompt"], running.status, running.recurred) == ("look around", "processing", True)
    assert (following.content["prompt"], following.scheduled_for) == ("look up", date + HOUR)
    assert (following.sender_id, following.status, following.recurred) == ("ann", "pending", False)
    series = (await series_rows(fleet))[task_id]
    assert (series.pause_after, series.failures) == (9, 0)
    await set_row(fleet, task_id, status="completed")
    await fleet.sweep()
    assert len(await runs_of(fleet, task_id)) == 2


@pytest.mark.spec("T3", "S1")
async def test_a_run_cannot_be_followed_by_itself(fleet: Fleet) -> None:
    """A series has one row for a date: a second would not be written, and the series would end without a word."""
    at = await clock(fleet)
    task_id = await add_run(fleet, at)
    await put_under_way(fleet, task_id)
    with pytest.raises(RefusedError, match="that task has had a run for "):
        await update_task(fleet, task_id, process_after=at)
    [row] = await runs_of(fleet, task_id)
    assert not row.recurred


@pytest.mark.spec("T3", "S3")
async def test_a_change_after_a_run_sees_to_what_follows_it_first(fleet: Fleet) -> None:
    """The sweep has not come by: the run that failed counts all the same."""
    at = await clock(fleet)
    why: dict[str, Any] = {"status": "failed", "error": "it broke", "error_class": "transport"}
    task_id = await add_run(fleet, at - HOUR, ended=at, terms={"failures": 1}, **why)
    await update_task(fleet, task_id, prompt="look up")
    failed, following = await runs_of(fleet, task_id)
    assert (failed.content["prompt"], failed.recurred) == ("look around", True)
    assert (following.content["prompt"], following.status) == ("look up", "pending")
    assert (await series_rows(fleet))[task_id].failures == 2
    await fleet.sweep()
    assert len(await runs_of(fleet, task_id)) == 2


@pytest.mark.spec("T3")
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"recurrence": "* * * * * *"}, "at most once a minute"),
        ({"timezone": "Mars"}, "is not a time zone"),
        ({"process_after": "an hour ago"}, "has passed: it is 20"),
        ({"catch_up": "some"}, "catch-up is one of skip, one, all"),
        ({"overlap": "some"}, "overlap is one of skip, queue"),
        ({"jitter_seconds": -1}, "jitter is from 0 to 86400 seconds"),
        ({"pause_after": 1001}, "pause-after is from 0 "),
        ({"daily_usd": float("nan")}, "daily USD is from 0.01 to 1,000,000"),
        ({"daily_usd": 0.0}, "daily USD is from 0.01 to 1,000,000"),
        ({"daily_usd": 0.009}, "daily USD is from 0.01 to 1,000,000"),
        ({"script": "x" * 20_001}, "the script has 20001 characters; at most 20000 are taken"),
        ({"script": "echo \x00"}, "characters in it that are no text"),
        ({"script": "echo \ud800"}, "characters in it that are no text"),
        ({"model": "x" * 101}, "is no name"),
        ({"provider": "a\nb"}, "is no name"),
    ],
)
@sqlite_only
async def test_a_change_that_makes_no_sense_changes_nothing(
    fleet: Fleet, changes: dict[str, Any], complaint: str
) -> None:
    at = await clock(fleet)
    task_id = await add_run(fleet, at + HOUR)
    before = await runs_of(fleet, task_id)
    if "process_after" in changes:
        changes = {"process_after": at - HOUR}
    with pytest.raises(RefusedError, match=complaint):
        await update_task(fleet, task_id, prompt="look up", **changes)
    assert (await runs_of(fleet, task_id), await series_rows(fleet)) == (before, {})


# --- Run now -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("T3", "S1")
@pytest.mark.parametrize("status", ["pending", "paused"])
async def test_run_now_is_one_run_more_and_moves_no_date(fleet: Fleet, status: str) -> None:
    at = await clock(fleet)
    task_id = await add_run(fleet, at + 5 * HOUR, status=status, sender_id="ann", terms={"provider": "echo"})
    session_id, provider = await change(fleet, timetable.run_now, task_id)
    assert provider == "echo"
    with pytest.raises(RefusedError, match="waits to begin already"):
        await change(fleet, timetable.run_now, task_id)
    await fleet.execute(update(Series).values(provider=None))
    extra, planned = await runs_of(fleet, task_id)
    assert (extra.recurrence, extra.recurred, extra.scheduled_for, extra.sender_id) == (None, True, None, "ann")
    assert (planned.status, planned.scheduled_for) == (status, at + 5 * HOUR)
    assert await fleet.wake(session_id) == "completed"
    await fleet.sweep()
    assert [row.status for row in await runs_of(fleet, task_id)] == ["completed", status]
    [task] = await listed(fleet)
    assert task.scheduled == at + 5 * HOUR
    assert task.last is not None
    assert task.last.extra
    assert (await find(fleet, extra.id)).id == task_id
    await change(fleet, timetable.run_now, task_id)
    await change(fleet, timetable.cancel, task_id)
    assert [row.status for row in await runs_of(fleet, task_id)] == ["completed", "discarded", "discarded"]


@pytest.mark.spec("T3")
async def test_run_now_of_what_comes_once(fleet: Fleet) -> None:
    at = await clock(fleet)
    task_id = await add_run(fleet, at + HOUR, recurrence=None, series_id=None)
    session_id, provider = await change(fleet, timetable.run_now, task_id)
    assert provider == "scripted"
    assert await fleet.wake(session_id) == "completed"
    extra, planned = await runs_of(fleet, task_id)
    assert (extra.status, planned.status, planned.id) == ("completed", "pending", task_id)


# --- At once -------------------------------------------------------------------------------------------------------


def live_rows(rows: list[Any]) -> list[Any]:
    return [row for row in rows if row.status in ("pending", "paused") and not row.recurred]


@pytest.mark.spec("T3", "S1", "S5")
@pytest.mark.parametrize("under_way", [False, True])
async def test_changes_at_once_and_sweeps_leave_one_next_run_with_all_of_them(
    make_fleet: MakeFleet, fleet: Fleet, under_way: bool
) -> None:
    at = await clock(fleet)
    other = await make_fleet()
    for _ in range(3):
        task_id = await add_run(fleet, at - HOUR, ended=None if under_way else at)
        if under_way:
            await put_under_way(fleet, task_id)
        await asyncio.gather(
            update_task(fleet, task_id, prompt="look up"),
            other.sweep(),
            update_task(other, task_id, timezone="Europe/Vienna"),
            change(fleet, timetable.pause, task_id),
            update_task(other, task_id, overlap="queue"),
            fleet.sweep(),
            update_task(fleet, task_id, pause_after=7),
        )
        await other.sweep()
        rows = await runs_of(fleet, task_id)
        [live] = live_rows(rows)
        assert len(rows) == 2
        assert (live.content["prompt"], live.timezone, live.status) == ("look up", "Europe/Vienna", "paused")
        series = (await series_rows(fleet))[task_id]
        assert (series.overlap, series.pause_after) == ("queue", 7)
        if under_way:  # only one turn is open in a session: the next round has one of its own
            await set_row(fleet, task_id, status="completed")
        await change(fleet, timetable.cancel, task_id)


@pytest.mark.spec("T3", "S5")
async def test_a_task_that_is_cancelled_while_the_sweep_follows_it_is_over(make_fleet: MakeFleet, fleet: Fleet) -> None:
    at = await clock(fleet)
    other = await make_fleet()
    for _ in range(6):
        task_id = await add_run(fleet, at - HOUR, ended=at)
        await asyncio.gather(other.sweep(), change(fleet, timetable.cancel, task_id), fleet.sweep())
        await other.sweep()
        assert live_rows(await runs_of(fleet, task_id)) == []


@pytest.mark.spec("T3", "S5")
@pytest.mark.parametrize("database_kind", ["postgresql"])  # SQLite has one writer at a time
async def test_whoever_changes_a_task_waits_for_whoever_is_at_it(fleet: Fleet) -> None:
    """A sweep has locked the session and is just writing the next row; the change comes to that one."""
    at = await clock(fleet)
    task_id = await add_run(fleet, at - HOUR, ended=at)
    task = await find(fleet, task_id)
    [row] = await runs_of(fleet, task_id)
    locked, go_on = asyncio.Event(), asyncio.Event()

    async def sweeping(conn: AsyncConnection) -> None:
        await conn.execute(update(Session).where(Session.id == row.session_id).values(last_active=now()))
        locked.set()
        await go_on.wait()
        await write_next(conn, row, row.session_id, at + 5 * HOUR)

    sweeper = asyncio.create_task(fleet.db.transact(sweeping))
    await locked.wait()
    named: Changes = {"prompt": "look up"}
    changing = asyncio.create_task(fleet.db.transact(lambda conn: timetable.update(conn, task, named)))
    await wait_for_blocked_query(fleet)
    go_on.set()
    await sweeper
    assert (await changing).startswith("is changed: ")
    _, following = await runs_of(fleet, task_id)
    assert (following.content["prompt"], following.scheduled_for) == ("look up", at + 5 * HOUR)


@pytest.mark.spec("T3")
async def test_a_task_that_went_on_in_another_session_is_changed_there(fleet: Fleet) -> None:
    """The conversation began anew after the task was found."""
    at = await clock(fleet)
    task_id = await add_run(fleet, at + HOUR)
    task = await find(fleet, task_id)
    new = await add_session(fleet)
    await fleet.execute(update(Session).where(Session.id == task.session_id).values(status="closed"))
    await set_row(fleet, task_id, session_id=new)
    assert await fleet.db.transact(lambda conn: timetable.pause(conn, task)) == "is paused"
    assert [row.status for row in await runs_of(fleet, task_id)] == ["paused"]
    await change(fleet, timetable.cancel, task_id)
    with pytest.raises(RefusedError, match="is over"):
        await fleet.db.transact(lambda conn: timetable.pause(conn, task))


@pytest.mark.spec("T3")
async def test_an_old_run_that_is_tried_again_is_not_mistaken_for_the_task(fleet: Fleet) -> None:
    at = await clock(fleet)
    session_id = await add_session(fleet)
    old = await add_run(fleet, at - HOUR, ended=at, status="failed", session_id=session_id)
    await fleet.sweep()
    await fleet.db.transact(lambda conn: revive(conn, old))
    assert [row.status for row in await runs_of(fleet, old)] == ["pending", "pending"]
    [task] = await listed(fleet)
    assert task.scheduled is not None
    assert task.scheduled > at
    await update_task(fleet, old, prompt="look up")
    assert [row.content["prompt"] for row in await runs_of(fleet, old)] == ["look around", "look up"]


@pytest.mark.spec("T3")
async def test_an_ended_series_whose_last_run_is_tried_again_can_be_made_to_go_on(fleet: Fleet) -> None:
    """What is promised is kept: the run is followed."""
    at = await clock(fleet)
    over = await add_run(fleet, at - HOUR, ended=at, status="failed", recurred=True)
    await fleet.db.transact(lambda conn: revive(conn, over))
    await update_task(fleet, over, prompt="look up")
    assert not (await find(fleet, over)).goes_on, "nobody has asked for that"
    assert "Next runs:" in await update_task(fleet, over, recurrence="@daily")
    assert (await find(fleet, over)).goes_on
    await set_row(fleet, over, status="completed", status_changed_at=now())
    await fleet.sweep()
    assert [row.status for row in await runs_of(fleet, over)] == ["completed", "pending"]


# --- Producers -----------------------------------------------------------------------------------------------------


async def take(fleet: Fleet, script: str | None = None, from_outside: bool = False, **fields: Any) -> str:
    incoming = parse_incoming({"agent_group": "demo", "text": "look around", "kind": "task"} | fields)
    runtime = fleet.runtime
    accepted = await accept(
        fleet.db, runtime.registry, runtime.settings, incoming, script=script, from_outside=from_outside
    )
    accepted.ring(fleet.bells)
    return accepted.message_id


@pytest.mark.spec("S1", "S2", "G1")
async def test_a_producers_recurring_task_begins_with_its_next_date(fleet: Fleet) -> None:
    before = await clock(fleet)
    task_id = await take(fleet, recurrence="0 9 * * *", timezone="Europe/Vienna")
    [row] = await fleet.rows(MessageIn)
    dates = {next_after("0 9 * * *", at, "Europe/Vienna") for at in (before, await clock(fleet))}
    assert row.scheduled_for in dates
    assert (row.process_after, row.series_id, row.timezone) == (row.scheduled_for, task_id, "Europe/Vienna")
    assert fleet.bells.wakes == []
    assert await series_rows(fleet) == {}


@pytest.mark.spec("S3", "G1")
async def test_a_producer_says_how_a_task_is_run(fleet: Fleet) -> None:
    at = await clock(fleet)
    terms = {"catch_up": "all", "overlap": "queue", "jitter_seconds": 300, "pause_after": 2, "daily_usd": 0.5}
    terms |= {"provider": "openai", "model": "large"}
    task_id = await take(fleet, process_after=at + HOUR, terms=terms)
    [row] = await fleet.rows(MessageIn)
    due = jittered(at + HOUR, task_id, 300)
    assert (row.scheduled_for, row.process_after, row.series_id) == (at + HOUR, due, task_id)
    task = await find(fleet, task_id)
    assert {name: getattr(task.terms, name) for name in terms} == terms
    assert (task.terms.script, task.goes_on, task.provider) == (None, False, "openai")


@pytest.mark.spec("S3", "G1")
async def test_terms_without_a_date_are_for_now(fleet: Fleet) -> None:
    task_id = await take(fleet, terms={"daily_usd": 3.0})
    [row] = await fleet.rows(MessageIn)
    assert (row.series_id, row.scheduled_for, row.recurrence) == (task_id, None, None)
    assert (await series_rows(fleet))[task_id].daily_usd == 3.0
    assert len(fleet.bells.wakes) == 1
    await take(fleet)
    assert len(await series_rows(fleet)) == 1, "as usual needs no row"


@pytest.mark.spec("S4", "G1")
async def test_a_script_comes_from_the_operator_at_the_command_line(fleet: Fleet) -> None:
    task_id = await take(fleet, script="true\n", recurrence="@yearly")
    assert (await series_rows(fleet))[task_id].script == "true\n"
    assert "script" not in (await fleet.rows(MessageIn))[0].content
    with pytest.raises(RefusedError, match="a script needs kind task"):
        await take(fleet, script="true", kind="chat")
    with pytest.raises(RefusedError, match="the script has 20001 characters"):
        await take(fleet, script="x" * 20_001)


@pytest.mark.spec("S4", "C5")
@sqlite_only
async def test_how_a_task_is_run_is_not_for_those_outside_to_say(fleet: Fleet) -> None:
    for given in ({"terms": {"daily_usd": 5.0}}, {"script": "true"}):
        with pytest.raises(RefusedError, match="a task is for the operator to send"):
            await take(fleet, from_outside=True, channel_type="fake", platform_id="x", sender_id="eve", **given)
    assert (await fleet.rows(MessageIn), await series_rows(fleet)) == ([], {})


@pytest.mark.spec("S3", "G1")
@sqlite_only
async def test_a_provider_nobody_has_is_refused_where_it_is_said(fleet: Fleet) -> None:
    with pytest.raises(RefusedError, match="there is no provider 'oracle' here; installed: acp, anthropic, "):
        await take(fleet, recurrence="@daily", terms={"provider": "oracle"})
    assert await fleet.rows(MessageIn) == []


@pytest.mark.spec("M1", "S3")
async def test_the_same_task_sent_twice_is_taken_once(fleet: Fleet) -> None:
    fields: dict[str, Any] = {"recurrence": "@yearly", "message_id": "backup", "terms": {"jitter_seconds": 60}}
    assert await take(fleet, **fields) == await take(fleet, **fields)
    assert (len(await fleet.rows(MessageIn)), len(await series_rows(fleet))) == (1, 1)
