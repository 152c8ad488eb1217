"""Who decides for an agent, in the order in which they are asked, and where they are known to be reached."""

from dataclasses import dataclass, field

from sqlalchemy import and_, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.groups import MessagingGroup
from models.people import User, UserDm, UserRole
from models.quoting import named, quoted


@dataclass
class Decider:
    """`kind`: the platform where they are at home; `chats`: direct chats that are known, by platform."""

    user_id: str
    kind: str
    chats: dict[str, str] = field(default_factory=dict)


async def deciders(conn: AsyncConnection, agent_group_id: str) -> list[list[Decider]]:
    """The agent's own admins, the admins of all agents, the owners; each by id."""
    tiers = (
        and_(UserRole.role == "admin", UserRole.agent_group_id == agent_group_id),
        and_(UserRole.role == "admin", UserRole.agent_group_id.is_(None)),
        UserRole.role == "owner",
    )
    found = []
    for tier in tiers:
        query = (
            select(User.id, User.kind, MessagingGroup.channel_type, MessagingGroup.platform_id)
            .join(UserRole, UserRole.user_id == User.id)
            .outerjoin(UserDm, UserDm.user_id == User.id)
            .outerjoin(MessagingGroup, MessagingGroup.id == UserDm.messaging_group_id)
            .where(tier)
            .order_by(User.id, MessagingGroup.channel_type)
        )
        people: dict[str, Decider] = {}
        for row in (await conn.execute(query)).all():
            decider = people.setdefault(row.id, Decider(row.id, row.kind))
            if row.channel_type is not None:
                decider.chats[row.channel_type] = row.platform_id
        found.append(list(people.values()))
    return found


async def forget_dm(conn: AsyncConnection, user_id: str, channel_type: str, platform_id: str) -> None:
    """They are not reached in that direct chat any more: the platform is asked again the next time."""
    place = select(MessagingGroup.id).where(
        MessagingGroup.channel_type == channel_type, MessagingGroup.platform_id == platform_id
    )
    forgotten = (UserDm.user_id == user_id, UserDm.channel_type == channel_type)
    await conn.execute(delete(UserDm).where(*forgotten, UserDm.messaging_group_id.in_(place)))


async def name_and_id(conn: AsyncConnection, user_id: str) -> str:
    """Where it matters who it is: people choose their names."""
    name = (await conn.execute(select(User.display_name).where(User.id == user_id))).scalar_one_or_none()
    return f"{named(name)} ({quoted(user_id)})" if name else quoted(user_id)


async def name_of(conn: AsyncConnection, user_id: str | None) -> str:
    """As people know somebody, in Markdown: Ada (telegram). Whoever is not a user is called what they are."""
    if user_id is None:
        return "somebody"
    query = select(User.display_name, User.kind).where(User.id == user_id)
    user = (await conn.execute(query)).one_or_none()
    return named(user_id) if user is None or not user.display_name else f"{named(user.display_name)} ({user.kind})"
