"""Sessions, and the lease that lets at most one worker run one.

Every write of a running turn goes through `hold` or `release`: one UPDATE of the session's row that checks the fencing
token, takes the row's lock until the commit, and hands out the numbers for messages and events. Whoever lost the
lease gets LeaseLostError and can write nothing. Transactions lock the session's row before anything else."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    Row,
    String,
    and_,
    case,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Json, Timestamp, new_id, now
from models.errors import LeaseLostError
from models.groups import AgentGroup, MessagingGroup, Wiring
from models.inbox import MessageIn
from models.upsert import insert_ignoring

_ACTIVE = text("status = 'active'")
_LEASED = text("lease_expires_at IS NOT NULL")


class Session(Base):
    __tablename__ = "sessions"
    __table_args__ = (
        CheckConstraint("status IN ('active', 'closed')", name="status"),
        Index(
            "uq_sessions_active",
            "agent_group_id",
            "messaging_group_id",
            "thread_id",
            unique=True,
            postgresql_where=_ACTIVE,
            sqlite_where=_ACTIVE,
        ),
        Index("ix_sessions_lease", "lease_expires_at", postgresql_where=_LEASED, sqlite_where=_LEASED),
        Index("ix_sessions_last_active", "last_active"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    agent_group_id: Mapped[str] = mapped_column(ForeignKey("agent_groups.id"))
    messaging_group_id: Mapped[str | None] = mapped_column(ForeignKey("messaging_groups.id"), index=True)
    thread_id: Mapped[str] = mapped_column(String(255), default="")
    provider: Mapped[str | None] = mapped_column(String(100))
    model: Mapped[str | None] = mapped_column(String(200))
    status: Mapped[str] = mapped_column(String(10), default="active")
    continuation: Mapped[dict[str, Any] | None] = mapped_column(Json)
    # The last numbers given out: to messages in and out, to turns, to lasting events.
    message_seq: Mapped[int] = mapped_column(Integer, default=0)
    turn_seq: Mapped[int] = mapped_column(Integer, default=0)
    event_seq: Mapped[int] = mapped_column(BigInteger, default=0)
    # The lease.
    lease_owner: Mapped[str | None] = mapped_column(String(200))
    lease_token: Mapped[int] = mapped_column(BigInteger, default=0)
    lease_expires_at: Mapped[datetime | None] = mapped_column(Timestamp)
    activity: Mapped[str | None] = mapped_column(String(200))
    activity_since: Mapped[datetime | None] = mapped_column(Timestamp)
    # When somebody last rang for this session and no worker has taken it since: further wakes are not sent.
    woken_at: Mapped[datetime | None] = mapped_column(Timestamp)
    # Nothing of this session runs before (a retry waits, a provider asked for patience).
    resume_after: Mapped[datetime | None] = mapped_column(Timestamp)
    last_active: Mapped[datetime] = mapped_column(Timestamp, default=now())
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


@dataclass(frozen=True)
class Lease:
    """The right to run a session, until somebody with a higher token takes it."""

    session_id: str
    owner: str
    token: int


@dataclass(frozen=True)
class Admission:
    """What a new message got from its session: its number, and whether somebody must be woken for it."""

    session_id: str
    provider: str | None
    seq: int
    ring: bool


def not_leased() -> ColumnElement[bool]:
    return or_(Session.lease_expires_at.is_(None), Session.lease_expires_at < now())


def not_resting() -> ColumnElement[bool]:
    return or_(Session.resume_after.is_(None), Session.resume_after <= now())


def not_rung(repeat_seconds: float) -> ColumnElement[bool]:
    return or_(Session.woken_at.is_(None), Session.woken_at < now(-repeat_seconds))


async def ensure_session(conn: AsyncConnection, agent_group_id: str, messaging_group_id: str, thread_id: str) -> None:
    """Make the active session of a conversation if there is none. A thousand callers at once make one."""
    await conn.execute(
        insert_ignoring(
            conn,
            Session,
            agent_group_id=agent_group_id,
            messaging_group_id=messaging_group_id,
            thread_id=thread_id,
        )
    )


async def admit(
    conn: AsyncConnection,
    agent_group_id: str,
    messaging_group_id: str,
    thread_id: str,
    *,
    wakes: bool,
    repeat_seconds: float,
) -> Admission | None:
    """Give the next message number of a conversation's active session, and decide whether to ring. None: no session.

    A wake is not needed while one is on its way (younger than `repeat_seconds`), while a worker has the session (it
    looks again before it lets go: `release` tells it) or while the session rests until a later time."""
    ringing = and_(not_leased(), not_resting(), not_rung(repeat_seconds))
    statement = (
        update(Session)
        .where(
            Session.agent_group_id == agent_group_id,
            Session.messaging_group_id == messaging_group_id,
            Session.thread_id == thread_id,
            Session.status == "active",
        )
        .values(
            message_seq=Session.message_seq + 1,
            last_active=now(),
            # Also while leased: that is how the worker learns that there is more.
            woken_at=case((or_(ringing, ~not_leased()), now()), else_=Session.woken_at) if wakes else Session.woken_at,
        )
        # Plain columns, judged below: SQLite gets expressions in RETURNING wrong next to a partial index.
        .returning(
            Session.id,
            Session.provider,
            Session.message_seq,
            Session.woken_at,
            Session.last_active,
            Session.lease_expires_at,
        )
    )
    row = (await conn.execute(statement)).one_or_none()
    if row is None:
        return None
    leased = row.lease_expires_at is not None and row.lease_expires_at >= row.last_active
    # Both were set from one reading of the clock exactly when the bell was set.
    ring = wakes and not leased and row.woken_at == row.last_active
    return Admission(row.id, row.provider, row.message_seq, ring)


async def claim(conn: AsyncConnection, session_id: str, owner: str, lease_seconds: float) -> Row[Any] | None:
    """Take the session if nobody has it. The first event number of the new holder is given out with it.

    None means: nothing is due, somebody has it, it rests, it is closed, or it does not exist. Nothing was changed."""
    due = select(MessageIn.id).where(
        MessageIn.session_id == session_id,
        MessageIn.status.in_(["pending", "processing"]),
        MessageIn.process_after <= now(),
    )
    statement = (
        update(Session)
        .where(Session.id == session_id, Session.status == "active", not_leased(), not_resting(), due.exists())
        .values(
            lease_owner=owner,
            lease_token=Session.lease_token + 1,
            lease_expires_at=now(lease_seconds),
            activity="resuming",
            activity_since=now(),
            woken_at=None,
            resume_after=None,
            event_seq=Session.event_seq + 1,
            turn_seq=Session.turn_seq + 1,
        )
        .returning(
            Session.id,
            Session.agent_group_id,
            Session.provider,
            Session.model,
            Session.continuation,
            Session.lease_token,
            Session.event_seq,
            Session.turn_seq,
        )
    )
    return (await conn.execute(statement)).one_or_none()


async def hold(
    conn: AsyncConnection, lease: Lease, *, activity: str | None = None, messages: int = 0, events: int = 0
) -> tuple[int, int]:
    """Check that the lease is ours and keep it ours until the commit; say what we are doing; take numbers.

    Returns the last message number and the last event number given out."""
    values: dict[str, Any] = {
        "message_seq": Session.message_seq + messages,
        "event_seq": Session.event_seq + events,
    }
    if activity is not None:
        values |= {"activity": activity[:200], "activity_since": now()}
    statement = (
        update(Session)
        .where(Session.id == lease.session_id, Session.lease_token == lease.token, Session.lease_owner == lease.owner)
        .values(values)
        .returning(Session.message_seq, Session.event_seq)
    )
    row = (await conn.execute(statement)).one_or_none()
    if row is None:
        raise LeaseLostError(f"session {lease.session_id}: lease {lease.token} is no longer ours")
    return row.message_seq, row.event_seq


@dataclass(frozen=True)
class Released:
    message_seq: int
    event_seq: int
    more: bool  # somebody rang while we had it


async def release(
    conn: AsyncConnection,
    lease: Lease,
    *,
    messages: int = 0,
    events: int = 0,
    rest_seconds: float | None = None,
    ring: bool = False,
    continuation: dict[str, Any] | None = None,
) -> Released:
    """Let go of the session, as the first statement of the transaction that writes how its turn ended."""
    values: dict[str, Any] = {
        "lease_owner": None,
        "lease_expires_at": None,
        "activity": None,
        "activity_since": now(),
        "message_seq": Session.message_seq + messages,
        "event_seq": Session.event_seq + events,
        # Whoever calls this rings if it must; the mark keeps the sweep from ringing as well.
        "woken_at": now() if ring else case((Session.woken_at.is_not(None), now()), else_=None),
        "resume_after": None if rest_seconds is None else now(rest_seconds),
    }
    if continuation is not None:
        values["continuation"] = continuation
    statement = (
        update(Session)
        .where(Session.id == lease.session_id, Session.lease_token == lease.token, Session.lease_owner == lease.owner)
        .values(values)
        .returning(Session.message_seq, Session.event_seq, Session.woken_at)
    )
    row = (await conn.execute(statement)).one_or_none()
    if row is None:
        raise LeaseLostError(f"session {lease.session_id}: lease {lease.token} is no longer ours")
    return Released(row.message_seq, row.event_seq, more=row.woken_at is not None)


async def renew(conn: AsyncConnection, owner: str, session_ids: list[str], lease_seconds: float) -> set[str]:
    """Extend all leases of one process in one statement. Returns those that are still its own."""
    statement = (
        update(Session)
        .where(Session.lease_owner == owner, Session.id.in_(session_ids))
        .values(lease_expires_at=now(lease_seconds))
        .returning(Session.id)
    )
    return set((await conn.execute(statement)).scalars())


async def may_reach(conn: AsyncConnection, agent_group_id: str, channel_type: str, platform_id: str) -> bool:
    """Whether an agent may send to a place: it is wired there, or has a session there."""
    place = select(MessagingGroup.id).where(
        MessagingGroup.channel_type == channel_type, MessagingGroup.platform_id == platform_id
    )
    wired = select(Wiring.id).where(Wiring.agent_group_id == agent_group_id, Wiring.messaging_group_id.in_(place))
    talks = select(Session.id).where(Session.agent_group_id == agent_group_id, Session.messaging_group_id.in_(place))
    return bool((await conn.execute(select(or_(wired.exists(), talks.exists())))).scalar_one())


async def find_session(conn: AsyncConnection, session_id: str) -> Row[Any] | None:
    query = (
        select(Session.__table__, AgentGroup.folder, AgentGroup.provider.label("group_provider"))
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(Session.id == session_id)
    )
    return (await conn.execute(query)).one_or_none()
