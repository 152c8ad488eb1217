"""Scheduled tasks of an agent's own session: made, listed, cancelled, paused, resumed, changed.

Only of the session that asks: another conversation's tasks are other people's. A task runs in the name of the one
person it was made for; whatever others have had a hand in runs in nobody's, so that nobody's words are carried out
later with somebody else's rights."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from cronsim import CronSim, CronSimError
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import ChangeTask, ListTasks, ScheduleTask
from adapters.errors import ToolError
from models.base import AnyRow
from models.inbox import MessageIn
from models.lookup import short
from models.tasks import (
    WAITING,
    change_task,
    count_waiting,
    database_now,
    find_tasks,
    is_taken,
    tasks_of,
    write_next,
)
from models.upsert import insert_ignoring
from scheduler.recurrence import ALIASES, RecurrenceError, check_timezone, next_after
from workers.actions.caller import Caller, Performed

MAX_TASKS: Final = 100
SHOWN_PROMPT: Final = 80
CRON_FIELDS: Final = 5
# A date so little in the past is a clock's or a model's slowness, and due now; an older one is a mistake.
GRACE: Final = timedelta(minutes=5)


async def schedule(conn: AsyncConnection, caller: Caller, action: ScheduleTask, step_id: str, number: int) -> Performed:
    _check_date(action.process_after, await database_now(conn))
    _check_recurrence(action.recurrence, action.process_after, action.timezone)
    place = caller.reply_to
    asked = {
        "process_after": action.process_after,
        "recurrence": action.recurrence,
        "timezone": action.timezone,
        "channel_type": place.channel_type,
        "platform_id": place.platform_id,
        "thread_id": place.thread_id,
        # A task that another agent's request led to has come as far as that.
        "content": {"prompt": action.prompt} | ({"agent": {"hops": caller.hops}} if caller.hops else {}),
    }
    words = _words(action.process_after, action.recurrence, action.timezone)
    # An attempt that asks anew, without the journal of the one before, must not make it a second time.
    for task in await tasks_of(conn, caller.session_id, caller.turn.id):
        if task.status in WAITING and all(getattr(task, column) == value for column, value in asked.items()):
            return Performed(f"that is already scheduled as task {_handle(task)}: {words}")
    if await count_waiting(conn, caller.session_id) >= MAX_TASKS:
        raise ToolError(f"there are already {MAX_TASKS} tasks in this conversation; cancel one first (list_tasks)")
    row = asked | {
        "id": step_id,
        "session_id": caller.session_id,
        "agent_group_id": caller.turn.agent_group_id,
        "seq": number,
        "kind": "task",
        "series_id": step_id if action.recurrence else None,
        "sender_id": _author(caller),
    }
    await insert_ignoring(conn, MessageIn, **row)
    return Performed(f"scheduled as task {short(step_id)}: {words}")


async def list_tasks(conn: AsyncConnection, caller: Caller, action: ListTasks, step_id: str, number: int) -> Performed:
    tasks = [task for task in await tasks_of(conn, caller.session_id, caller.turn.id) if not _is_over(task)]
    if not tasks:
        return Performed("There are no scheduled tasks in this conversation.")
    return Performed("\n".join(["id | next run | how often | state | what", *map(_line, tasks)]))


async def change(conn: AsyncConnection, caller: Caller, action: ChangeTask, step_id: str, number: int) -> Performed:
    found = await find_tasks(conn, caller.session_id, caller.turn.id, action.task_id)
    if not found:
        raise ToolError(f"there is no scheduled task {action.task_id!r} in this conversation; list_tasks shows them")
    if len(found) > 1:
        ids = ", ".join(task.series_id or task.id for task in found[:5])
        raise ToolError(f"{action.task_id!r} may be one of several tasks; give the whole id: {ids}")
    [task] = found
    match action.change:
        case "cancel":
            said = await _cancel(conn, task)
        case "pause":
            said = await _pause(conn, caller, task)
        case "resume":
            said = await _resume(conn, task)
        case "update":
            said = await _update(conn, caller, task, action.fields)
    return Performed(f"task {_handle(task)} {said}")


async def _cancel(conn: AsyncConnection, task: AnyRow) -> str:
    """Marked as followed in each case: the sweep must not write a next row."""
    if task.status in WAITING:
        await change_task(conn, task.id, status="discarded", recurred=True)
        return "is cancelled"
    await change_task(conn, task.id, recurred=True)
    return "runs now, and this is its last run" if task.status == "processing" else "is cancelled"


async def _pause(conn: AsyncConnection, caller: Caller, task: AnyRow) -> str:
    if task.status == "paused":
        return "is paused already"
    if task.status == "pending":
        await change_task(conn, task.id, status="paused")
    else:
        _check_goes_on(task)
        due = _next(task.recurrence, task.process_after, task.timezone)
        await _check_free(conn, task, due)
        await write_next(conn, task, caller.session_id, due, status="paused")
    return "is paused; resume_task lets it run again"


async def _resume(conn: AsyncConnection, task: AnyRow) -> str:
    """A week's pause must not make up for a week of runs: what recurs goes on with its next date to come."""
    due = task.process_after
    if task.status != "paused":
        return "is not paused"
    at = await database_now(conn)
    if task.recurrence is not None and due <= at:
        due = _next(task.recurrence, at, task.timezone)
        await _check_free(conn, task, due)
    await change_task(conn, task.id, status="pending", process_after=due)
    return f"goes on: {_words(due, task.recurrence, task.timezone)}"


