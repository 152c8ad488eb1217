"""Sessions as an overseer asks for them: across conversations, and all of one conversation. Reads only.

A conversation is an agent in a place and thread; it has one session after the other, and the first says when it began.
A replay is nobody's conversation."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Select, and_, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow
from models.groups import AgentGroup, MessagingGroup
from models.inbox import MessageIn
from models.sessions import Session

State = Literal["working", "idle", "closed"]
# What a schedule says comes again by itself, and what the fleet said was for that moment.
SAID_AGAIN: Final = ("chat", "chat-sdk", "webhook")


@dataclass(frozen=True)
class Overseen:
    """`sessions`: the most recently active, at most as many as were asked for. The counts are of all."""

    sessions: list[AnyRow]
    total: int
    conversations: int
    replays: int


async def overseen(
    conn: AsyncConnection, folders: Collection[str], limit: int, begun_since: datetime | None, state: State | None
) -> Overseen:
    """Sessions of these agents. `begun_since`: of conversations that began then or later, however often they have begun
    anew since."""
    query = _sessions(folders, begun_since)
    if state is not None:
        query = query.where(_is(state))
    rows = (await conn.execute(query.order_by(Session.last_active.desc(), Session.id).limit(limit))).all()
    every = query.subquery()
    key = func.coalesce(every.c.messaging_group_id, ""), every.c.thread_id, every.c.agent_group_id
    talked = select(*key).where(every.c.replay_of.is_(None)).distinct().subquery()
    counts = select(
        select(func.count()).select_from(every).scalar_subquery(),
        select(func.count()).select_from(talked).scalar_subquery(),
        select(func.coalesce(func.sum(case((every.c.replay_of.is_not(None), 1), else_=0)), 0)).scalar_subquery(),
    )
    total, conversations, replays = (await conn.execute(counts)).one()
    return Overseen(list(rows), total, conversations, int(replays))


def _sessions(folders: Collection[str], begun_since: datetime | None) -> Select[Any]:
    query = (
        select(Session.__table__, AgentGroup.folder)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(AgentGroup.folder.in_(folders))
    )
    if begun_since is None:
        return query
    key = (Session.agent_group_id, Session.messaging_group_id, Session.thread_id)
    began = (
        select(*key, func.min(Session.created_at).label("at")).where(Session.replay_of.is_(None)).group_by(*key)
    ).subquery()
    same = and_(
        Session.replay_of.is_(None),
        began.c.agent_group_id == Session.agent_group_id,
        began.c.messaging_group_id == Session.messaging_group_id,
        began.c.thread_id == Session.thread_id,
    )
    since = func.coalesce(began.c.at, Session.created_at) >= begun_since
    return query.outerjoin(began, same).where(since)


def _is(state: State) -> ColumnElement[bool]:
    if state == "closed":
        return Session.status == "closed"
    at_work = Session.activity.is_not(None) if state == "working" else Session.activity.is_(None)
    return and_(Session.status == "active", at_work)


async def first_messages(conn: AsyncConnection, sessions: Sequence[str]) -> dict[str, AnyRow]:
    """What each session began with, by its id; without what the fleet itself had to say."""
    first = (
        select(MessageIn.session_id, func.min(MessageIn.seq).label("seq"))
        .where(MessageIn.session_id.in_(sessions), MessageIn.kind != "system")
        .group_by(MessageIn.session_id)
        .subquery()
    )
    query = select(MessageIn.__table__).join(
        first, and_(first.c.session_id == MessageIn.session_id, first.c.seq == MessageIn.seq)
    )
    return {row.session_id: row for row in (await conn.execute(query)).all()}


async def sessions_at(
    conn: AsyncConnection, messaging_group_id: str, thread_id: str, besides: str, limit: int
) -> list[AnyRow]:
    """Those of other agents in a place and thread, open and closed, the latest first, each with its agent's folder."""
    query = (
        select(Session.__table__, AgentGroup.folder)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(
            Session.messaging_group_id == messaging_group_id,
            Session.thread_id == thread_id,
            Session.agent_group_id != besides,
        )
        .order_by(Session.created_at.desc(), Session.id.desc())
        .limit(limit)
    )
    return list((await conn.execute(query)).all())


async def conversations_of(conn: AsyncConnection, agent_group_id: str, limit: int) -> list[AnyRow]:
    """The open sessions of an agent's conversations with people in which something was said, the most recently active
    first. Not those with other agents, where what was asked was answered, nor stages of workflows."""
    taken = select(MessageIn.id).where(
        MessageIn.session_id == Session.id, MessageIn.turn_id.is_not(None), MessageIn.kind.in_(SAID_AGAIN)
    )
    query = (
        select(Session.__table__, AgentGroup.folder)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .join(MessagingGroup, MessagingGroup.id == Session.messaging_group_id)
        .where(
            Session.agent_group_id == agent_group_id,
            Session.status == "active",
            Session.workflow_id.is_(None),
            MessagingGroup.channel_type != "agent",
            taken.exists(),
        )
        .order_by(Session.last_active.desc(), Session.id)
        .limit(limit)
    )
    return list((await conn.execute(query)).all())
