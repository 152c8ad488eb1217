"""Threads an agent follows: it was called there once, and goes on listening without being called again."""

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Timestamp, now


class Engagement(Base):
    __tablename__ = "engagements"

    agent_group_id: Mapped[str] = mapped_column(ForeignKey("agent_groups.id"), primary_key=True)
    messaging_group_id: Mapped[str] = mapped_column(ForeignKey("messaging_groups.id"), primary_key=True)
    thread_id: Mapped[str] = mapped_column(String(255), primary_key=True)
    since: Mapped[datetime] = mapped_column(Timestamp, default=now())
