"""What is done with what was given up: a dead message is tried again or put away, a lost reply is sent again.

Each is one statement that checks the state: of two people who want it at once, one has done it."""

from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import now
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.sessions import living_session, take_numbers


async def revive(conn: AsyncConnection, message_id: str, **changes: Any) -> str | None:
    """Make a dead message pending again, with all its tries; its failed turn stays as it was. Returns the session it is
    in now: where its own was closed meanwhile, the one that follows. None: it is not dead. `changes`: other columns."""
    query = select(MessageIn.session_id).where(MessageIn.id == message_id)
    own = (await conn.execute(query)).scalar_one_or_none()
    if own is None:
        return None
    living = await living_session(conn, own)
    moved = {} if living == own else {"session_id": living, "seq": await take_numbers(conn, living, 1)}
    statement = (
        update(MessageIn)
        .where(MessageIn.id == message_id, MessageIn.status == "failed")
        .values(
            status="pending",
            status_changed_at=now(),
            tries=0,
            turn_id=None,
            error=None,
            error_class=None,
            **moved,
            **changes,
        )
        .returning(MessageIn.id)
    )
    return living if (await conn.execute(statement)).one_or_none() is not None else None


async def discard(conn: AsyncConnection, message_id: str) -> bool:
    statement = (
        update(MessageIn)
        .where(MessageIn.id == message_id, MessageIn.status == "failed")
        .values(status="discarded", status_changed_at=now())
        .returning(MessageIn.id)
    )
    return (await conn.execute(statement)).one_or_none() is not None


async def resend(conn: AsyncConnection, message_id: str) -> bool:
    """Make an undelivered reply pending again, under its old key."""
    statement = (
        update(MessageOut)
        .where(MessageOut.id == message_id, MessageOut.status.in_(["failed", "unknown"]))
        .values(status="pending", attempts=0, deliver_after=now(), rung_at=now())
        .returning(MessageOut.id)
    )
    return (await conn.execute(statement)).one_or_none() is not None
