"""messages_out: everything that leaves, each with one idempotency key for all its attempts."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    Row,
    String,
    Text,
    UniqueConstraint,
    and_,
    exists,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, aliased, mapped_column

from models.base import Base, Id, Json, Timestamp, new_id, now
from models.sessions import Session

KINDS = ("chat", "chat-sdk", "task", "webhook", "system", "notice")

_PENDING = text("status = 'pending'")
_SENDING = text("status = 'sending'")
_OPEN = text("status IN ('pending', 'sending')")


class MessageOut(Base):
    __tablename__ = "messages_out"
    __table_args__ = (
        CheckConstraint(f"kind IN {KINDS}", name="kind"),
        CheckConstraint(
            "status IN ('pending', 'sending', 'delivered', 'failed', 'unknown', 'cancelled')", name="status"
        ),
        UniqueConstraint("session_id", "seq"),
        UniqueConstraint("idempotency_key"),
        Index("ix_messages_out_due", "deliver_after", postgresql_where=_PENDING, sqlite_where=_PENDING),
        Index("ix_messages_out_sending", "claim_expires_at", postgresql_where=_SENDING, sqlite_where=_SENDING),
        Index("ix_messages_out_order", "session_id", "seq", postgresql_where=_OPEN, sqlite_where=_OPEN),
        Index("ix_messages_out_turn_id", "turn_id"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    turn_id: Mapped[str | None] = mapped_column(ForeignKey("turns.id"))
    seq: Mapped[int] = mapped_column(Integer)
    in_reply_to: Mapped[str | None] = mapped_column(ForeignKey("messages_in.id"))
    kind: Mapped[str] = mapped_column(String(10))
    status: Mapped[str] = mapped_column(String(10), default="pending")
    idempotency_key: Mapped[str] = mapped_column(String(200))
    deliver_after: Mapped[datetime] = mapped_column(Timestamp, default=now())
    # When somebody last rang for it: the sweep rings again only for what was forgotten.
    rung_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    recurrence: Mapped[str | None] = mapped_column(String(100))
    timezone: Mapped[str] = mapped_column(String(50), default="UTC")
    series_id: Mapped[str | None] = mapped_column(Id)
    channel_type: Mapped[str] = mapped_column(String(50))
    platform_id: Mapped[str] = mapped_column(String(255))
    thread_id: Mapped[str | None] = mapped_column(String(255))
    content: Mapped[dict[str, Any]] = mapped_column(Json)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    claim_token: Mapped[int] = mapped_column(BigInteger, default=0)
    claim_expires_at: Mapped[datetime | None] = mapped_column(Timestamp)
    receipt: Mapped[dict[str, Any] | None] = mapped_column(Json)
    error_class: Mapped[str | None] = mapped_column(String(30))
    error: Mapped[str | None] = mapped_column(Text)
    delivered_at: Mapped[datetime | None] = mapped_column(Timestamp)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


def _same_place(one: type[MessageOut], other: type[MessageOut]) -> Any:
    return and_(
        one.session_id == other.session_id,
        one.channel_type == other.channel_type,
        one.platform_id == other.platform_id,
        func.coalesce(one.thread_id, "") == func.coalesce(other.thread_id, ""),
    )


async def claim_delivery(conn: AsyncConnection, message_id: str, claim_seconds: float) -> Row[Any] | None:
    """Take a row for sending, unless it is not due, not pending, or an earlier one to the same place is unfinished."""
    earlier = aliased(MessageOut)
    # A row that waits for its first date (a reminder for tomorrow) holds nobody up; one that waits to be retried does.
    blocked = exists().where(
        _same_place(earlier, MessageOut),
        earlier.seq < MessageOut.seq,
        or_(
            earlier.status == "sending",
            and_(earlier.status == "pending", or_(earlier.attempts > 0, earlier.deliver_after <= now())),
        ),
    )
    statement = (
        update(MessageOut)
        .where(MessageOut.id == message_id, MessageOut.status == "pending", MessageOut.deliver_after <= now(), ~blocked)
        .values(
            status="sending",
            attempts=MessageOut.attempts + 1,
            claim_token=MessageOut.claim_token + 1,
            claim_expires_at=now(claim_seconds),
        )
        .returning(MessageOut.__table__)
    )
    claimed: Row[Any] | None = (await conn.execute(statement)).one_or_none()
    return claimed


async def settle_delivery(conn: AsyncConnection, message_id: str, token: int, **changes: Any) -> bool:
    """Write down how a sending ended, if it is still ours. A receipt also ends what had been called `unknown`."""
    mine = and_(MessageOut.status == "sending", MessageOut.claim_token == token)
    if changes.get("status") == "delivered":
        mine = or_(mine, MessageOut.status == "unknown")
    statement = (
        update(MessageOut).where(MessageOut.id == message_id, mine).values(claim_expires_at=None, **changes)
    ).returning(MessageOut.id)
    return (await conn.execute(statement)).one_or_none() is not None


async def next_in_line(conn: AsyncConnection, row: Row[Any]) -> str | None:
    """The next due message to the same place, which may have been rung for in vain while this one was being sent."""
    query = (
        select(MessageOut.id)
        .where(
            MessageOut.session_id == row.session_id,
            MessageOut.channel_type == row.channel_type,
            MessageOut.platform_id == row.platform_id,
            func.coalesce(MessageOut.thread_id, "") == (row.thread_id or ""),
            MessageOut.seq > row.seq,
            MessageOut.status == "pending",
            MessageOut.deliver_after <= now(),
        )
        .order_by(MessageOut.seq)
        .limit(1)
    )
    return (await conn.execute(query)).scalar_one_or_none()


async def has_left(conn: AsyncConnection, turn_id: str) -> bool:
    """Whether a turn has already said something to somebody (or may have)."""
    query = select(MessageOut.id).where(
        MessageOut.turn_id == turn_id, MessageOut.kind != "notice", MessageOut.status != "cancelled"
    )
    return bool((await conn.execute(select(query.exists()))).scalar_one())


async def delivery_place(conn: AsyncConnection, row: Row[Any]) -> str:
    """The agent group on whose behalf a row is sent."""
    query = select(Session.agent_group_id).where(Session.id == row.session_id)
    return (await conn.execute(query)).scalar_one()
