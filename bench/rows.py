"""Rows that a measurement starts from, written straight into the database, and rows it must have ended with."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.registry import Registry
from models import AgentGroup, MessageIn, MessageOut, MessagingGroup, Session, Turn
from models.base import new_id
from models.database import Database
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import accept
from workers.settings import load_settings

T = TypeVar("T")
GROUP = "bench"
PLACE = "bench"


def in_database(url: str, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    async def run() -> T:
        db = Database(url)
        try:
            return await db.transact(work)
        finally:
            await db.close()

    return asyncio.run(run())


def add_group(url: str, script: str | None = None, provider: str = "scripted", model: str | None = None) -> None:
    """The agent and its place; the script is what its provider plays, if it is the one that plays scripts."""

    async def work(conn: AsyncConnection) -> None:
        config = {"provider_options": {"script": script}} if script is not None else {}
        named = {"id": GROUP, "name": GROUP, "folder": GROUP}
        await conn.execute(insert(AgentGroup).values(**named, provider=provider, model=model, config=config))
        await conn.execute(insert(MessagingGroup).values(id=PLACE, channel_type="local", platform_id=PLACE))

    in_database(url, work)


def add_sessions(url: str, count: int, *, text: str | None) -> list[str]:
    """New conversations, each with one message that is due, or (without a text) with none."""
    ids = [new_id() for _ in range(count)]

    async def work(conn: AsyncConnection) -> None:
        await conn.execute(
            insert(Session),
            [
                {"id": i, "agent_group_id": GROUP, "messaging_group_id": PLACE, "thread_id": i, "message_seq": 1}
                for i in ids
            ],
        )
        if text is not None:
            await conn.execute(insert(MessageIn), [_message(session_id, text) for session_id in ids])

    in_database(url, work)
    return ids


def accept_messages(url: str, count: int) -> list[str]:
    """New conversations, their messages accepted as every door accepts them; nobody has rung for them yet."""

    async def run() -> list[str]:
        db, registry, settings = Database(url), Registry(), load_settings(database_url=url)

        async def one() -> str:
            place = {"channel_type": "local", "platform_id": PLACE, "thread_id": new_id()}
            incoming = parse_incoming({"agent_group": GROUP, "text": "hello", **place})
            return (await accept(db, registry, settings, incoming)).session_id

        try:
            return await asyncio.gather(*(one() for _ in range(count)))
        finally:
            await db.close()

    return asyncio.run(run())


def _message(session_id: str, text: str) -> dict[str, Any]:
    place = {"channel_type": "local", "platform_id": PLACE, "thread_id": session_id}
    return {"id": new_id(), "session_id": session_id, "seq": 1, "kind": "chat", "content": {"text": text}} | place


def count_completed(url: str) -> int:
    return _count(url, select(func.count()).select_from(Turn).where(Turn.status == "completed"))


def count_answered(url: str) -> int:
    """Turns that were completed with exactly one answer."""
    answers = select(func.count()).select_from(MessageOut).where(MessageOut.turn_id == Turn.id).scalar_subquery()
    return _count(url, select(func.count()).select_from(Turn).where(Turn.status == "completed", answers == 1))


def count_delivered(url: str) -> int:
    return _count(url, select(func.count()).select_from(MessageOut).where(MessageOut.status == "delivered"))


def last_delivery(url: str, messages: int) -> float | None:
    """When the last answer was delivered (seconds since the epoch), once so many messages are answered."""

    async def work(conn: AsyncConnection) -> float | None:
        answered = select(func.count()).select_from(MessageIn).where(MessageIn.status == "completed")
        waiting = select(func.count()).select_from(MessageOut).where(MessageOut.status != "delivered")
        if (await conn.execute(answered)).scalar_one() < messages or (await conn.execute(waiting)).scalar_one():
            return None
        last = (await conn.execute(select(func.max(MessageOut.delivered_at)))).scalar_one()
        return last.timestamp() if last is not None else None

    return in_database(url, work)


def count_messages(url: str) -> int:
    return _count(url, select(func.count()).select_from(MessageIn))


def count_running(url: str) -> int:
    return _count(url, select(func.count()).select_from(Turn).where(Turn.status == "running"))


def count_parked(url: str) -> int:
    return _count(url, select(func.count()).select_from(Turn).where(Turn.status == "parked"))


def _count(url: str, query: Any) -> int:
    async def work(conn: AsyncConnection) -> int:
        return int((await conn.execute(query)).scalar_one())

    return in_database(url, work)
