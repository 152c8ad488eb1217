"""Reminders that recur: when one was said or given up, its next row is written.

The date is the first to come after the one it had: however long nobody could say anything, it is said late once, and
the dates between are passed over. Two sweeps write one row: the session is locked first, and the row's key is the
series and its date."""

from contextlib import suppress
from datetime import datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow
from models.lookup import short
from models.notices import owner_notices, store_notices, tell_agent
from models.people import owner_addresses
from models.quoting import quoted
from models.reminders import NOT_RUNG, failed_in_a_row, lock_unrepeated, mark_repeated, write_repeated
from models.sessions import take_numbers
from models.tasks import database_now, series_of
from scheduler.recurrence import RecurrenceError, next_after

# So often in a row it could not be delivered: then nobody goes on trying.
MAX_FAILURES: Final = 5


async def repeat_reminders(conn: AsyncConnection, batch: int) -> int:
    """In a transaction of its own. Returns how many it looked at: as many as `batch` means that there may be more."""
    rows = await lock_unrepeated(conn, batch)
    if not rows:
        return 0
    at = await database_now(conn)
    followed: list[tuple[AnyRow, str, datetime]] = []
    for row, session_id in rows:
        if row.status == "failed" and await failed_in_a_row(conn, row, MAX_FAILURES):
            await _stop(conn, row, session_id, at, f"it failed {MAX_FAILURES} times in a row", str(row.error))
            continue
        try:
            followed.append((row, session_id, following(row, at)))
        except RecurrenceError as error:
            await _stop(conn, row, session_id, at, "its next date cannot be worked out", str(error))
    await write_repeated(conn, followed, at)
    await mark_repeated(conn, [row for row, _ in rows])
    return len(rows)


def following(row: AnyRow, at: datetime) -> datetime:
    """From its scheduled date, not from when it was said, so that it does not drift."""
    return next_after(row.recurrence, max(row.scheduled_for or row.deliver_after, at), row.timezone)


def next_said(row: AnyRow, at: datetime) -> datetime:
    """When a reminder is said next: at its own date, or, if it was just said, at that of the row yet to be written."""
    if row.recurrence is not None and row.status not in ("pending", "sending"):
        with suppress(RecurrenceError):
            return following(row, at)
    date: datetime = row.scheduled_for
    return date


async def _stop(conn: AsyncConnection, row: AnyRow, session_id: str, at: datetime, why: str, detail: str) -> None:
    """The series ends. The owners are told at once, and the agent with its next turn: it may know another way."""
    owners = await owner_addresses(conn)
    last = await take_numbers(conn, session_id, 1 + len(owners))
    handle = short(series_of(row))
    place = f"{row.channel_type} {quoted(row.platform_id)}"
    text = f"The reminder {handle} to {place} is not repeated any more, because {why}: {quoted(detail)}"
    notices = owner_notices(
        owners, session_id=session_id, first_seq=last - len(owners), key=f"{row.id}:stopped", text=text
    )
    await store_notices(conn, [told | {"rung_at": at - NOT_RUNG} for told in notices])
    result = {"reminder": handle, "why": f"{why}: {detail}", "text": str(row.content.get("text", ""))[:200]}
    content = {"action": "remind", "status": "stopped", "result": result}
    await tell_agent(conn, session_id=session_id, seq=last, place=row, content=content)
