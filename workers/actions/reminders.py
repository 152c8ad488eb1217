"""A message for later: noted now, said at its date by whoever delivers, without the agent and at no cost."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import Send
from adapters.errors import ToolError
from models.base import AnyRow
from models.lookup import short
from models.outbox import MessageOut
from models.reminders import count_reminders, reminded_since, reminder, reminders_of
from models.series import DEFAULT_TERMS
from models.tasks import database_now, series_of
from models.upsert import insert_ignoring
from scheduler.reminders import next_said
from scheduler.words import when
from workers.actions.caller import Caller, Performed
from workers.agents import AGENT
from workers.refusals import RefusedError
from workers.task_dates import check_date, check_rhythm, first_date, is_same_again, plan_in_words

MAX_REMINDERS: Final = 100
_SAME: Final = ("channel_type", "platform_id", "thread_id", "kind", "content", "recurrence", "timezone")


async def remind(conn: AsyncConnection, caller: Caller, action: Send, row: dict[str, Any]) -> Performed:
    """`row`: what would be sent now."""
    if row["channel_type"] == AGENT:
        raise ToolError("a reminder is for people, and it was another agent that asked you; use schedule_task instead")
    at = await database_now(conn)
    recurrence, timezone = action.recurrence, action.timezone
    try:
        check_rhythm(recurrence, timezone)
        if action.deliver_after is not None:
            check_date(action.deliver_after, at)
        date = first_date(action.deliver_after, recurrence, timezone, at)
    except RefusedError as refusal:
        raise ToolError(refusal.reason) from None
    series_id = row["id"] if recurrence is not None else None
    noted = reminder(row, date, at, recurrence=recurrence, timezone=timezone, series_id=series_id)
    if date <= at and recurrence is None:  # said now, so it is this turn that has said it
        noted["turn_id"] = row["turn_id"]
    if (same := await _same(conn, caller, noted, action.deliver_after, at)) is not None:
        handle, words = short(series_of(same)), when(next_said(same, at), same.timezone, at)
        return Performed(f"that is noted already, as reminder {handle}: {words}")
    if await count_reminders(conn, caller.session_id) >= MAX_REMINDERS:
        raise ToolError(
            f"{MAX_REMINDERS} reminders wait in this conversation already; cancel one first (list_tasks, cancel_task)"
        )
    await insert_ignoring(conn, MessageOut, **noted)
    words = plan_in_words(date, recurrence, timezone, DEFAULT_TERMS, at)
    said = f"noted as reminder {short(row['id'])}, to be sent as it is, without you; cancel_task takes it back: {words}"
    return Performed(said, [row["id"]] if date <= at else [])


async def _same(
    conn: AsyncConnection, caller: Caller, noted: dict[str, Any], date: datetime | None, at: datetime
) -> AnyRow | None:
    """The same reminder, if there is one: an attempt that asks anew, without the journal of the one before, must not
    note it a second time. Not even if it was said meanwhile, or if it works out its `date` (if one was given) anew."""

    def is_meant(row: AnyRow) -> bool:
        if date is None or row.scheduled_for == date:
            return True
        return caller.wrote_before(row.created_at) and is_same_again(date, row.scheduled_for, at - row.created_at)

    first = min(message.seq for message in caller.turn.messages)
    rows = [*await reminders_of(conn, caller.session_id), *await reminded_since(conn, caller.session_id, first)]
    for row in rows:
        alike = row.id != noted["id"] and all(getattr(row, column) == noted[column] for column in _SAME)
        if alike and is_meant(row):
            return row
    return None