async def _update(conn: AsyncConnection, caller: Caller, task: AnyRow, fields: dict[str, Any]) -> str:
    recurrence = fields.get("recurrence", task.recurrence)
    timezone = fields.get("timezone", task.timezone)
    content = {key: value for key, value in task.content.items() if key not in fields}
    changes: dict[str, Any] = {
        "recurrence": recurrence,
        "timezone": timezone,
        "content": content | ({"prompt": fields["prompt"]} if "prompt" in fields else {}),
        # Only who made it may change it and still have it run in their name.
        "sender_id": task.sender_id if _is_of(task, caller) else None,
    }
    at = await database_now(conn)
    another_rhythm = "recurrence" in fields or "timezone" in fields
    _check_recurrence(recurrence, at, timezone)
    if "process_after" in fields:
        due = fields["process_after"]
        _check_date(due, at)
    elif recurrence is not None and task.recurrence is not None and another_rhythm:
        due = _next(recurrence, at, timezone)
    else:
        due = task.process_after
    if task.status in WAITING:
        series_id = task.series_id or (task.id if recurrence is not None else None)
        await _check_free(conn, task, due)
        await change_task(conn, task.id, process_after=due, series_id=series_id, **changes)
        return f"is changed: {_words(due, recurrence, timezone)}"
    _check_goes_on(task)
    if due == task.process_after:
        if recurrence is None:
            await change_task(conn, task.id, recurred=True)
            return "runs now, and this is its last run"
        due = _next(recurrence, due, timezone)
    await _check_free(conn, task, due)
    await write_next(conn, task, caller.session_id, due, **changes)
    return f"is changed from its next run on: {_words(due, recurrence, timezone)}"


def _check_goes_on(task: AnyRow) -> None:
    if _is_over(task):
        raise ToolError("that task runs now, for the last time; there is no later run. Schedule a new one instead")


async def _check_free(conn: AsyncConnection, task: AnyRow, due: datetime) -> None:
    """A series has one row for a date: a second would not be written, and the series would end without a word."""
    if await is_taken(conn, task.series_id or task.id, due, task.id):
        raise ToolError(
            f"that task has had a run for {due.isoformat()} already; update_task can give it another processAfter"
        )


def _check_date(date: datetime, at: datetime) -> None:
    if date < at - GRACE:
        raise ToolError(f"processAfter {date.isoformat()} has passed: it is {at.isoformat(timespec='seconds')} now")


def _check_recurrence(recurrence: str | None, first: datetime, timezone: str) -> None:
    if recurrence is not None:
        if len(recurrence.split()) > CRON_FIELDS:
            raise ToolError(f"recurrence {recurrence!r} counts seconds; a task runs at most once a minute")
        _next(recurrence, first, timezone)
    try:
        check_timezone(timezone)
    except RecurrenceError as error:
        raise ToolError(str(error)) from None


def _next(recurrence: str, after: datetime, timezone: str) -> datetime:
    try:
        return next_after(recurrence, after, timezone)
    except RecurrenceError as error:
        raise ToolError(str(error)) from None


def _author(caller: Caller) -> str | None:
    """The one person in whose name the turn acts, if there is one."""
    place = caller.reply_to
    alone = place.sender_id is not None and caller.people == (f"{place.channel_type}:{place.sender_id}",)
    return place.sender_id if alone else None


def _is_of(task: AnyRow, caller: Caller) -> bool:
    author = _author(caller)
    return author is not None and (caller.reply_to.channel_type, author) == (task.channel_type, task.sender_id)


def _is_over(task: AnyRow) -> bool:
    """It runs now, and no run will follow."""
    return task.status not in WAITING and (task.recurrence is None or task.recurred)


def _handle(task: AnyRow) -> str:
    """The same for all runs of a series."""
    return short(task.series_id or task.id)


def _line(task: AnyRow) -> str:
    due = task.process_after
    if task.status not in WAITING:
        with suppress(RecurrenceError):
            due = next_after(task.recurrence, due, task.timezone)
    state = "running now" if task.status == "processing" else task.status if task.status in WAITING else "pending"
    prompt = " ".join(str(task.content.get("prompt") or "").split())
    prompt = prompt if len(prompt) <= SHOWN_PROMPT else f"{prompt[: SHOWN_PROMPT - 1]}…"
    often = _often(task.recurrence) if task.recurrence is not None else "once"
    return f"{_handle(task)} | {_when(due, task.timezone)} | {often} | {state} | {prompt}"


def _words(due: datetime, recurrence: str | None, timezone: str) -> str:
    again = f", then: {_often(recurrence)} ({timezone})" if recurrence is not None else ""
    return f"{_when(due, timezone)}{again}"


def _when(date: datetime, timezone: str) -> str:
    try:
        zone = check_timezone(timezone)
    except RecurrenceError:  # its zone is not known on this machine
        zone = check_timezone("UTC")
    return date.astimezone(zone).strftime("%a %Y-%m-%d %H:%M:%S %Z")


def _often(recurrence: str) -> str:
    try:
        return CronSim(ALIASES.get(recurrence, recurrence), datetime(2000, 1, 1)).explain()
    except CronSimError:
        return recurrence
