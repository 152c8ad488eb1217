"""What nobody answered or decided in time: marked, its cards closed, and those who waited for it let go on."""

from dataclasses import dataclass, field

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import now
from models.consent import Approval, PendingQuestion
from models.outcomes import close_overdue
from models.sessions import Session, end_rest
from models.turns import Step, Turn


@dataclass
class Expired:
    """Sessions and messages to ring for."""

    sessions: list[str] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)


async def expire_waits(conn: AsyncConnection, limit: int) -> Expired:
    """The most overdue first, at most `limit` of each. Several at once share the work, and none waits for another.

    A session's row is locked before what belongs to it, as by whoever decides: one that is held is left for later."""
    found = Expired()
    for table in (PendingQuestion, Approval):
        overdue = (table.status == "pending", table.expires_at <= now())
        due = select(table.id, table.session_id).where(*overdue).order_by(table.expires_at).limit(limit)
        rows = (await conn.execute(due)).all()
        if not rows:
            continue
        sessions = select(Session.id).where(Session.id.in_({row.session_id for row in rows})).order_by(Session.id)
        held = set((await conn.execute(sessions.with_for_update(skip_locked=True))).scalars())
        mine = [row.id for row in rows if row.session_id in held]
        marking = update(table).where(table.id.in_(mine), *overdue).values(status="expired")
        expired = (await conn.execute(marking.returning(*table.__table__.columns))).all()
        for row in expired:
            found.deliveries += await close_overdue(conn, row)
        found.sessions += await _let_go_on(conn, [row.id for row in expired])
    return found


async def _let_go_on(conn: AsyncConnection, subject_ids: list[str]) -> list[str]:
    """A call that asks has its step's id. What is asked otherwise (for money, for admission) parks nobody for it."""
    waiting = (
        select(Turn.session_id)
        .join(Step, Step.turn_id == Turn.id)
        .where(Step.id.in_(subject_ids), Step.status == "started")
        .distinct()
    )
    sessions = list((await conn.execute(waiting)).scalars())
    for session_id in sessions:
        await end_rest(conn, session_id)
    return sessions
