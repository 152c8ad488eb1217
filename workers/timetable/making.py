"""Making a task for an agent: its first row, in the conversation that asks."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from models.inbox import MessageIn
from models.lookup import short
from models.series import DEFAULT_TERMS, Terms, change_series
from models.task_lookup import Scope
from models.tasks import count_waiting, database_now
from models.upsert import insert_ignoring
from workers.refusals import RefusedError
from workers.task_dates import check_date, check_rhythm, first_date, is_same_again, plan_in_words, slot
from workers.task_terms import check_terms
from workers.timetable.looking import list_tasks
from workers.timetable.view import Task

MAX_TASKS: Final = 100


@dataclass(frozen=True)
class NewTask:
    """`id`: of its first row, and so of the task. `number`: its message number in the session. Without a `date` it
    begins with the next that its recurrence names. `sender_id`: in whose name it runs. `wrote_before`: whether what was
    written then is an earlier attempt's of the turn that asks, which may work its date out anew."""

    id: str
    session_id: str
    agent_group_id: str
    number: int
    content: dict[str, Any]
    date: datetime | None
    recurrence: str | None
    timezone: str
    channel_type: str
    platform_id: str
    thread_id: str | None
    sender_id: str | None = None
    terms: Terms = DEFAULT_TERMS
    wrote_before: Callable[[datetime], bool] = lambda _: False


async def add(conn: AsyncConnection, new: NewTask) -> str:
    """For whoever holds the session. Says under what name it is known, and when it runs: also if the same task is there
    already, which an attempt may have made that lost its journal."""
    at = await database_now(conn)
    check_rhythm(new.recurrence, new.timezone)
    check_terms(new.terms)
    if new.date is not None:
        check_date(new.date, at)
    elif new.recurrence is None:
        raise RefusedError("say when it runs: a date, or a recurrence, or both")
    date = first_date(new.date, new.recurrence, new.timezone, at)
    words = plan_in_words(date, new.recurrence, new.timezone, new.terms, at)
    for task in await list_tasks(conn, Scope(new.session_id)):
        if _is_same(task, new, at):
            words = plan_in_words(task.scheduled or date, new.recurrence, new.timezone, new.terms, at)
            return f"that is already scheduled as task {task.handle}: {words}"
    if await count_waiting(conn, new.session_id) >= MAX_TASKS:
        raise RefusedError(f"there are already {MAX_TASKS} tasks in this conversation; cancel one first")
    row = {
        "id": new.id,
        "session_id": new.session_id,
        "agent_group_id": new.agent_group_id,
        "seq": new.number,
        "kind": "task",
        "channel_type": new.channel_type,
        "platform_id": new.platform_id,
        "thread_id": new.thread_id,
        "sender_id": new.sender_id,
        "content": new.content,
        **slot(new.id, date, new.recurrence, new.timezone, new.terms),
    }
    if await insert_ignoring(conn, MessageIn, **row) and new.terms != DEFAULT_TERMS:
        await change_series(conn, new.id, new.agent_group_id, **asdict(new.terms))
    return f"scheduled as task {short(new.id)}: {words}"


def _is_same(task: Task, new: NewTask, at: datetime) -> bool:
    same = ("channel_type", "platform_id", "thread_id", "content", "recurrence", "timezone", "terms")
    if task.scheduled is None or task.under_way or any(getattr(task, name) != getattr(new, name) for name in same):
        return False
    if new.date is None or new.date == task.scheduled:
        return True
    return new.wrote_before(task.written) and is_same_again(new.date, task.scheduled, at - task.written)
