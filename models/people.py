"""Users, their roles and memberships, and where to reach them directly."""

from datetime import datetime

from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Index,
    String,
    delete,
    literal,
    select,
    text,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Timestamp, new_id, now
from models.groups import AgentGroup, MessagingGroup
from models.upsert import insert_ignoring, insert_or_update


class User(Base):
    __tablename__ = "users"

    id: Mapped[str] = mapped_column(String(255), primary_key=True)  # 'telegram:123456'
    kind: Mapped[str] = mapped_column(String(50))
    display_name: Mapped[str | None] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class UserRole(Base):
    __tablename__ = "user_roles"
    __table_args__ = (
        CheckConstraint("role IN ('owner', 'admin')", name="role"),
        CheckConstraint("role <> 'owner' OR agent_group_id IS NULL", name="owner_is_global"),
        # NULLs are distinct to a plain unique constraint; a global role must still be unique.
        Index(
            "uq_user_roles_global",
            "user_id",
            "role",
            unique=True,
            postgresql_where=text("agent_group_id IS NULL"),
            sqlite_where=text("agent_group_id IS NULL"),
        ),
        Index(
            "uq_user_roles_scoped",
            "user_id",
            "role",
            "agent_group_id",
            unique=True,
            postgresql_where=text("agent_group_id IS NOT NULL"),
            sqlite_where=text("agent_group_id IS NOT NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    role: Mapped[str] = mapped_column(String(10))
    agent_group_id: Mapped[str | None] = mapped_column(ForeignKey("agent_groups.id"))
    granted_by: Mapped[str | None] = mapped_column(String(255))
    granted_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class AgentGroupMember(Base):
    __tablename__ = "agent_group_members"

    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), primary_key=True)
    agent_group_id: Mapped[str] = mapped_column(ForeignKey("agent_groups.id"), primary_key=True)
    added_by: Mapped[str | None] = mapped_column(String(255))
    added_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class UserDm(Base):
    __tablename__ = "user_dms"

    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), primary_key=True)
    channel_type: Mapped[str] = mapped_column(String(50), primary_key=True)
    messaging_group_id: Mapped[str] = mapped_column(ForeignKey("messaging_groups.id"))
    resolved_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


async def remember_user(conn: AsyncConnection, user_id: str, kind: str, display_name: str | None) -> None:
    known = (await conn.execute(select(User.id).where(User.id == user_id))).scalar_one_or_none()
    if known is None:
        await insert_ignoring(conn, User, id=user_id, kind=kind, display_name=display_name)


async def lock_user(conn: AsyncConnection, user_id: str, kind: str, display_name: str | None) -> None:
    """Until the commit, what somebody is, and what of theirs waits, is looked at by nobody else who asks this first.
    Before any session's row is locked. (What only refers to them does not wait.)"""
    await remember_user(conn, user_id, kind, display_name)
    await conn.execute(select(User.id).where(User.id == user_id).with_for_update(key_share=True))


async def grant(
    conn: AsyncConnection, user_id: str, role: str, agent_group_id: str | None, granted_by: str | None
) -> bool:
    """Make a known user an owner, an admin (of all agents, or of one) or a member of an agent. False: they were one."""
    if role == "member":
        key = {"user_id": user_id, "agent_group_id": agent_group_id}
        return await insert_ignoring(conn, AgentGroupMember, **key, added_by=granted_by)
    key = {"user_id": user_id, "agent_group_id": agent_group_id, "role": role}
    return await insert_ignoring(conn, UserRole, **key, granted_by=granted_by)


async def withdraw(conn: AsyncConnection, user_id: str, role: str | None, agent_group_id: str | None) -> int:
    """Take away a role, or all roles and memberships; only those for one agent if it is given. Returns how many."""
    taken = 0
    if role in (None, "owner", "admin"):
        roles = delete(UserRole).where(UserRole.user_id == user_id)
        roles = roles.where(UserRole.role == role) if role is not None else roles
        roles = roles.where(UserRole.agent_group_id == agent_group_id) if agent_group_id is not None else roles
        taken += len((await conn.execute(roles.returning(UserRole.id))).all())
    if role in (None, "member"):
        members = delete(AgentGroupMember).where(AgentGroupMember.user_id == user_id)
        members = members.where(AgentGroupMember.agent_group_id == agent_group_id) if agent_group_id else members
        taken += len((await conn.execute(members.returning(AgentGroupMember.agent_group_id))).all())
    return taken


async def remember_dm(conn: AsyncConnection, user_id: str, channel_type: str, messaging_group_id: str) -> None:
    """Where a person can be told something directly."""
    key = {"user_id": user_id, "channel_type": channel_type}
    found = {"messaging_group_id": messaging_group_id, "resolved_at": now()}
    await insert_or_update(conn, UserDm, ["user_id", "channel_type"], **key, **found)


async def standings(conn: AsyncConnection, user_id: str | None = None) -> list[AnyRow]:
    """Who is what: user, name, role (owner, admin, member) and agent (None: all), by user."""
    roles = (
        select(UserRole.user_id, UserRole.role.label("role"), AgentGroup.folder, UserRole.granted_by.label("by"))
        .outerjoin(AgentGroup, AgentGroup.id == UserRole.agent_group_id)
        .add_columns(UserRole.granted_at.label("since"))
    )
    members = (
        select(AgentGroupMember.user_id, literal("member").label("role"), AgentGroup.folder)
        .add_columns(AgentGroupMember.added_by.label("by"), AgentGroupMember.added_at.label("since"))
        .join(AgentGroup, AgentGroup.id == AgentGroupMember.agent_group_id)
    )
    found = union_all(roles, members).subquery()
    query = select(found, User.display_name).join(User, User.id == found.c.user_id)
    if user_id is not None:
        query = query.where(found.c.user_id == user_id)
    return list((await conn.execute(query.order_by(found.c.user_id, found.c.role, found.c.folder))).all())


async def find_user(conn: AsyncConnection, user_id: str) -> AnyRow | None:
    return (await conn.execute(select(User.__table__).where(User.id == user_id))).one_or_none()


async def dms_of(conn: AsyncConnection, user_id: str) -> list[AnyRow]:
    query = (
        select(MessagingGroup.channel_type, MessagingGroup.platform_id)
        .join(UserDm, UserDm.messaging_group_id == MessagingGroup.id)
        .where(UserDm.user_id == user_id)
    )
    return list((await conn.execute(query)).all())


async def owner_addresses(conn: AsyncConnection) -> list[tuple[str, str]]:
    """Where the owners can be told something: (channel type, platform id) of each owner's direct chat."""
    return await _addresses(conn, UserRole.role == "owner")


async def _addresses(conn: AsyncConnection, role: ColumnElement[bool]) -> list[tuple[str, str]]:
    query = (
        select(MessagingGroup.channel_type, MessagingGroup.platform_id)
        .join(UserDm, UserDm.messaging_group_id == MessagingGroup.id)
        .join(UserRole, UserRole.user_id == UserDm.user_id)
        .where(role)
        .distinct()
    )
    return [(row.channel_type, row.platform_id) for row in (await conn.execute(query)).all()]
