"""Agents (agent_groups), places on platforms (messaging_groups) and which agent listens where (wirings)."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Integer,
    Select,
    String,
    UniqueConstraint,
    delete,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import InstrumentedAttribute, Mapped, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, given, new_id, now, values
from models.upsert import insert_ignoring

# What becomes of a message that comes while the agent works: it joins the turn; it interrupts what is being said; it is
# refused; it waits for a turn of its own.
FOLLOW_UPS = ("enqueue", "interrupt", "reject", "separate")


class AgentGroup(Base):
    __tablename__ = "agent_groups"

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(200))
    folder: Mapped[str] = mapped_column(String(100), unique=True)
    provider: Mapped[str | None] = mapped_column(String(100))
    model: Mapped[str | None] = mapped_column(String(200))
    config: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class MessagingGroup(Base):
    __tablename__ = "messaging_groups"
    __table_args__ = (
        UniqueConstraint("channel_type", "platform_id"),
        CheckConstraint(
            "unknown_sender_policy IN ('strict', 'request_approval', 'public')", name="unknown_sender_policy"
        ),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    channel_type: Mapped[str] = mapped_column(String(50))
    platform_id: Mapped[str] = mapped_column(String(255))
    name: Mapped[str | None] = mapped_column(String(200))
    is_group: Mapped[bool] = mapped_column(Boolean, default=False)
    unknown_sender_policy: Mapped[str] = mapped_column(String(20), default="strict")
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class Wiring(Base):
    __tablename__ = "messaging_group_agents"
    __table_args__ = (
        UniqueConstraint("messaging_group_id", "agent_group_id"),
        CheckConstraint("response_scope IN ('all', 'triggered', 'allowlisted')", name="response_scope"),
        CheckConstraint("session_mode IN ('shared', 'per-thread')", name="session_mode"),
        CheckConstraint(f"follow_up IN {FOLLOW_UPS}", name="follow_up"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    messaging_group_id: Mapped[str] = mapped_column(ForeignKey("messaging_groups.id"))
    agent_group_id: Mapped[str] = mapped_column(ForeignKey("agent_groups.id"), index=True)
    trigger_rules: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    response_scope: Mapped[str] = mapped_column(String(20), default="all")
    session_mode: Mapped[str] = mapped_column(String(20), default="shared")
    priority: Mapped[int] = mapped_column(Integer, default=0)
    follow_up: Mapped[str] = mapped_column(String(10), default="enqueue")
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


_FIND = select(AgentGroup.__table__).where(or_(AgentGroup.folder == given("handle"), AgentGroup.id == given("handle")))
_PLACE = select(MessagingGroup.id).where(
    MessagingGroup.channel_type == given("channel"), MessagingGroup.platform_id == given("place")
)
_WHOLE_PLACE = select(MessagingGroup.__table__).where(
    MessagingGroup.channel_type == given("channel"), MessagingGroup.platform_id == given("place")
)
_RUNS = select(AgentGroup.folder, AgentGroup.name, AgentGroup.provider, AgentGroup.model, AgentGroup.config).where(
    AgentGroup.id == given("id")
)


async def find_agent_group(conn: AsyncConnection, handle: str) -> AnyRow | None:
    """By folder (the name people type) or by id."""
    return (await conn.execute(_FIND, values(handle=handle))).one_or_none()


def is_ours(folder: str) -> bool:
    """Whether it is one of the fleet's own, which begin with a dot and never run."""
    return folder.startswith(".")


async def how_it_runs(conn: AsyncConnection, agent_group_id: str) -> AnyRow:
    """What a turn needs to know of its agent."""
    return (await conn.execute(_RUNS, values(id=agent_group_id))).one()


async def agent_groups(conn: AsyncConnection) -> list[AnyRow]:
    """Without the fleet's own, which begin with a dot and never run."""
    query = select(AgentGroup.__table__).where(~AgentGroup.folder.startswith(".")).order_by(AgentGroup.folder)
    return list((await conn.execute(query)).all())


async def agent_folders(conn: AsyncConnection) -> list[str]:
    """Without the fleet's own, which begin with a dot and never run."""
    query = select(AgentGroup.folder).where(~AgentGroup.folder.startswith(".")).order_by(AgentGroup.folder)
    return list((await conn.execute(query)).scalars())


