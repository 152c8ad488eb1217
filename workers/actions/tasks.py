"""Scheduled tasks of an agent's own session: made, listed, cancelled, paused, resumed, changed (`workers/timetable/`).

Only of the session that asks: another conversation's tasks are other people's. A task runs in the name of the one
person it was made for; whatever others have had a hand in runs in nobody's, so that nobody's words are carried out
later with somebody else's rights. Reminders are listed and cancelled here too: for an agent both are work for later."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, cast

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import ChangeTask, ListTasks, ScheduleTask
from adapters.errors import ToolError
from models.base import AnyRow
from models.consent import find_approval
from models.lookup import short
from models.quoting import one_line
from models.reminders import cancel_reminder, find_reminders, reminders_of
from models.series import DEFAULT_TERMS
from models.tasks import database_now, series_of
from scheduler.reminders import next_said
from scheduler.words import often, when
from workers import timetable
from workers.access import Act
from workers.actions.caller import Caller, Performed
from workers.refusals import RefusedError
from workers.task_terms import changed_terms, conditions
from workers.timetable import Changes, NewTask, Scope, Task

SHOWN_PROMPT: Final = 80


async def schedule(conn: AsyncConnection, caller: Caller, action: ScheduleTask, step_id: str, number: int) -> Performed:
    place = caller.reply_to
    with _for_the_agent():
        new = NewTask(
            id=step_id,
            session_id=caller.session_id,
            agent_group_id=caller.turn.agent_group_id,
            number=number,
            # A task that another agent's request led to has come as far as that.
            content={"prompt": action.prompt} | ({"agent": {"hops": caller.hops}} if caller.hops else {}),
            date=action.process_after,
            recurrence=action.recurrence,
            timezone=action.timezone,
            channel_type=place.channel_type,
            platform_id=place.platform_id,
            thread_id=place.thread_id,
            sender_id=_author(caller),
            terms=changed_terms(DEFAULT_TERMS, **action.terms),
            wrote_before=caller.wrote_before,
        )
        return Performed(await timetable.add(conn, new))


async def list_tasks(conn: AsyncConnection, caller: Caller, action: ListTasks, step_id: str, number: int) -> Performed:
    at = await database_now(conn)
    tasks = [task for task in await timetable.list_tasks(conn, Scope(caller.session_id)) if task.scheduled is not None]
    lines = [_line(task, at) for task in tasks]
    lines += [_reminder_line(row, at) for row in await reminders_of(conn, caller.session_id)]
    if not lines:
        return Performed("There are no scheduled tasks in this conversation.")
    return Performed("\n".join(["id | next run | how often | state | what", *lines]))


async def change(conn: AsyncConnection, caller: Caller, action: ChangeTask, step_id: str, number: int) -> Performed:
    with _for_the_agent():
        try:
            task = await timetable.find_task(conn, Scope(caller.session_id), action.task_id)
        except RefusedError as refusal:
            if refusal.kind != "nobody":
                raise
            return await _change_reminder(conn, caller, action)
        match action.change:
            case "cancel":
                said = await timetable.cancel(conn, task)
            case "pause":
                said = await timetable.pause(conn, task)
                said += "; resume_task lets it run again" if said == "is paused" else ""
            case "resume":
                said = await timetable.resume(conn, task)
            case "update":
                changes = cast(Changes, action.fields)
                by_admin = await caller.have_asked(conn, Act.LOOSEN_TASK) or await _was_approved(conn, step_id)
                # Only who made it may change it and still have it run in their name.
                said = await timetable.update(conn, task, changes, disown=not _is_of(task, caller), by_admin=by_admin)
        return Performed(f"task {task.handle} {said}")


async def _change_reminder(conn: AsyncConnection, caller: Caller, action: ChangeTask) -> Performed:
    found = await find_reminders(conn, caller.session_id, action.task_id)
    if not found:
        raise ToolError(f"there is no scheduled task {action.task_id!r} in this conversation; list_tasks shows them")
    if len(found) > 1:
        ids = ", ".join(map(series_of, found[:5]))
        raise ToolError(f"{action.task_id!r} may be one of several reminders; give the whole id: {ids}")
    [row] = found
    handle = short(series_of(row))
    if action.change != "cancel":
        raise ToolError(f"{handle} is a reminder: it can be cancelled (cancel_task) and noted anew, and no more")
    done = await cancel_reminder(conn, row)
    return Performed(f"reminder {handle} {'is cancelled' if done == 'cancelled' else 'is sent now, for the last time'}")


async def _was_approved(conn: AsyncConnection, step_id: str) -> bool:
    """Whether somebody was shown the whole call, and said yes."""
    approval = await find_approval(conn, step_id)
    return approval is not None and approval.status == "used"


@contextmanager
def _for_the_agent() -> Iterator[None]:
    try:
        yield
    except RefusedError as refusal:
        raise ToolError(refusal.reason) from None


def _author(caller: Caller) -> str | None:
    """The one person in whose name the turn acts, if there is one."""
    place = caller.reply_to
    alone = place.sender_id is not None and caller.people == (f"{place.channel_type}:{place.sender_id}",)
    return place.sender_id if alone else None


def _is_of(task: Task, caller: Caller) -> bool:
    author = _author(caller)
    return author is not None and (caller.reply_to.channel_type, author) == (task.channel_type, task.sender_id)


def _line(task: Task, at: datetime) -> str:
    assert task.scheduled is not None
    state = "; ".join([task.state, *conditions(task.terms)])
    recurrence = task.recurrence if task.goes_on else None
    date = when(task.scheduled, task.timezone, at)
    return f"{task.handle} | {date} | {often(recurrence)} | {state} | {one_line(task.prompt, SHOWN_PROMPT)}"


def _reminder_line(row: AnyRow, at: datetime) -> str:
    date = when(next_said(row, at), row.timezone, at)
    handle = short(series_of(row))
    said = one_line(str(row.content.get("text") or ""), SHOWN_PROMPT)
    return f"{handle} | {date} | {often(row.recurrence)} | reminder, sent without you | {said}"
