"""What waits for a person: questions an agent asked and approvals a risky call needs."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Json, Timestamp, Words, new_id, now

_PENDING = text("status = 'pending'")


class PendingQuestion(Base):
    __tablename__ = "pending_questions"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'answered', 'expired')", name="status"),
        Index("ix_pending_questions_expiry", "expires_at", postgresql_where=_PENDING, sqlite_where=_PENDING),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    turn_id: Mapped[str | None] = mapped_column(ForeignKey("turns.id"))
    message_out_id: Mapped[str] = mapped_column(ForeignKey("messages_out.id"))
    channel_type: Mapped[str] = mapped_column(String(50))
    platform_id: Mapped[str] = mapped_column(String(255))
    thread_id: Mapped[str | None] = mapped_column(String(255))
    question: Mapped[dict[str, Any]] = mapped_column(Json)  # title, text, options
    status: Mapped[str] = mapped_column(String(10), default="pending")
    answer: Mapped[str | None] = mapped_column(Words)
    answered_by: Mapped[str | None] = mapped_column(String(255))
    expires_at: Mapped[datetime] = mapped_column(Timestamp)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class Approval(Base):
    __tablename__ = "approvals"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'approved', 'denied', 'expired', 'used')", name="status"),
        CheckConstraint("risk IN ('low', 'medium', 'high')", name="risk"),
        Index("ix_approvals_expiry", "expires_at", postgresql_where=_PENDING, sqlite_where=_PENDING),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    turn_id: Mapped[str | None] = mapped_column(ForeignKey("turns.id"))
    category: Mapped[str] = mapped_column(String(50))
    summary: Mapped[str] = mapped_column(Words)
    risk: Mapped[str] = mapped_column(String(10))
    payload: Mapped[dict[str, Any]] = mapped_column(Json)
    payload_hash: Mapped[str] = mapped_column(String(64))  # what is approved is exactly this payload
    status: Mapped[str] = mapped_column(String(10), default="pending")
    decided_by: Mapped[str | None] = mapped_column(String(255))
    decided_at: Mapped[datetime | None] = mapped_column(Timestamp)
    expires_at: Mapped[datetime] = mapped_column(Timestamp)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