async def ensure_messaging_group(conn: AsyncConnection, channel_type: str, platform_id: str) -> str:
    """The id of the place, made if it is new. Any number of callers at once make one row."""
    asked = values(channel=channel_type, place=platform_id)
    found = (await conn.execute(_PLACE, asked)).scalar_one_or_none()
    if found is None:
        await insert_ignoring(conn, MessagingGroup, channel_type=channel_type, platform_id=platform_id)
        found = (await conn.execute(_PLACE, asked)).scalar_one()
    return found


async def find_place(conn: AsyncConnection, channel_type: str, platform_id: str) -> AnyRow | None:
    return (await conn.execute(_WHOLE_PLACE, values(channel=channel_type, place=platform_id))).one_or_none()


async def set_place(conn: AsyncConnection, messaging_group_id: str, **changes: Any) -> None:
    await conn.execute(update(MessagingGroup).where(MessagingGroup.id == messaging_group_id).values(**changes))


_WIRINGS = (
    select(
        Wiring.messaging_group_id,
        Wiring.agent_group_id,
        Wiring.trigger_rules,
        Wiring.response_scope,
        Wiring.session_mode,
        Wiring.follow_up,
        Wiring.priority,
        MessagingGroup.unknown_sender_policy,
        AgentGroup.folder,
        AgentGroup.provider,
        AgentGroup.config,
    )
    .join(MessagingGroup, MessagingGroup.id == Wiring.messaging_group_id)
    .join(AgentGroup, AgentGroup.id == Wiring.agent_group_id)
    .where(MessagingGroup.channel_type == given("channel"), MessagingGroup.platform_id == given("place"))
    .order_by(Wiring.priority.desc(), Wiring.created_at, Wiring.id)
)


async def wirings_of(conn: AsyncConnection, channel_type: str, platform_id: str) -> list[AnyRow]:
    """Which agents listen in a place, the first to be asked first."""
    return list((await conn.execute(_WIRINGS, values(channel=channel_type, place=platform_id))).all())


def _whole_wirings() -> Select[Any]:
    return (
        select(Wiring.__table__, MessagingGroup.channel_type, MessagingGroup.platform_id, AgentGroup.folder)
        .add_columns(MessagingGroup.unknown_sender_policy)
        .join(MessagingGroup, MessagingGroup.id == Wiring.messaging_group_id)
        .join(AgentGroup, AgentGroup.id == Wiring.agent_group_id)
    )


async def all_wirings(conn: AsyncConnection) -> list[AnyRow]:
    """By place, each in the order in which its agents are asked."""
    query = _whole_wirings().order_by(
        MessagingGroup.channel_type,
        MessagingGroup.platform_id,
        Wiring.priority.desc(),
        Wiring.created_at,
        Wiring.id,
    )
    return list((await conn.execute(query)).all())


async def wirings_page(
    conn: AsyncConnection,
    mine: Callable[[InstrumentedAttribute[str]], ColumnElement[bool]],
    limit: int,
    after: str | None = None,
) -> list[AnyRow]:
    """The same by id, which sorts by when they were made; `after`: the last id that was seen."""
    query = _whole_wirings().where(mine(Wiring.agent_group_id), Wiring.id > (after or ""))
    return list((await conn.execute(query.order_by(Wiring.id).limit(limit))).all())


async def find_wiring(conn: AsyncConnection, wiring_id: str) -> AnyRow | None:
    found: AnyRow | None = (await conn.execute(_whole_wirings().where(Wiring.id == wiring_id))).one_or_none()
    return found


async def wiring_at(conn: AsyncConnection, folder: str, channel_type: str, platform_id: str) -> AnyRow | None:
    place = (MessagingGroup.channel_type == channel_type, MessagingGroup.platform_id == platform_id)
    query = _whole_wirings().where(AgentGroup.folder == folder, *place)
    found: AnyRow | None = (await conn.execute(query)).one_or_none()
    return found


async def remove_wiring(conn: AsyncConnection, messaging_group_id: str, agent_group_id: str) -> bool:
    statement = delete(Wiring).where(
        Wiring.messaging_group_id == messaging_group_id, Wiring.agent_group_id == agent_group_id
    )
    return (await conn.execute(statement.returning(Wiring.id))).one_or_none() is not None
