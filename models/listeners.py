"""Who listens to a platform that must be asked or held on to: one process at a time, and how far it has heard.

A listener's place is a lease by the database's clock. Each taking has a higher token, and with an older one nothing
can be stored any more: a process that was frozen and wakes up cannot turn back what its successor has heard."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, String, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Json, Timestamp, now
from models.upsert import insert_ignoring


class Listener(Base):
    __tablename__ = "listeners"

    name: Mapped[str] = mapped_column(String(200), primary_key=True)  # 'telegram:123456'
    owner: Mapped[str | None] = mapped_column(String(200))
    token: Mapped[int] = mapped_column(BigInteger, default=0)  # a listener that lost its place can store nothing
    expires_at: Mapped[datetime | None] = mapped_column(Timestamp)
    cursor: Mapped[dict[str, Any] | None] = mapped_column(Json)
    heard_at: Mapped[datetime | None] = mapped_column(Timestamp)


async def claim_listener(conn: AsyncConnection, name: str, owner: str, seconds: float) -> AnyRow | None:
    """Take the place for so many seconds: its `token` and the `cursor` to go on from. None: somebody has it."""
    free = or_(Listener.expires_at.is_(None), Listener.expires_at < now())
    statement = (
        update(Listener)
        .where(Listener.name == name, free)
        .values(owner=owner, token=Listener.token + 1, expires_at=now(seconds))
        .returning(Listener.__table__.c.token, Listener.__table__.c.cursor)
    )
    taken = (await conn.execute(statement)).one_or_none()
    if taken is None and await insert_ignoring(conn, Listener, name=name, token=0):
        taken = (await conn.execute(statement)).one_or_none()
    return taken


async def renew_listener(conn: AsyncConnection, name: str, token: int, seconds: float) -> bool:
    """False: somebody else has the place now."""
    return await _change(conn, _ours(name, token), expires_at=now(seconds))


async def store_cursor(conn: AsyncConnection, name: str, token: int, cursor: dict[str, Any]) -> bool:
    """Write down how far was heard; False: it is no longer ours to say."""
    return await _change(conn, _ours(name, token), cursor=cursor, heard_at=now())


async def release_listener(conn: AsyncConnection, name: str, token: int) -> None:
    """Let the next one in at once."""
    await _change(conn, _ours(name, token), owner=None, expires_at=None)


async def all_listeners(conn: AsyncConnection) -> list[AnyRow]:
    """With `at`, the database's time."""
    query = select(Listener.__table__, now().label("at")).order_by(Listener.name)
    return list((await conn.execute(query)).all())


def _ours(name: str, token: int) -> ColumnElement[bool]:
    return (Listener.name == name) & (Listener.token == token)


async def _change(conn: AsyncConnection, which: ColumnElement[bool], **changes: Any) -> bool:
    statement = update(Listener).where(which).values(**changes).returning(Listener.name)
    return (await conn.execute(statement)).one_or_none() is not None
