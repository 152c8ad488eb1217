"""Tasks an agent gives itself: schedule, list, cancel, pause, resume, update, also from within a task's own run."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from sqlalchemy import delete, update

from adapters.registry import Drivers, Registry
from models import AgentGroup, MessageIn, Series, Session, Step
from models.base import now
from models.lookup import short
from scheduler.words import when
from tests.support.fleet import Fleet, MakeFleet
from tests.support.forgetful_provider import ForgetfulProvider
from tests.support.tool_calls import (
    TOMORROW,
    WATER,
    YEARLY,
    Call,
    fetch_answer,
    fetch_tasks,
    fleet,
    make_calls,
    read_task_id,
    run_due_task,
    script_calls,
    tool_registry,
)
from workers import turn
from workers.opening import OpenedTurn, open_next
from workers.timetable.making import MAX_TASKS
from workers.toolbox import JournaledToolBox

__all__ = ["fleet"]

LIST: Call = ("list_tasks", {})


@pytest.mark.spec("T3", "S1", "D5")
async def test_a_task_is_a_message_to_the_same_conversation_with_a_date(fleet: Fleet) -> None:
    said = await make_calls(fleet, WATER, sender_id="ann", platform_id="garden", thread_id="t1")
    [task] = await fetch_tasks(fleet)
    [chat] = [row for row in await fleet.inbox() if row.kind == "chat"]
    assert said.startswith(f"scheduled as task {short(task.id)}: {when(TOMORROW, 'UTC')}, in ")
    assert (task.status, task.process_after, task.content) == ("pending", TOMORROW, {"prompt": "water the plants"})
    assert (task.session_id, task.sender_id, task.seq) == (chat.session_id, "ann", 2)
    assert (task.channel_type, task.platform_id, task.thread_id) == ("local", "garden", "t1")
    assert (task.recurrence, task.series_id, task.scheduled_for) == (None, None, TOMORROW)
    [step] = [step for step in await fleet.rows(Step) if step.name == "schedule_task"]
    assert step.id == task.id

    await fleet.sweep()
    assert fleet.bells.wakes == [], "nothing is due yet"
    assert await run_due_task(fleet, LIST) == "There are no scheduled tasks in this conversation."
    [answer] = [row for row in await fleet.outbox() if row.in_reply_to == task.id]
    assert (answer.platform_id, answer.thread_id) == ("garden", "t1")
    await fleet.sweep()
    assert len(await fetch_tasks(fleet)) == 1, "it was for once"


@pytest.mark.spec("T3", "S1")
async def test_a_recurring_task_goes_on_and_is_known_by_its_first_id(fleet: Fleet) -> None:
    first = read_task_id(await make_calls(fleet, YEARLY))
    [task] = await fetch_tasks(fleet)
    assert (task.recurrence, task.timezone, task.series_id) == ("@yearly", "Europe/Vienna", task.id)
    await run_due_task(fleet)
    await fleet.sweep()
    done, following = sorted(await fetch_tasks(fleet), key=lambda row: row.status)
    assert (done.status, following.status, following.series_id) == ("completed", "pending", task.id)
    for handle in (first, task.id, short(following.id), following.id):
        assert await make_calls(fleet, ("pause_task", {"taskId": handle})) == (
            f"task {first} is paused; resume_task lets it run again"
        )
        await make_calls(fleet, ("resume_task", {"taskId": handle}))
    assert (await make_calls(fleet, ("cancel_task", {"task_id": first}))) == f"task {first} is cancelled"
    await fleet.sweep()
    assert [row.status for row in await fetch_tasks(fleet)].count("pending") == 0
    assert len(await fetch_tasks(fleet)) == 2, "no next one is written"


@pytest.mark.spec("T3")
async def test_list_shows_what_waits(fleet: Fleet) -> None:
    assert await make_calls(fleet, LIST) == "There are no scheduled tasks in this conversation."
    once = read_task_id(await make_calls(fleet, ("schedule_task", WATER[1] | {"prompt": "a\nlong " + "word " * 40})))
    again = read_task_id(await make_calls(fleet, YEARLY))
    await make_calls(fleet, ("pause_task", {"taskId": again}))
    head, *lines = (await make_calls(fleet, LIST)).splitlines()
    assert head == "id | next run | how often | state | what"
    cells = {line[:8]: line.split(" | ") for line in lines}
    assert set(cells) == {once, again}
    assert cells[once][1].startswith(f"{when(TOMORROW, 'UTC')}, in ")
    assert cells[once][2:4] == ["Once", "pending"]
    assert cells[once][4].startswith("a long word")
    assert len(cells[once][4]) == 80
    assert cells[again][2:] == ["At 00:00 on January 1", "paused", "water the plants"]
    assert " CET, in " in cells[again][1] or " CEST, in " in cells[again][1]


@pytest.mark.spec("T3", "S2", "S3")
async def test_a_recurrence_alone_says_when_and_terms_say_how(fleet: Fleet) -> None:
    asked = {"prompt": "look", "recurrence": " 0 9 * * 1-5 ", "timezone": "Europe/Vienna"}
    terms = {"catchUp": "all", "overlap": "queue", "jitterSeconds": 120, "pauseAfter": 3, "dailyUsd": 1.5}
    said = await make_calls(fleet, ("schedule_task", asked | terms))
    head, *runs, conditions = said.splitlines()
    assert head.endswith(": At 09:00 on Monday through Friday (Europe/Vienna). Next runs:")
    assert len(runs) == 5
    assert all(", 09:00 CE" in run and run.endswith("(begins up to 2 minutes later)") for run in runs)
    assert conditions == (
        "(missed dates: each is made up for; dates that come while it runs: run afterwards; "
        "pauses after 3 failures in a row; at most 1.5 USD a day)"
    )
    [task] = await fetch_tasks(fleet)
    assert task.scheduled_for <= task.process_after < task.scheduled_for + timedelta(seconds=120)
    assert (task.scheduled_for.astimezone(ZoneInfo("Europe/Vienna")).hour, task.recurrence) == (9, "0 9 * * 1-5")
    [series] = await fleet.rows(Series)
    assert (series.id, series.catch_up, series.overlap, series.pause_after) == (task.id, "all", "queue", 3)
    assert (series.jitter_seconds, series.daily_usd, series.script, series.provider) == (120, 1.5, None, None)
    assert (await make_calls(fleet, ("schedule_task", asked | terms))).startswith("that is already scheduled as task")
    assert (await make_calls(fleet, ("schedule_task", asked))).startswith("scheduled as task"), (
        "on other terms it is another"
    )
    assert len(await fleet.rows(Series)) == 1, "as usual needs no row"


@pytest.mark.spec("T3", "S3")
async def test_an_update_changes_the_terms_it_names(fleet: Fleet) -> None:
    task = read_task_id(await make_calls(fleet, YEARLY))
    await make_calls(fleet, ("update_task", {"taskId": task, "catchUp": "skip", "dailyUsd": 2}))
    said = await make_calls(fleet, ("update_task", {"taskId": task, "pauseAfter": 3, "dailyUsd": 1}))
    terms = "missed dates: none is made up for; pauses after 3 failures in a row; at most 1 USD a day"
    assert said.endswith(f"({terms})")
    [series] = await fleet.rows(Series)
    assert (series.catch_up, series.pause_after, series.daily_usd) == ("skip", 3, 1.0)
    assert f"| pending; {terms} | water" in await make_calls(fleet, LIST)
    assert (await fetch_tasks(fleet))[0].scheduled_for == TOMORROW, "no other rhythm, no other date"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"processAfter": "2031-01-31T09:00:00"}, "does not say in which zone"),
        ({"processAfter": "tomorrow"}, "is not an ISO 8601 timestamp"),
        ({"processAfter": "2020-01-31T09:00:00Z"}, "has passed: it is 20"),
        ({"processAfter": "9999-01-31T09:00:00Z"}, "between the years"),
        ({"recurrence": "now and then"}, "is not a cron expression"),
        ({"recurrence": "* * * * * *"}, "at most once a minute"),
        ({"recurrence": "0 0 30 2 *"}, "is not a cron expression"),
        ({"timezone": "Mars/Olympus"}, "is not a time zone"),
        ({"processAfter": None}, "say when it runs: give processAfter, or a recurrence, or both"),
        ({"catchUp": "sometimes"}, "schedule_task: catchUp: "),
        ({"overlap": "run"}, "schedule_task: overlap: "),
        ({"jitterSeconds": -1}, "schedule_task: jitterSeconds: "),
        ({"jitterSeconds": 86_401}, "schedule_task: jitterSeconds: "),
        ({"pauseAfter": -1}, "schedule_task: pauseAfter: "),
        ({"dailyUsd": 0}, "schedule_task: dailyUsd: "),
        ({"dailyUsd": 0.009}, "schedule_task: dailyUsd: Input should be greater than or equal to 0.01"),
        ({"provider": "echo"}, "there is no parameter provider"),
        ({"model": "large"}, "there is no parameter model"),
        ({"prompt": "  "}, "the prompt is empty"),
        ({"prompt": ""}, "schedule_task: prompt: "),
        ({"prompt": "x" * 20_001}, "schedule_task: prompt: "),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"])  # no row is looked at
@pytest.mark.spec("T3")
async def test_what_cannot_be_scheduled_is_refused_with_a_reason(
    fleet: Fleet, arguments: dict[str, Any], complaint: str
) -> None:
    assert complaint in await make_calls(fleet, ("schedule_task", WATER[1] | arguments))
    assert await fetch_tasks(fleet) == []


@pytest.mark.spec("T3")
async def test_there_is_an_end_to_how_many(fleet: Fleet) -> None:
    await make_calls(fleet, WATER)
    [task] = await fetch_tasks(fleet)
    copy = dict(task._mapping)
    await fleet.insert(
        MessageIn, *(copy | {"id": f"copy-{n}", "seq": 1000 + n, "content": {"prompt": f"{n}"}} for n in range(99))
    )
    said = await make_calls(fleet, YEARLY)
    assert f"there are already {MAX_TASKS} tasks" in said
    await make_calls(fleet, ("cancel_task", {"taskId": task.id}))
    assert "scheduled as task" in await make_calls(fleet, YEARLY)


@pytest.mark.spec("T3", "M9")
async def test_an_attempt_that_begins_anew_schedules_nothing_twice(fleet: Fleet) -> None:
    """With its journal, because the call is found finished; without it, because the same task is there already."""
    script = yaml.safe_dump(
        [{"play": [{"tool": WATER[0], "with": WATER[1]}, {"crash": True, "until_attempt": 2}, {"answer": "{result}"}]}]
    )
    await fleet.execute(update(AgentGroup).values(config={"provider_options": {"script": script}}))
    await fleet.send()
    assert await fleet.answer_wakes() == ["waiting"]
    [message] = [row for row in await fleet.inbox() if row.kind == "chat"]
    await fleet.execute(update(Session).values(resume_after=now(-1)))
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]
    assert (await fetch_answer(fleet, message.id)).startswith("scheduled as task")
    assert len(await fetch_tasks(fleet)) == 1
    assert (await make_calls(fleet, WATER)).startswith("that is already scheduled as task")
    assert len(await fetch_tasks(fleet)) == 1


@pytest.mark.parametrize(("minutes", "tasks"), [(1.5, 1), (6, 2)])
@pytest.mark.spec("T3", "M9")
async def test_an_attempt_that_computes_its_date_anew_schedules_nothing_twice(
    make_fleet: MakeFleet, minutes: float, tasks: int
) -> None:
    fleet = await make_fleet(Registry(providers=Drivers("provider", made={"scripted": ForgetfulProvider()})))
    await fleet.add_group()
    name, arguments = WATER
    later = datetime.fromisoformat(arguments["processAfter"]) + timedelta(minutes=minutes)
    failing = [{"tool": name, "with": arguments}, {"fail": {"class": "transport"}, "until_attempt": 2}]
    anew = [{"tool": name, "with": arguments | {"processAfter": later.isoformat()}}, {"answer": "{result}"}]
    for play, outcome in ((failing, "waiting"), (anew, "completed")):
        options = {"provider_options": {"script": yaml.safe_dump([{"play": play}])}}
        await fleet.execute(update(AgentGroup).values(config=options))
        if outcome == "waiting":
            accepted = await fleet.send()
        await fleet.execute(update(Session).values(resume_after=None))
        assert await fleet.wake(accepted.session_id) == outcome
    assert len(await fetch_tasks(fleet)) == tasks


@pytest.mark.spec("T3")
async def test_a_call_that_lost_its_worker_is_made_by_the_next(
    make_fleet: MakeFleet, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its intent is on record, its result is not: nothing of it was written."""

    async def dies(*_: Any) -> Any:
        raise RuntimeError("the worker dies here")

    with monkeypatch.context() as patched:
        patched.setattr(JournaledToolBox, "_run", dies)
        await script_calls(fleet, WATER)
        accepted = await fleet.send()
        assert await fleet.answer_wakes() == ["waiting"]
    assert await fetch_tasks(fleet) == []
    other = await make_fleet(tool_registry())
    await fleet.execute(update(Session).values(resume_after=now(-1)))
    await other.sweep()
    assert await other.answer_wakes() == ["completed"]
    assert (await fetch_answer(fleet, accepted.message_id)).startswith("scheduled as task")
    assert len(await fetch_tasks(fleet)) == 1


