"""Places that nobody has wired: the agent they get by the rules of their channel, once somebody known speaks there."""

from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import InboundMessage
from adapters.registry import Registry
from models.base import AnyRow
from models.groups import Wiring, ensure_messaging_group, find_agent_group, set_place
from models.upsert import insert_ignoring
from workers.access import Standing
from workers.intake import switchboard
from workers.intake.switchboard import Found
from workers.intake.visits import Visit, standing_at

log = structlog.get_logger()


async def registration_of(conn: AsyncConnection, registry: Registry, visit: Visit) -> AnyRow | None:
    """The agent that a place nobody has wired gets by the channel's rules. Strangers register nothing."""
    folder = named_by_channel(registry, visit, known=True)
    agent = await find_agent_group(conn, folder) if folder is not None else None
    if agent is None:
        if folder is not None:
            log.warning("reception.no_such_agent", channel=visit.incoming.channel_type, agent=folder)
        return None
    # Whether they are known depends on the agent, and which agent it is only the channel knows.
    known = await standing_at(conn, visit, agent.id) > Standing.STRANGER
    return agent if named_by_channel(registry, visit, known=known) == folder else None


def named_by_channel(registry: Registry, visit: Visit, *, known: bool) -> str | None:
    """The agent of the channel's rules, by folder."""
    incoming = visit.incoming
    message = InboundMessage(
        platform_id=incoming.platform_id,
        platform_message_id=incoming.message_id or "",
        content=incoming.stored_content(),
        thread_id=incoming.thread_id,
        sender_id=incoming.sender_id,
        sender_name=incoming.sender_name,
        kind=incoming.kind,
        is_mention=incoming.is_mention,
        is_direct=visit.is_direct,
    )
    return registry.channels.get(incoming.channel_type).registers(message, known=known)


def registered_rules(visit: Visit) -> dict[str, Any]:
    """In a group the agent answers when it is called, and follows the thread then."""
    if visit.is_direct:
        return {}
    return {"trigger_rules": {"mentionOnly": True, "sticky": True}, "session_mode": "per-thread"}


async def register(conn: AsyncConnection, visit: Visit, agent: AnyRow) -> Found:
    incoming = visit.incoming
    place = await ensure_messaging_group(conn, incoming.channel_type, incoming.platform_id)
    await set_place(conn, place, is_group=not visit.is_direct)
    who = {"messaging_group_id": place, "agent_group_id": agent.id}
    await insert_ignoring(conn, Wiring, **who, **registered_rules(visit))
    log.info("reception.registered", channel=incoming.channel_type, place=incoming.platform_id, agent=agent.folder)
    return await switchboard.find(conn, incoming, from_outside=True)
