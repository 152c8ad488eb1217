"""Cards: messages with buttons, each bound to what it asks about, where it lies, and to whom an approval was put."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Json, Timestamp, new_id, now

KINDS = ("question", "approval", "card")
_OPEN = text("status = 'open'")


class Card(Base):
    __tablename__ = "cards"
    __table_args__ = (
        CheckConstraint(f"kind IN {KINDS}", name="kind"),
        CheckConstraint("status IN ('open', 'closed')", name="status"),
        Index("ix_cards_place", "channel_type", "platform_id", postgresql_where=_OPEN, sqlite_where=_OPEN),
        Index("ix_cards_subject_id", "subject_id"),
        Index("ix_cards_message_out_id", "message_out_id"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    message_out_id: Mapped[str] = mapped_column(ForeignKey("messages_out.id"))
    kind: Mapped[str] = mapped_column(String(10))
    subject_id: Mapped[str | None] = mapped_column(Id)  # the question or the approval
    payload_hash: Mapped[str | None] = mapped_column(String(64))  # what was shown is what is decided
    user_id: Mapped[str | None] = mapped_column(String(255))  # whom an approval was put to
    channel_type: Mapped[str] = mapped_column(String(50))
    platform_id: Mapped[str] = mapped_column(String(255))
    thread_id: Mapped[str | None] = mapped_column(String(255))
    options: Mapped[list[dict[str, Any]]] = mapped_column(Json)  # label, value
    status: Mapped[str] = mapped_column(String(10), default="open")
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
