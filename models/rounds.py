"""Upkeep that is done in rounds: however many ring for one, and however late, it begins at most once in a while."""

from datetime import datetime
from typing import Final

from sqlalchemy import String, or_, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Timestamp, now
from models.upsert import insert_ignoring

CLOCK_SECONDS: Final = 60.0


class Round(Base):
    __tablename__ = "rounds"

    name: Mapped[str] = mapped_column(String(50), primary_key=True)
    began_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


async def begin_round(conn: AsyncConnection, name: str, seconds: float) -> bool:
    """Whether this caller does it. False: another has begun within the last seconds, by the database's clock."""
    # Or in the future, by more than those who begin at once differ: the database's clock was set back since.
    over = or_(Round.began_at <= now(-seconds), Round.began_at > now(seconds + CLOCK_SECONDS))
    again = update(Round).where(Round.name == name, over).values(began_at=now())
    if (await conn.execute(again.returning(Round.name))).one_or_none() is not None:
        return True
    return await insert_ignoring(conn, Round, name=name)
