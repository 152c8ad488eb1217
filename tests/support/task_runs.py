"""Runs of recurring tasks, written as they are when they are over, or late: for the sweep to find."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models import AgentGroup, MessageIn, MessagingGroup, Series, Session, Turn
from models.base import new_id
from models.tasks import database_now
from tests.support.fleet import Fleet


async def clock(fleet: Fleet) -> datetime:
    return await fleet.db.read(database_now)


async def add_session(fleet: Fleet, folder: str = "demo", **values: Any) -> str:
    """A conversation of its own, in a place of its own."""
    session_id, place_id = new_id(), new_id()

    async def work(conn: AsyncConnection) -> None:
        group = await conn.scalar(select(AgentGroup.id).where(AgentGroup.folder == folder))
        await conn.execute(insert(MessagingGroup).values(id=place_id, channel_type="local", platform_id=place_id))
        row = {"id": session_id, "agent_group_id": group, "messaging_group_id": place_id, "message_seq": 1}
        await conn.execute(insert(Session).values(**row | values))

    await fleet.db.transact(work)
    return session_id


async def add_run(
    fleet: Fleet,
    date: datetime,
    *,
    session_id: str | None = None,
    began: datetime | None = None,
    ended: datetime | None = None,
    terms: dict[str, Any] | None = None,
    **values: Any,
) -> str:
    """A run of a recurring task with that date, written long before; a session of its own unless one is given. `ended`:
    it is over, and completed if nothing else is said. `terms`: of its series, with the failures so far. Returns its
    id, which is that of its series."""
    session_id = session_id or await add_session(fleet)
    row_id, turn_id = new_id(), new_id() if began is not None else None
    row: dict[str, Any] = {
        "id": row_id,
        "session_id": session_id,
        "seq": 1,
        "kind": "task",
        "process_after": date,
        "scheduled_for": date,
        "created_at": date - timedelta(days=1),
        "status_changed_at": date - timedelta(days=1),
        "recurrence": "@hourly",
        "series_id": row_id,
        "turn_id": turn_id,
        "channel_type": "local",
        "platform_id": session_id,
        "content": {"prompt": "look around"},
    }
    if ended is not None:
        row |= {"status": "completed", "status_changed_at": ended}

    async def work(conn: AsyncConnection) -> None:
        group = await conn.scalar(select(Session.agent_group_id).where(Session.id == session_id))
        if turn_id is not None:
            turn = {"id": turn_id, "session_id": session_id, "number": 1, "provider": "scripted", "lease_token": 1}
            await conn.execute(insert(Turn).values(**turn, status="completed", started_at=began))
        await conn.execute(insert(MessageIn).values(agent_group_id=group, **row | values))
        if terms is not None:
            await conn.execute(insert(Series).values(id=row_id, agent_group_id=group, **terms))

    await fleet.db.transact(work)
    return row_id


async def runs_of(fleet: Fleet, series_id: str) -> list[Any]:
    """In the order of their dates."""
    rows = [row for row in await fleet.rows(MessageIn) if row.series_id == series_id]
    return sorted(rows, key=lambda row: row.process_after)
