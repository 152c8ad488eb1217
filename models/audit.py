"""Who did what, through whichever door: one line per act of an operator, written in the act's own transaction.

Words and ids only. What was said in messages, and secrets of any kind, have no place here."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, String, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, new_id, now
from models.groups import AgentGroup


class Audit(Base):
    __tablename__ = "audit"
    __table_args__ = (Index("ix_audit_at", "at", "id"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    who: Mapped[str] = mapped_column(String(255))  # a user, or `cli` for whoever sits at the command line
    act: Mapped[str] = mapped_column(String(50))  # `dead.retry`: what kind of thing, and what was done to it
    # Nothing refers: the line stays when what it speaks of is gone.
    agent_group_id: Mapped[str | None] = mapped_column(Id)
    target: Mapped[str] = mapped_column(String(255))
    detail: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)


async def note(
    conn: AsyncConnection, who: str, act: str, target: str, *, agent_group_id: str | None = None, **detail: Any
) -> None:
    """In the transaction of the act: either both are there or neither."""
    known = {name: value for name, value in detail.items() if value is not None}
    line = {"who": who, "act": act, "target": target[:255], "agent_group_id": agent_group_id, "detail": known}
    await conn.execute(insert(Audit).values(**line))


async def list_audit(
    conn: AsyncConnection,
    limit: int,
    before: str | None = None,
    *,
    who: str | None = None,
    act: str | None = None,
    agent: str | None = None,
) -> list[AnyRow]:
    """The latest first, with the agent's folder; `before`: the id of the last line that was seen. `who` and `act` need
    only be begun (`dead` for all that is done with dead letters); `agent` is a folder."""
    query = select(Audit.__table__, AgentGroup.folder).outerjoin(AgentGroup, AgentGroup.id == Audit.agent_group_id)
    if before is not None:
        query = query.where(Audit.id < before)  # ids sort by time
    for column, begun in ((Audit.who, who), (Audit.act, act)):
        if begun is not None:
            query = query.where(column.startswith(begun, autoescape=True))
    if agent is not None:
        query = query.where(AgentGroup.folder == agent)
    return list((await conn.execute(query.order_by(Audit.id.desc()).limit(limit))).all())
