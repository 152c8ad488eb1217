"""Chats of the `web` channel, which live in our own rows: what was said there, and what agents do there.

A message's place in a chat is when it was delivered, by the database's clock, and its id. Two deliveries may be
committed in the other order than they were timed, so what is younger than SETTLED_SECONDS is given again."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.cards import Card
from models.groups import AgentGroup, MessagingGroup
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.sessions import Session

WEB: Final = "web"
SETTLED_SECONDS: Final = 5.0
LIMIT: Final = 200


@dataclass(frozen=True)
class Cursor:
    """How far somebody has read."""

    at: datetime
    message_id: str

    @classmethod
    def parse(cls, text: str) -> "Cursor | None":
        """None: that is not one of ours."""
        stamp, _, message_id = text.partition("_")
        if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 16 and len(message_id) <= 36):
            return None
        # Not by way of a float, which would lose the microseconds.
        seconds, micros = divmod(int(stamp), 1_000_000)
        if not message_id.isascii() or not message_id.isprintable():
            return None
        return cls(datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros), message_id)

    def __str__(self) -> str:
        return f"{int(self.at.timestamp()) * 1_000_000 + self.at.microsecond}_{self.message_id}"


async def said_in_room(
    conn: AsyncConnection, chat: str, agent_groups: Collection[str] | None, after: Cursor | None
) -> list[AnyRow]:
    """What was delivered to a chat after a point, oldest first, at most LIMIT. `agent_groups`: only what these said."""
    query = _said(chat, agent_groups)
    if after is not None:
        later = or_(
            MessageOut.delivered_at > after.at,
            and_(MessageOut.delivered_at == after.at, MessageOut.id > after.message_id),
            MessageOut.delivered_at > now(-SETTLED_SECONDS),
        )
        query = query.where(later)
    query = query.order_by(MessageOut.delivered_at, MessageOut.id).limit(LIMIT)
    return list((await conn.execute(query)).all())


async def last_said(conn: AsyncConnection, chat: str, limit: int) -> list[AnyRow]:
    """The last that was delivered to a chat, in its order."""
    query = _said(chat, None).order_by(MessageOut.delivered_at.desc(), MessageOut.id.desc()).limit(limit)
    return list(reversed((await conn.execute(query)).all()))


async def last_heard(conn: AsyncConnection, chat: str, limit: int) -> list[AnyRow]:
    """The last that people said in a chat, in its order: by themselves, or handed in for them by another door."""
    here = select(MessageIn.__table__).where(MessageIn.channel_type == WEB, MessageIn.platform_id == chat)
    by_themselves = here.where(MessageIn.platform_message_id.is_not(None))
    # Without an id of the platform's there is an index only by session.
    handed_in = (
        here.join(Session, Session.id == MessageIn.session_id)
        .join(MessagingGroup, MessagingGroup.id == Session.messaging_group_id)
        .where(MessagingGroup.channel_type == WEB, MessagingGroup.platform_id == chat, Session.replay_of.is_(None))
        .where(MessageIn.platform_message_id.is_(None), MessageIn.kind == "chat")
    )
    found: list[AnyRow] = []
    for query in (by_themselves, handed_in):
        latest = query.order_by(MessageIn.created_at.desc(), MessageIn.id.desc()).limit(limit)
        found += (await conn.execute(latest)).all()
    return sorted(found, key=lambda row: (row.created_at, row.id))[-limit:]


async def find_said(
    conn: AsyncConnection, chat: str, agent_groups: Collection[str] | None, message_id: str
) -> AnyRow | None:
    query = _said(chat, agent_groups).where(MessageOut.id == message_id)
    found: AnyRow | None = (await conn.execute(query)).one_or_none()
    return found


def _said(chat: str, agent_groups: Collection[str] | None) -> Select[Any]:
    query = (
        select(MessageOut.__table__, AgentGroup.folder, AgentGroup.name.label("agent_name"))
        .join(Session, Session.id == MessageOut.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(MessageOut.channel_type == WEB, MessageOut.platform_id == chat, MessageOut.status == "delivered")
    )
    return query if agent_groups is None else query.where(Session.agent_group_id.in_(agent_groups))


async def numbered_ids(conn: AsyncConnection, wanted: Collection[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """The ids of messages that others refer to by session and number."""
    if not wanted:
        return {}
    which = or_(*(and_(MessageOut.session_id == session, MessageOut.seq == seq) for session, seq in wanted))
    found = (await conn.execute(select(MessageOut.id, MessageOut.session_id, MessageOut.seq).where(which))).all()
    return {(row.session_id, row.seq): row.id for row in found}


async def closed_cards(conn: AsyncConnection, message_ids: Collection[str]) -> set[str]:
    """Those of the messages whose buttons do nothing any more. What an agent just offers stays open."""
    query = select(Card.message_out_id).where(
        Card.message_out_id.in_(message_ids), Card.status == "closed", Card.kind != "card"
    )
    return set((await conn.execute(query)).scalars())


async def asking_cards(conn: AsyncConnection, message_ids: Collection[str]) -> list[AnyRow]:
    """The cards under these messages that wait for somebody's answer or decision."""
    query = select(Card.__table__).where(Card.message_out_id.in_(message_ids), Card.status == "open")
    return list((await conn.execute(query)).all())


async def room_sessions(conn: AsyncConnection, chat: str, agent_groups: Collection[str] | None) -> list[AnyRow]:
    """The agents' sessions in a chat: what each does, since when, and whether a worker has it (`lease_expires_at` later
    than `at`, the database's time)."""
    query = (
        select(
            AgentGroup.folder,
            Session.id,
            Session.activity,
            Session.activity_since,
            Session.lease_expires_at,
            now().label("at"),
        )
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .join(MessagingGroup, MessagingGroup.id == Session.messaging_group_id)
        .where(MessagingGroup.channel_type == WEB, MessagingGroup.platform_id == chat, Session.status == "active")
        .order_by(Session.last_active.desc())
        .limit(LIMIT)
    )
    if agent_groups is not None:
        query = query.where(Session.agent_group_id.in_(agent_groups))
    return list((await conn.execute(query)).all())
