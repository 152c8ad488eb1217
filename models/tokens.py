"""Tokens: how a person's browser or program says over HTTP who it is. Shown once when made; only the hash is kept."""

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Timestamp, new_id, now


class Token(Base):
    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    revoked_at: Mapped[datetime | None] = mapped_column(Timestamp)
