"""Who listens to a platform that must be asked or held on to: one process at a time, and how far it has heard."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Json, Timestamp


class Listener(Base):
    __tablename__ = "listeners"

    name: Mapped[str] = mapped_column(String(200), primary_key=True)  # 'telegram:123456'
    owner: Mapped[str | None] = mapped_column(String(200))
    token: Mapped[int] = mapped_column(BigInteger, default=0)  # a listener that lost its place can store nothing
    expires_at: Mapped[datetime | None] = mapped_column(Timestamp)
    cursor: Mapped[dict[str, Any] | None] = mapped_column(Json)
    heard_at: Mapped[datetime | None] = mapped_column(Timestamp)
