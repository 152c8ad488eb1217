"""Threads an agent follows: it was called there once, and goes on listening without being called again."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ForeignKey, String, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Timestamp, now
from models.upsert import insert_ignoring


class Engagement(Base):
    __tablename__ = "engagements"

    agent_group_id: Mapped[str] = mapped_column(ForeignKey("agent_groups.id"), primary_key=True)
    messaging_group_id: Mapped[str] = mapped_column(ForeignKey("messaging_groups.id"), primary_key=True)
    thread_id: Mapped[str] = mapped_column(String(255), primary_key=True)
    since: Mapped[datetime] = mapped_column(Timestamp, default=now())


async def follow(conn: AsyncConnection, agent_group_id: str, messaging_group_id: str, thread_id: str) -> None:
    key = {"agent_group_id": agent_group_id, "messaging_group_id": messaging_group_id, "thread_id": thread_id}
    await insert_ignoring(conn, Engagement, **key)


async def followers(
    conn: AsyncConnection, agent_group_ids: Collection[str], messaging_group_id: str, thread_id: str
) -> frozenset[str]:
    """Those of the agents that follow the thread."""
    query = select(Engagement.agent_group_id).where(
        Engagement.agent_group_id.in_(agent_group_ids),
        Engagement.messaging_group_id == messaging_group_id,
        Engagement.thread_id == thread_id,
    )
    return frozenset((await conn.execute(query)).scalars())
