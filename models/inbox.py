"""messages_in: everything an agent is asked, from acceptance to answer. A retry and a schedule are dates on a row."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    Row,
    String,
    Text,
    UniqueConstraint,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Json, Timestamp, new_id, now

KINDS = ("chat", "chat-sdk", "task", "webhook", "system")
# A message that failed this often no longer shares a turn: a poisonous neighbour must not take it along.
TRAVELS_ALONE_AFTER = 2
BATCH_LIMIT = 100

_PENDING = text("status = 'pending'")
_OPEN = text("status IN ('pending', 'processing')")
_RECURRING = text("recurrence IS NOT NULL AND NOT recurred AND status IN ('completed', 'failed')")
_DEAD = text("status = 'failed'")


class MessageIn(Base):
    __tablename__ = "messages_in"
    __table_args__ = (
        CheckConstraint(f"kind IN {KINDS}", name="kind"),
        CheckConstraint(
            "status IN ('pending', 'processing', 'completed', 'failed', 'paused', 'discarded')", name="status"
        ),
        UniqueConstraint("session_id", "seq"),
        UniqueConstraint("series_id", "process_after"),
        Index(
            "uq_messages_in_platform_message",
            "channel_type",
            "platform_id",
            "platform_message_id",
            unique=True,
            postgresql_where=text("platform_message_id IS NOT NULL"),
            sqlite_where=text("platform_message_id IS NOT NULL"),
        ),
        # These hold only rows that still need something: finished rows cost the sweep nothing.
        Index("ix_messages_in_due", "process_after", "session_id", postgresql_where=_PENDING, sqlite_where=_PENDING),
        Index("ix_messages_in_open", "session_id", "seq", postgresql_where=_OPEN, sqlite_where=_OPEN),
        Index("ix_messages_in_recurring", "id", postgresql_where=_RECURRING, sqlite_where=_RECURRING),
        Index("ix_messages_in_dead", "status_changed_at", postgresql_where=_DEAD, sqlite_where=_DEAD),
        Index("ix_messages_in_turn_id", "turn_id"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    seq: Mapped[int] = mapped_column(Integer)
    kind: Mapped[str] = mapped_column(String(10))
    status: Mapped[str] = mapped_column(String(10), default="pending")
    status_changed_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    # False: rides along with the next turn, does not start one.
    wakes: Mapped[bool] = mapped_column(Boolean, default=True)
    process_after: Mapped[datetime] = mapped_column(Timestamp, default=now())
    recurrence: Mapped[str | None] = mapped_column(String(100))
    timezone: Mapped[str] = mapped_column(String(50), default="UTC")
    series_id: Mapped[str | None] = mapped_column(Id)
    recurred: Mapped[bool] = mapped_column(Boolean, default=False)
    tries: Mapped[int] = mapped_column(Integer, default=0)
    turn_id: Mapped[str | None] = mapped_column(ForeignKey("turns.id"))
    # Where it came from, and so where the answer goes. Never shown to the agent.
    channel_type: Mapped[str] = mapped_column(String(50))
    platform_id: Mapped[str] = mapped_column(String(255))
    thread_id: Mapped[str | None] = mapped_column(String(255))
    platform_message_id: Mapped[str | None] = mapped_column(String(255))
    sender_id: Mapped[str | None] = mapped_column(String(255))
    content: Mapped[dict[str, Any]] = mapped_column(Json)
    error_class: Mapped[str | None] = mapped_column(String(30))
    error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


_SHOWN = (
    MessageIn.id,
    MessageIn.seq,
    MessageIn.kind,
    MessageIn.tries,
    MessageIn.process_after,
    MessageIn.recurrence,
    MessageIn.channel_type,
    MessageIn.platform_id,
    MessageIn.thread_id,
    MessageIn.sender_id,
    MessageIn.content,
    MessageIn.created_at,
)


async def due_batch(conn: AsyncConnection, session_id: str) -> list[Row[Any]]:
    """The pending messages one turn should take, in order. Empty unless at least one of them starts a turn."""
    query = (
        select(*_SHOWN, MessageIn.wakes)
        .where(
            MessageIn.session_id == session_id,
            MessageIn.status == "pending",
            MessageIn.process_after <= now(),
        )
        .order_by(MessageIn.seq)
        .limit(BATCH_LIMIT)
    )
    rows = list((await conn.execute(query)).all())
    for position, row in enumerate(rows):
        if row.tries >= TRAVELS_ALONE_AFTER:
            rows = rows[:position] or rows[:1]
            break
    return rows if any(row.wakes for row in rows) else []


async def messages_of_turn(conn: AsyncConnection, turn_id: str) -> list[Row[Any]]:
    query = select(*_SHOWN).where(MessageIn.turn_id == turn_id).order_by(MessageIn.seq)
    return list((await conn.execute(query)).all())


async def begin_processing(conn: AsyncConnection, message_ids: list[str], turn_id: str) -> None:
    await conn.execute(
        update(MessageIn)
        .where(MessageIn.id.in_(message_ids))
        .values(status="processing", status_changed_at=now(), tries=MessageIn.tries + 1, turn_id=turn_id)
    )


async def settle(conn: AsyncConnection, of_turn: str, status: str, **changes: Any) -> None:
    """Move all messages of a turn to a new status."""
    await conn.execute(
        update(MessageIn).where(MessageIn.turn_id == of_turn).values(status=status, status_changed_at=now(), **changes)
    )
