"""Telling people and agents that something went wrong, as rows in the same transaction that records it."""

from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import new_id
from models.inbox import MessageIn
from models.outbox import MessageOut, notice
from models.upsert import insert_many_ignoring


def owner_notices(
    owners: list[tuple[str, str]], *, session_id: str, first_seq: int, key: str, text: str
) -> list[dict[str, Any]]:
    """A row for each owner who can be reached."""
    return [
        notice(
            session_id=session_id,
            seq=first_seq + number,
            key=f"{key}:owner:{number}",
            channel_type=channel,
            platform_id=place,
            content={"text": text},
        )
        for number, (channel, place) in enumerate(owners)
    ]


async def store_notices(conn: AsyncConnection, rows: list[dict[str, Any]]) -> list[str]:
    """Write them, each once whatever happens; returns the ids to ring for."""
    written = await insert_many_ignoring(conn, MessageOut, rows)
    return [row["id"] for row in rows if row["id"] in written]


async def tell_agent(conn: AsyncConnection, *, session_id: str, seq: int, place: Any, content: dict[str, Any]) -> None:
    """A system message for the agent's next turn; it does not start one."""
    await conn.execute(
        insert(MessageIn).values(
            id=new_id(),
            session_id=session_id,
            seq=seq,
            kind="system",
            wakes=False,
            channel_type=place.channel_type,
            platform_id=place.platform_id,
            thread_id=place.thread_id,
            content=content,
        )
    )
