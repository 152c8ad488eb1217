"""messages_out: everything that leaves, each with one idempotency key for all its attempts."""

from datetime import datetime
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
    and_,
    bindparam,
    case,
    exists,
    false,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, aliased, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, Words, given, given_seconds, new_id, now, values
from models.inbox import MessageIn
from models.sessions import Session

KINDS = ("chat", "chat-sdk", "task", "webhook", "system", "notice")

_PENDING = text("status = 'pending'")
# Sent or given up, and to be said again at its next date.
REPEATING = text("recurrence IS NOT NULL AND NOT recurred AND status IN ('delivered', 'failed', 'unknown')")
_IN_SERIES = text("series_id IS NOT NULL")
_SENDING = text("status = 'sending'")
_OPEN = text("status IN ('pending', 'sending')")
_WEB = text("channel_type = 'web'")
_UNDELIVERED = text("status IN ('failed', 'unknown')")


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
        # Whoever removes a message is asked by the database whether anything answers it.
        Index("ix_messages_out_in_reply_to", "in_reply_to"),
        Index("ix_messages_out_repeating", "id", postgresql_where=REPEATING, sqlite_where=REPEATING),
        Index(
            "ix_messages_out_series",
            "series_id",
            "scheduled_for",
            postgresql_where=_IN_SERIES,
            sqlite_where=_IN_SERIES,
        ),
        Index("ix_messages_out_undelivered", "created_at", postgresql_where=_UNDELIVERED, sqlite_where=_UNDELIVERED),
        # Where the row is what people see, it is looked for by its place.
        Index("ix_messages_out_web", "platform_id", "delivered_at", postgresql_where=_WEB, sqlite_where=_WEB),
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
    # The date a schedule names, from which its next is computed; `deliver_after` moves with every try.
    scheduled_for: Mapped[datetime | None] = mapped_column(Timestamp)
    # When somebody last rang for it: the sweep rings again only for what was forgotten.
    rung_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    recurrence: Mapped[str | None] = mapped_column(String(100))
    timezone: Mapped[str] = mapped_column(String(50), default="UTC")
    series_id: Mapped[str | None] = mapped_column(Id)
    recurred: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    channel_type: Mapped[str] = mapped_column(String(50))
    platform_id: Mapped[str] = mapped_column(String(255))
    thread_id: Mapped[str | None] = mapped_column(String(255))
    content: Mapped[dict[str, Any]] = mapped_column(Json)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    claim_token: Mapped[int] = mapped_column(BigInteger, default=0)
    claim_expires_at: Mapped[datetime | None] = mapped_column(Timestamp)
    receipt: Mapped[dict[str, Any] | None] = mapped_column(Json)
    error_class: Mapped[str | None] = mapped_column(String(30))
    error: Mapped[str | None] = mapped_column(Words)
    delivered_at: Mapped[datetime | None] = mapped_column(Timestamp)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


def notice(
    *,
    session_id: str,
    seq: int,
    key: str,
    channel_type: str,
    platform_id: str,
    content: dict[str, Any],
    thread_id: str | None = None,
) -> dict[str, Any]:
    """A row that says something on the fleet's own behalf."""
    return {
        "id": new_id(),
        "session_id": session_id,
        "seq": seq,
        "kind": "notice",
        "idempotency_key": key,
        "channel_type": channel_type,
        "platform_id": platform_id,
        "thread_id": thread_id,
        "content": content,
    }


_table = cast(Table, MessageOut.__table__)
_earlier = aliased(MessageOut)
# A row that waits for its first date (a reminder for tomorrow) holds nobody up; one that was claimed before does. One
# whose date has just come holds up only those like it: an answer does not wait until somebody rings for a reminder.
HELD_UP = exists().where(
    _earlier.session_id == MessageOut.session_id,
    _earlier.channel_type == MessageOut.channel_type,
    _earlier.platform_id == MessageOut.platform_id,
    func.coalesce(_earlier.thread_id, "") == func.coalesce(MessageOut.thread_id, ""),
    _earlier.seq < MessageOut.seq,
    or_(
        _earlier.status == "sending",
        and_(
            _earlier.status == "pending",
            or_(
                _earlier.claim_token > 0,
                and_(
                    _earlier.deliver_after <= now(),
                    or_(_earlier.scheduled_for.is_(None), MessageOut.scheduled_for.is_not(None)),
                ),
            ),
        ),
    ),
)
# Whatever wrote it, what a replay says leaves only if that was wanted.
_DELIVERS = select(Session.delivers).where(Session.id == MessageOut.session_id).scalar_subquery()
WITHHELD = "replay: not delivered"
_CLAIM = (
    update(_table)
    .where(MessageOut.id == given("id"), MessageOut.status == "pending", MessageOut.deliver_after <= now(), ~HELD_UP)
    .values(
        status=case((_DELIVERS, "sending"), else_="cancelled"),
        error=case((_DELIVERS, MessageOut.error), else_=WITHHELD),
        attempts=MessageOut.attempts + 1,
        claim_token=MessageOut.claim_token + 1,
        claim_expires_at=given_seconds("claim"),
    )
    .returning(_table)
)


