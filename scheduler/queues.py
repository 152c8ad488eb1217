"""On whose queue sessions are rung for: that of what they go on with."""

from typing import Final

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import now
from models.groups import AgentGroup
from models.inbox import MessageIn
from models.series import Series
from models.sessions import Session
from scheduler.ringing import Pace, Wake

# Written out, as in the index that holds only these.
_OPEN: Final = text("messages_in.status IN ('pending', 'processing')")


async def wakes_of(conn: AsyncConnection, pace: Pace, ids: list[str]) -> list[Wake]:
    """For sessions that go on with the turn they are in, or begin with what people say."""
    if not ids:
        return []
    # The turn may be a task's.
    of_turn = (
        select(Series.provider)
        .join(MessageIn, MessageIn.series_id == Series.id)
        .where(MessageIn.session_id == Session.id, _OPEN, MessageIn.turn_id.is_not(None))
        .limit(1)
        .scalar_subquery()
    )
    # Whom the first message names, if somebody has chosen: in the order in which they are taken (`models.inbox`).
    named = (
        select(MessageIn.provider)
        .where(MessageIn.session_id == Session.id, _OPEN, MessageIn.wakes, MessageIn.process_after <= now())
        .order_by(MessageIn.turn_id.is_(None), MessageIn.series_id.is_not(None), MessageIn.seq)
        .limit(1)
        .scalar_subquery()
    )
    query = (
        select(Session.id, pace.provider(named, of_turn).label("provider"))
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(Session.id.in_(ids))
    )
    return [Wake(row.id, row.provider) for row in (await conn.execute(query)).all()]
