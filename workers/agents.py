"""Agents write to agents: an outbound row of channel `agent` becomes an inbound row of the other's session, in the
transaction that marks it delivered, so that it arrives exactly once.

Its place names the other agent and, as the thread, a session of theirs. Without one, the two have a conversation per
session of the sender's. An inbound message always belongs to where its session lives: so the answer of an agent that
was asked goes back to the asking session, and the answer of that one goes to its own people."""

from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import ToolError
from models.base import AnyRow
from models.groups import MessagingGroup, ensure_messaging_group, find_agent_group
from models.inbox import MessageIn
from models.outbox import mark_delivered
from models.sessions import Session, admit, ensure_session, find_session
from models.upsert import insert_ignoring

AGENT: Final = "agent"


def hops_of(message: Any) -> int:
    """Through how many agents a request has come. A producer that says so only shortens its own way."""
    said = message.content.get("agent") if message.content else None
    hops = said.get("hops") if isinstance(said, dict) else None
    return hops if isinstance(hops, int) and hops > 0 else 0


async def hand_to_agent(conn: AsyncConnection, row: AnyRow, repeat_seconds: float) -> tuple[str, str | None] | None:
    """Make the outbound row an inbound one of the agent it names. Returns whom to wake, with the provider's name (None:
    the default one); None: somebody is awake. ToolError: there is no such agent or session any more."""
    target = await find_agent_group(conn, row.platform_id)
    sender = await find_session(conn, row.session_id)
    assert sender is not None
    if target is None:
        raise ToolError("that agent is not there any more")
    key = await _conversation(conn, target.id, sender, row.thread_id)
    admission = await admit(conn, *key, wakes=True, repeat_seconds=repeat_seconds)
    if admission is None:
        await ensure_session(conn, *key)
        admission = await admit(conn, *key, wakes=True, repeat_seconds=repeat_seconds)
    assert admission is not None
    place = (await conn.execute(select(MessagingGroup.__table__).where(MessagingGroup.id == key[1]))).one()
    values = {
        "id": row.id,
        "session_id": admission.session_id,
        "agent_group_id": target.id,
        "seq": admission.seq,
        "kind": "chat",
        "channel_type": place.channel_type,
        "platform_id": place.platform_id,
        "thread_id": key[2] or None,
        "content": {
            "text": str(row.content.get("text") or ""),
            "sender": f"agent {sender.folder}",
            "agent": {"from": sender.folder, "hops": await _hops(conn, row)},
        },
    }
    await insert_ignoring(conn, MessageIn, **values)
    receipt = {"session": admission.session_id, "message": admission.seq}
    await mark_delivered(conn, row.id, row.claim_token, receipt)
    return (admission.session_id, admission.provider or target.provider) if admission.ring else None


async def _conversation(
    conn: AsyncConnection, agent_group_id: str, sender: AnyRow, session_id: str | None
) -> tuple[str, str, str]:
    if session_id is None:
        return agent_group_id, await ensure_messaging_group(conn, AGENT, sender.agent_group_id), sender.id
    query = select(Session.messaging_group_id, Session.thread_id).where(
        Session.id == session_id, Session.agent_group_id == agent_group_id
    )
    named = (await conn.execute(query)).one_or_none()
    if named is None or named.messaging_group_id is None:
        raise ToolError("that session is not there any more")
    return agent_group_id, named.messaging_group_id, named.thread_id


async def _hops(conn: AsyncConnection, row: AnyRow) -> int:
    """An answer has come as far as what it answers."""
    if hops := hops_of(row):
        return hops
    query = select(MessageIn.content).where(MessageIn.id == row.in_reply_to)
    asked = (await conn.execute(query)).one_or_none()
    return max(hops_of(asked), 1) if asked is not None else 1