async def claim_delivery(conn: AsyncConnection, message_id: str, claim_seconds: float) -> AnyRow | None:
    """Take a row for sending, unless it is not due, not pending, or an earlier one to the same place is unfinished. One
    that is not to leave comes back as `cancelled`."""
    claimed: AnyRow | None = (await conn.execute(_CLAIM, values(id=message_id, claim=claim_seconds))).one_or_none()
    return claimed


_DELIVERED = (
    update(_table)
    .where(
        MessageOut.id == given("id"),
        # A receipt also ends what had been called unknown, and what somebody put back meanwhile and nobody took yet.
        or_(
            and_(MessageOut.status.in_(["sending", "pending"]), MessageOut.claim_token == given("token")),
            MessageOut.status == "unknown",
        ),
    )
    .values(
        status="delivered",
        receipt=bindparam("given_receipt", type_=_table.c.receipt.type),
        delivered_at=now(),
        claim_expires_at=None,
        error=None,
        error_class=None,
    )
    .returning(_table.c.id)
)


async def mark_delivered(conn: AsyncConnection, message_id: str, token: int, receipt: dict[str, Any]) -> bool:
    """Write a receipt down, if the sending is still ours (or in doubt)."""
    asked = values(id=message_id, token=token, receipt=receipt)
    return (await conn.execute(_DELIVERED, asked)).one_or_none() is not None


async def settle_delivery(conn: AsyncConnection, message_id: str, token: int, **changes: Any) -> bool:
    """Write down how a sending ended otherwise, if it is still ours."""
    statement = (
        update(MessageOut)
        .where(MessageOut.id == message_id, MessageOut.status == "sending", MessageOut.claim_token == token)
        .values(claim_expires_at=None, **changes)
        .returning(MessageOut.id)
    )
    return (await conn.execute(statement)).one_or_none() is not None


async def note_progress(
    conn: AsyncConnection, message_id: str, token: int, receipt: dict[str, Any], claim_seconds: float
) -> datetime | None:
    """Write down how far a sending has come, and keep it for so long again; returns until when. None: it is no longer
    ours."""
    statement = (
        update(_table)
        .where(MessageOut.id == message_id, MessageOut.status == "sending", MessageOut.claim_token == token)
        .values(receipt=receipt, claim_expires_at=now(claim_seconds))
        .returning(_table.c.claim_expires_at)
    )
    until: datetime | None = (await conn.execute(statement)).scalar_one_or_none()
    return until


async def find_abandoned(conn: AsyncConnection, message_id: str) -> AnyRow | None:
    """A row whose sender has not written down in time how it ended; locked until the commit."""
    query = (
        select(_table)
        .where(MessageOut.id == message_id, MessageOut.status == "sending", MessageOut.claim_expires_at < now())
        .with_for_update()
    )
    return (await conn.execute(query)).one_or_none()


_NEXT = (
    select(_table.c.id)
    .where(
        MessageOut.session_id == given("session"),
        MessageOut.channel_type == given("channel"),
        MessageOut.platform_id == given("place"),
        func.coalesce(MessageOut.thread_id, "") == given("thread"),
        MessageOut.seq > given("seq"),
        MessageOut.status == "pending",
        MessageOut.deliver_after <= now(),
    )
    .order_by(MessageOut.seq)
    .limit(1)
)


async def next_in_line(conn: AsyncConnection, row: AnyRow) -> str | None:
    """The next due message to the same place, which may have been rung for in vain while this one was being sent."""
    place = values(channel=row.channel_type, place=row.platform_id, thread=row.thread_id or "")
    found: str | None = (
        await conn.execute(_NEXT, place | values(session=row.session_id, seq=row.seq))
    ).scalar_one_or_none()
    return found


async def has_left(conn: AsyncConnection, turn_id: str) -> bool:
    """Whether a turn has already said something to somebody (or may have)."""
    query = select(MessageOut.id).where(
        MessageOut.turn_id == turn_id, MessageOut.kind != "notice", MessageOut.status != "cancelled"
    )
    return bool((await conn.execute(select(query.exists()))).scalar_one())


async def platform_message_id(conn: AsyncConnection, session_id: str, number: int) -> str | None:
    """What the platform calls a message of a session, either way; None: it never said."""
    said = select(_table.c.receipt).where(MessageOut.session_id == session_id, MessageOut.seq == number)
    receipt = (await conn.execute(said)).scalar_one_or_none()
    if receipt is not None:
        known: str | None = receipt.get("platform_message_id")
        return known
    heard = select(MessageIn.platform_message_id).where(MessageIn.session_id == session_id, MessageIn.seq == number)
    return (await conn.execute(heard)).scalar_one_or_none()
