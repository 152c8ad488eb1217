"""What was said (transcript_items, compactions), what it cost (usage) and what happened (events)."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, Integer, Numeric, String, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, Words, given, new_id, now, values
from models.turns import Turn


class TranscriptItem(Base):
    """One item of the conversation in the form every provider can continue."""

    __tablename__ = "transcript_items"
    __table_args__ = (
        CheckConstraint("role IN ('user', 'assistant', 'tool')", name="role"),
        CheckConstraint("type IN ('text', 'tool_call', 'tool_result', 'thinking', 'media')", name="type"),
        Index("ix_transcript_items_session", "session_id", "id"),
    )

    turn_id: Mapped[str] = mapped_column(ForeignKey("turns.id"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    id: Mapped[str] = mapped_column(Id, default=new_id)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    role: Mapped[str] = mapped_column(String(10))
    type: Mapped[str] = mapped_column(String(12))
    content: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class Compaction(Base):
    """A summary that stands for all turns of a session up to one. The turns themselves stay, and are in `archive`."""

    __tablename__ = "compactions"

    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), primary_key=True)
    through_turn: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    summary: Mapped[str] = mapped_column(Words)
    archive: Mapped[str] = mapped_column(String(300))
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class Usage(Base):
    __tablename__ = "usage"
    __table_args__ = (
        Index("ix_usage_group_time", "agent_group_id", "created_at"),
        Index("ix_usage_turn_id", "turn_id"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    agent_group_id: Mapped[str] = mapped_column(ForeignKey("agent_groups.id"))
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    turn_id: Mapped[str] = mapped_column(ForeignKey("turns.id"))
    user_id: Mapped[str | None] = mapped_column(String(255))
    provider: Mapped[str] = mapped_column(String(100))
    model: Mapped[str | None] = mapped_column(String(200))
    input_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    output_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    cache_read_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    cache_write_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    cost_usd: Mapped[Decimal | None] = mapped_column(Numeric(14, 8))
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class Event(Base):
    """A lasting event. The numbers of a session have no gaps, so a reader knows what it missed."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_turn_id", "turn_id"),)

    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    turn_id: Mapped[str | None] = mapped_column(ForeignKey("turns.id"))
    type: Mapped[str] = mapped_column(String(30))
    payload: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


_SUMMARY = (
    select(Compaction.through_turn, Compaction.summary)
    .where(Compaction.session_id == given("session"))
    .order_by(Compaction.through_turn.desc())
    .limit(1)
)
_HISTORY = (
    select(TranscriptItem.role, TranscriptItem.type, TranscriptItem.content, Turn.number)
    .join(Turn, Turn.id == TranscriptItem.turn_id)
    .where(TranscriptItem.session_id == given("session"), Turn.number > given("after"), Turn.number < given("before"))
    # By the turns' numbers and not by time: workers' clocks may differ.
    .order_by(Turn.number, TranscriptItem.position)
)


async def history(conn: AsyncConnection, session_id: str, before_turn: int) -> tuple[str | None, list[AnyRow]]:
    """What a session has said before a turn: a summary of what was compacted, and the items since."""
    compacted = (await conn.execute(_SUMMARY, values(session=session_id))).one_or_none()
    after, summary = (compacted.through_turn, compacted.summary) if compacted is not None else (0, None)
    asked = values(session=session_id, after=after, before=before_turn)
    return summary, list((await conn.execute(_HISTORY, asked)).all())


async def events_after(conn: AsyncConnection, session_id: str, seq: int, limit: int = 500) -> list[AnyRow]:
    query = (
        select(Event.__table__).where(Event.session_id == session_id, Event.seq > seq).order_by(Event.seq).limit(limit)
    )
    return list((await conn.execute(query)).all())
