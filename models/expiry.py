"""What nobody answered or decided in time: marked, its cards closed, and those who waited for it let go on, or told."""

import uuid
from dataclasses import dataclass, field

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.card_endings import close_overdue
from models.consent import ACCESS, Approval, PendingQuestion, find_approval
from models.inbox import MessageIn, waiting_of
from models.outbox import MessageOut, notice
from models.people import User
from models.sessions import Session, end_rest, take_numbers
from models.turns import Step, Turn
from models.upsert import insert_ignoring


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
        due = select(*table.__table__.columns).where(*overdue).order_by(table.expires_at).limit(limit)
        rows = (await conn.execute(due)).all()
        if not rows:
            continue
        sessions = select(Session.id).where(Session.id.in_({row.session_id for row in rows})).order_by(Session.id)
        held = set((await conn.execute(sessions.with_for_update(skip_locked=True))).scalars())
        mine = [row.id for row in rows if row.session_id in held and await _may_expire(conn, row)]
        marking = update(table).where(table.id.in_(mine), *overdue).values(status="expired")
        expired = (await conn.execute(marking.returning(*table.__table__.columns))).all()
        for row in expired:
            found.deliveries += await close_overdue(conn, row)
            if table is Approval and row.category == ACCESS:
                found.deliveries += await _turn_away(conn, row)
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


def next_request(request_id: str) -> str:
    """The id of the request to let the same stranger in that follows this one."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, request_id))


async def _may_expire(conn: AsyncConnection, row: AnyRow) -> bool:
    """A stranger who is just writing is left for later: their message would wait for nothing."""
    if getattr(row, "category", None) != ACCESS:
        return True
    stranger = select(User.id).where(User.id == row.payload["user"])
    return (await conn.execute(stranger.with_for_update(key_share=True, skip_locked=True))).first() is not None


async def _turn_away(conn: AsyncConnection, request: AnyRow) -> list[str]:
    """What a stranger wrote waited for this, and is not read; they are told. If they have written since, another
    request was made, and all of it waits for that one."""
    if await find_approval(conn, next_request(request.id)) is not None:
        return []
    asked = request.payload
    which = waiting_of(asked["channel"], asked["sender"], asked["agent_group_id"])
    why = "nobody decided in time whether to let the sender in"
    discarding = update(MessageIn).where(which).values(status="discarded", status_changed_at=now(), error=why)
    columns = (MessageIn.channel_type, MessageIn.platform_id, MessageIn.thread_id, MessageIn.session_id)
    rows = (await conn.execute(discarding.returning(*columns))).all()
    told = f"Nobody decided in time whether {asked['agent']} may listen to you, so what you wrote was not read. "
    deliveries = []
    places = {(row.channel_type, row.platform_id, row.thread_id or ""): row for row in rows}
    for number, (_, row) in enumerate(sorted(places.items(), key=lambda item: item[1].session_id)):
        said = notice(
            session_id=row.session_id,
            seq=await take_numbers(conn, row.session_id, 1),
            key=f"{request.id}:overdue:{number}",
            channel_type=row.channel_type,
            platform_id=row.platform_id,
            thread_id=row.thread_id,
            content={"text": f"{told}Write again to ask again."},
        )
        deliveries += [said["id"]] if await insert_ignoring(conn, MessageOut, **said) else []
    return deliveries
