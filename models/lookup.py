"""What people look at: sessions, dead letters and refused input, by the short ids a terminal shows."""

from typing import Any

from sqlalchemy import Select, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.fleet import Rejected
from models.groups import AgentGroup, MessagingGroup
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.sessions import Session, living_session, take_numbers
from models.turns import Turn

SHORT = 8


def short(row_id: str) -> str:
    """The end of an id: a UUIDv7 begins with the time, so its end tells rows apart."""
    return row_id[-SHORT:]


async def list_sessions(conn: AsyncConnection, limit: int = 50) -> list[AnyRow]:
    """Without the fleet's own, whose agent begins with a dot and never runs."""
    pending = (
        select(func.count())
        .where(MessageIn.session_id == Session.id, MessageIn.status.in_(["pending", "processing"]), MessageIn.wakes)
        .scalar_subquery()
    )
    dead = (
        select(func.count()).where(MessageIn.session_id == Session.id, MessageIn.status == "failed").scalar_subquery()
    )
    query: Select[*tuple[Any, ...]] = (
        select(
            Session.id,
            AgentGroup.folder,
            func.coalesce(Session.provider, AgentGroup.provider).label("provider"),
            MessagingGroup.channel_type,
            MessagingGroup.platform_id,
            Session.thread_id,
            Session.status,
            Session.activity,
            Session.activity_since,
            Session.lease_expires_at,
            Session.resume_after,
            Session.woken_at,
            Session.message_seq,
            Session.turn_seq,
            Session.last_active,
            Session.replay_of,
            Session.delivers,
            pending.label("pending"),
            dead.label("dead"),
        )
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .outerjoin(MessagingGroup, MessagingGroup.id == Session.messaging_group_id)
        .where(~AgentGroup.folder.startswith("."))
        .order_by(Session.last_active.desc())
        .limit(limit)
    )
    return list((await conn.execute(query)).all())


def _dead() -> Select[Any]:
    return (
        select(MessageIn.__table__, AgentGroup.folder)
        .join(Session, Session.id == MessageIn.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(MessageIn.status == "failed")
    )


async def list_dead(conn: AsyncConnection, limit: int = 50) -> list[AnyRow]:
    query = _dead().order_by(MessageIn.status_changed_at.desc()).limit(limit)
    return list((await conn.execute(query)).all())


async def find_dead(conn: AsyncConnection, fragment: str) -> list[AnyRow]:
    return list((await conn.execute(_dead().where(MessageIn.id.endswith(fragment, autoescape=True)).limit(5))).all())


async def list_rejected(conn: AsyncConnection, limit: int = 50) -> list[AnyRow]:
    query = select(Rejected.__table__).order_by(Rejected.created_at.desc()).limit(limit)
    return list((await conn.execute(query)).all())


async def undelivered(conn: AsyncConnection, limit: int = 50) -> list[AnyRow]:
    """Replies nobody will send again by itself."""
    query = (
        select(MessageOut.__table__)
        .where(MessageOut.status.in_(["failed", "unknown"]))
        .order_by(MessageOut.created_at.desc())
        .limit(limit)
    )
    return list((await conn.execute(query)).all())


async def turns_of_session(conn: AsyncConnection, session_id: str) -> list[AnyRow]:
    query = select(Turn.__table__).where(Turn.session_id == session_id).order_by(Turn.number)
    return list((await conn.execute(query)).all())


async def messages_of_session(conn: AsyncConnection, session_id: str) -> list[tuple[str, AnyRow]]:
    """Both directions in their order, each with 'in' or 'out'."""
    found: list[tuple[str, AnyRow]] = []
    for direction, table in (("in", MessageIn), ("out", MessageOut)):
        query = select(table.__table__).where(table.session_id == session_id)
        found += [(direction, row) for row in (await conn.execute(query)).all()]
    return sorted(found, key=lambda item: item[1].seq)


async def find_sessions(conn: AsyncConnection, fragment: str) -> list[str]:
    query = select(Session.id).where(Session.id.endswith(fragment, autoescape=True)).limit(5)
    return list((await conn.execute(query)).scalars())


async def find_message(conn: AsyncConnection, message_id: str) -> AnyRow | None:
    """With its session's agent, provider and state."""
    query = (
        select(
            MessageIn.__table__,
            AgentGroup.id.label("agent_id"),
            AgentGroup.folder,
            func.coalesce(Session.provider, AgentGroup.provider).label("own_provider"),
            Session.status.label("session_status"),
            Session.replay_of.label("session_replay_of"),
        )
        .join(Session, Session.id == MessageIn.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(MessageIn.id == message_id)
    )
    return (await conn.execute(query)).one_or_none()


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


async def find_undelivered(conn: AsyncConnection, fragment: str) -> list[AnyRow]:
    query = select(MessageOut.__table__).where(
        MessageOut.status.in_(["failed", "unknown"]), MessageOut.id.endswith(fragment, autoescape=True)
    )
    return list((await conn.execute(query.limit(5))).all())


async def find_answer(conn: AsyncConnection, message_out_id: str) -> AnyRow | None:
    """With its agent."""
    query = select(MessageOut.__table__, Session.agent_group_id.label("agent_id"))
    query = query.join(Session, Session.id == MessageOut.session_id).where(MessageOut.id == message_out_id)
    return (await conn.execute(query)).one_or_none()


async def resend(conn: AsyncConnection, message_id: str) -> bool:
    """Make an undelivered reply pending again, under its old key."""
    statement = (
        update(MessageOut)
        .where(MessageOut.id == message_id, MessageOut.status.in_(["failed", "unknown"]))
        .values(status="pending", attempts=0, deliver_after=now(), rung_at=now())
        .returning(MessageOut.id)
    )
    return (await conn.execute(statement)).one_or_none() is not None


async def counts(conn: AsyncConnection) -> dict[str, int]:
    """Rows that need attention, for a look at the whole."""
    queries = {
        "pending": select(func.count()).where(
            MessageIn.status == "pending", MessageIn.wakes, MessageIn.process_after <= now()
        ),
        "dead": select(func.count()).where(MessageIn.status == "failed"),
        "unsent": select(func.count()).where(MessageOut.status == "pending", MessageOut.deliver_after <= now()),
        "undelivered": select(func.count()).where(MessageOut.status.in_(["failed", "unknown"])),
        "rejected": select(func.count()).select_from(Rejected),
    }
    return {name: int((await conn.execute(query)).scalar_one()) for name, query in queries.items()}
