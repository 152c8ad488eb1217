"""What the fleet itself says to people, where no agent speaks: to strangers, about commands, about codes.

It is a session like any other, of an agent that never runs, so what it says is a row with a key: delivered once, in
order, with retries and a receipt."""

import json
import uuid
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.groups import AgentGroup, ensure_messaging_group, find_agent_group
from models.outbox import MessageOut, notice
from models.sessions import ensure_session, find_active_session, take_numbers
from models.upsert import insert_ignoring

FOLDER: Final = ".front-desk"  # no agent that people make begins with a dot


def key_of(*what: str | None) -> str:
    """A key for what is said because of this, however long the parts are."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(what)))


async def say(
    conn: AsyncConnection, *, channel_type: str, platform_id: str, thread_id: str | None, text: str, key: str
) -> str | None:
    """Write a notice to a place; returns the row to ring for. None: what has this key was said before."""
    session_id = await _session(conn, channel_type, platform_id)
    seq = await take_numbers(conn, session_id, 1)
    row = notice(
        session_id=session_id,
        seq=seq,
        key=_stored(key),
        channel_type=channel_type,
        platform_id=platform_id,
        thread_id=thread_id,
        content={"text": text},
    )
    return str(row["id"]) if await insert_ignoring(conn, MessageOut, **row) else None


async def has_said(conn: AsyncConnection, key: str) -> bool:
    query = select(MessageOut.id).where(MessageOut.idempotency_key == _stored(key))
    return (await conn.execute(query)).one_or_none() is not None


def _stored(key: str) -> str:
    return f"desk:{key}"[:200]


async def _session(conn: AsyncConnection, channel_type: str, platform_id: str) -> str:
    desk = await find_agent_group(conn, FOLDER)
    if desk is None:
        await insert_ignoring(conn, AgentGroup, name="Front desk", folder=FOLDER)
        desk = await find_agent_group(conn, FOLDER)
        assert desk is not None
    place = await ensure_messaging_group(conn, channel_type, platform_id)
    session_id = await find_active_session(conn, desk.id, place, "")
    if session_id is None:
        await ensure_session(conn, desk.id, place, "")
        session_id = await find_active_session(conn, desk.id, place, "")
        assert session_id is not None, "a session that was just made is there"
    return session_id