@pytest.mark.parametrize("database_kind", ["sqlite"])
@pytest.mark.spec("T3", "S1")
async def test_the_clock_is_the_one_that_dates_are_compared_with(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database's, although the worker's own is an hour behind it."""

    async def opened_ahead(*given: Any) -> Any:
        opened = await open_next(*given)
        return replace(opened, at=opened.at + timedelta(hours=1)) if isinstance(opened, OpenedTurn) else opened

    monkeypatch.setattr(turn, "open_next", opened_ahead)
    told = await make_calls(fleet, ("clock", {"timezone": "Asia/Tokyo"}))
    read = datetime.strptime(told, "%A %Y-%m-%d %H:%M:%S JST").replace(tzinfo=ZoneInfo("Asia/Tokyo"))
    assert read - datetime.now(UTC) > timedelta(minutes=50)


# --- Pause and resume --------------------------------------------------------------------------------------------


@pytest.mark.spec("T3")
async def test_a_paused_task_does_not_run(fleet: Fleet) -> None:
    task = read_task_id(await make_calls(fleet, WATER))
    await make_calls(fleet, ("pause_task", {"taskId": task}))
    assert await make_calls(fleet, ("pause_task", {"taskId": task})) == f"task {task} is paused already"
    minute_ago = {"process_after": now(-60), "scheduled_for": now(-60)}
    await fleet.execute(update(MessageIn).where(MessageIn.kind == "task").values(**minute_ago))
    await fleet.sweep()
    assert fleet.bells.wakes == []
    assert "goes on" in await make_calls(fleet, ("resume_task", {"taskId": task}))
    await script_calls(fleet, answer="watered")
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"], "its date has passed: it runs at once"
    [row] = await fetch_tasks(fleet)
    assert (row.status, await fetch_answer(fleet, row.id)) == ("completed", "watered")


@pytest.mark.spec("T3", "S1")
async def test_a_recurring_task_does_not_make_up_for_a_pause(fleet: Fleet) -> None:
    task = read_task_id(await make_calls(fleet, ("schedule_task", WATER[1] | {"recurrence": "@hourly"})))
    await make_calls(fleet, ("pause_task", {"taskId": task}))
    week_ago = {"process_after": now(-7 * 86400), "scheduled_for": now(-7 * 86400)}
    await fleet.execute(update(MessageIn).where(MessageIn.kind == "task").values(**week_ago))
    before = datetime.now(UTC)
    assert "goes on" in await make_calls(fleet, ("resume_task", {"taskId": task}))
    [row] = await fetch_tasks(fleet)
    assert (row.status, row.process_after.minute) == ("pending", 0)
    assert before < row.process_after <= datetime.now(UTC) + timedelta(hours=1)
    assert await make_calls(fleet, ("resume_task", {"taskId": task})) == f"task {task} is not paused"


# --- Update ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("T3")
async def test_an_update_changes_what_it_names(fleet: Fleet) -> None:
    task = read_task_id(await make_calls(fleet, WATER))
    later = TOMORROW + timedelta(days=2)
    change = {"taskId": task, "prompt": "water the roses", "processAfter": later.isoformat()}
    assert "is changed" in await make_calls(fleet, ("update_task", change))
    [row] = await fetch_tasks(fleet)
    assert (row.content, row.process_after, row.recurrence) == ({"prompt": "water the roses"}, later, None)

    await make_calls(fleet, ("update_task", {"taskId": task, "recurrence": "0 9 * * *", "timezone": "Europe/Vienna"}))
    [row] = await fetch_tasks(fleet)
    assert (row.recurrence, row.timezone, row.series_id) == ("0 9 * * *", "Europe/Vienna", row.id)
    assert (row.process_after, row.content) == (later, {"prompt": "water the roses"})

    await make_calls(fleet, ("update_task", {"taskId": task, "recurrence": "0 8 * * *", "timezone": "UTC"}))
    [row] = await fetch_tasks(fleet)
    assert row.process_after.hour == 8, "another rhythm begins with its own next date"

    await make_calls(fleet, ("update_task", {"taskId": task, "recurrence": ""}))
    [row] = await fetch_tasks(fleet)
    assert row.recurrence is None
    await run_due_task(fleet)
    await fleet.sweep()
    assert len(await fetch_tasks(fleet)) == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({}, "nothing to change"),
        ({"recurrence": "never"}, "is not a cron expression"),
        ({"timezone": "Nowhere"}, "is not a time zone"),
        ({"processAfter": "2020-01-01T00:00:00Z"}, "has passed"),
        ({"processAfter": "2031-01-01T00:00:00"}, "does not say in which zone"),
        ({"catchUp": "never"}, "update_task: catchUp: "),
        ({"dailyUsd": -1}, "update_task: dailyUsd: "),
        ({"dailyUsd": 0.009}, "daily USD is from 0.01 to 1,000,000"),
        ({"provider": "echo"}, "there is no parameter provider"),
        ({"prompt": " "}, "the prompt is empty"),
        ({"status": "completed"}, "update_task: there is no parameter status; it takes taskId"),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"])  # other tests update on both
@pytest.mark.spec("T3")
async def test_an_update_that_makes_no_sense_changes_nothing(
    fleet: Fleet, change: dict[str, Any], complaint: str
) -> None:
    task = read_task_id(await make_calls(fleet, YEARLY))
    before = await fetch_tasks(fleet)
    assert complaint in await make_calls(fleet, ("update_task", {"taskId": task} | change))
    assert await fetch_tasks(fleet) == before


@pytest.mark.spec("T3")
async def test_a_task_that_is_not_there(fleet: Fleet) -> None:
    task = read_task_id(await make_calls(fleet, WATER))
    await make_calls(fleet, ("cancel_task", {"taskId": task}))
    for tool in ("cancel_task", "pause_task", "resume_task"):
        for handle in (task, "12345678", "%%%%%%%%", "________"):
            assert f"there is no scheduled task {handle!r}" in await make_calls(fleet, (tool, {"taskId": handle}))


@pytest.mark.spec("T3")
async def test_an_end_that_fits_several_is_not_guessed(fleet: Fleet) -> None:
    await make_calls(fleet, WATER)
    [task] = await fetch_tasks(fleet)
    copy = dict(task._mapping) | {"seq": 1000}
    await fleet.insert(MessageIn, copy | {"id": f"x{task.id[1:]}"})
    said = await make_calls(fleet, ("cancel_task", {"taskId": short(task.id)}))
    assert "may be one of several tasks; give the whole id" in said
    assert await make_calls(fleet, ("cancel_task", {"taskId": task.id})) == f"task {short(task.id)} is cancelled"


# --- From within the task's own run ------------------------------------------------------------------------------


@pytest.mark.spec("T3")
async def test_a_run_can_end_its_series(fleet: Fleet) -> None:
    task = read_task_id(await make_calls(fleet, YEARLY))
    said = await run_due_task(fleet, ("cancel_task", {"taskId": task}))
    assert said == f"task {task} runs now, and this is its last run"
    await fleet.sweep()
    [row] = await fetch_tasks(fleet)
    assert row.status == "completed"


@pytest.mark.spec("T3")
async def test_a_run_can_change_and_pause_what_follows(fleet: Fleet) -> None:
    task = read_task_id(await make_calls(fleet, YEARLY))
    said = await run_due_task(fleet, ("update_task", {"taskId": task, "prompt": "look at the roses"}))
    assert said.startswith(f"task {task} is changed from its next run on")
    await fleet.sweep()
    done, following = sorted(await fetch_tasks(fleet), key=lambda row: row.status)
    assert (done.status, done.content["prompt"]) == ("completed", "water the plants")
    assert (following.status, following.content["prompt"]) == ("pending", "look at the roses")

    said = await run_due_task(fleet, ("pause_task", {"taskId": task}), LIST)
    assert "| paused | look at the roses" in said
    await fleet.sweep()
    assert sorted(row.status for row in await fetch_tasks(fleet)) == ["completed", "completed", "paused"]
    await make_calls(fleet, ("resume_task", {"taskId": task}))
    assert sorted(row.status for row in await fetch_tasks(fleet)) == ["completed", "completed", "pending"]


@pytest.mark.spec("T3")
async def test_a_run_can_take_its_recurrence_away(fleet: Fleet) -> None:
    task = read_task_id(await make_calls(fleet, YEARLY))
    said = await run_due_task(fleet, ("update_task", {"taskId": task, "recurrence": ""}), LIST)
    assert said == "There are no scheduled tasks in this conversation."
    await fleet.sweep()
    assert [row.status for row in await fetch_tasks(fleet)] == ["completed"]


@pytest.mark.parametrize("tool", ["pause_task", "update_task"])
@pytest.mark.spec("T3")
async def test_a_run_that_is_the_only_one_has_no_later_one_to_change(fleet: Fleet, tool: str) -> None:
    task = read_task_id(await make_calls(fleet, WATER))
    arguments = {"taskId": task} | ({"prompt": "again"} if tool == "update_task" else {})
    assert "there is no later run" in await run_due_task(fleet, (tool, arguments))
    assert [row.status for row in await fetch_tasks(fleet)] == ["completed"]


@pytest.mark.spec("T3", "S1")
async def test_between_a_run_and_the_next_row_a_task_is_still_there(fleet: Fleet) -> None:
    """The sweep has not come by: the series has no row that waits."""
    task = read_task_id(await make_calls(fleet, YEARLY))
    await run_due_task(fleet)
    assert f"{task} | " in await make_calls(fleet, LIST)
    assert await make_calls(fleet, ("cancel_task", {"taskId": task})) == f"task {task} is cancelled"
    await fleet.sweep()
    assert [row.status for row in await fetch_tasks(fleet)] == ["completed"]


@pytest.mark.spec("T3")
async def test_a_list_survives_rows_nobody_would_schedule(fleet: Fleet) -> None:
    await make_calls(fleet, YEARLY)
    await fleet.execute(update(MessageIn).where(MessageIn.kind == "task").values(recurrence="?", timezone="Mars"))
    assert "| ? |" in await make_calls(fleet, LIST)
    await fleet.execute(update(MessageIn).where(MessageIn.kind == "task").values(status="completed", content={}))
    assert "| ? |" in await make_calls(fleet, LIST)
    await fleet.execute(delete(MessageIn).where(MessageIn.kind == "task"))


@pytest.mark.spec("T3", "S1")
async def test_a_series_has_one_run_for_a_date(fleet: Fleet) -> None:
    """Two rows of a series cannot have the same date: the second is refused rather than left out in silence."""
    task = read_task_id(await make_calls(fleet, YEARLY))
    [row] = await fetch_tasks(fleet)
    done = {"id": "done", "seq": 1000, "status": "completed", "recurred": True}
    other = TOMORROW + timedelta(days=3)
    await fleet.insert(MessageIn, dict(row._mapping) | done | {"process_after": other})
    said = await make_calls(fleet, ("update_task", {"taskId": task, "processAfter": other.isoformat()}))
    assert said.startswith("that task has had a run for ")
    assert (await fetch_tasks(fleet))[0].process_after == TOMORROW
