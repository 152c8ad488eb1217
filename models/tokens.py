"""Tokens: how a person's browser or program says over HTTP who it is. Shown once when made; only the hash is kept."""

import hashlib
import secrets
from datetime import datetime
from typing import Final

from sqlalchemy import ForeignKey, String, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Timestamp, new_id, now
from models.upsert import insert_ignoring

PREFIX: Final = "lst_"  # so that one that got somewhere it should not be is found


class Token(Base):
    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    revoked_at: Mapped[datetime | None] = mapped_column(Timestamp)


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


async def put_token(conn: AsyncConnection, token: str, user_id: str, name: str) -> None:
    """The same one once, also when the transaction is run again."""
    await insert_ignoring(conn, Token, token_hash=_hash(token), user_id=user_id, name=name)


async def user_of_token(conn: AsyncConnection, token: str) -> str | None:
    query = select(Token.user_id).where(Token.token_hash == _hash(token), Token.revoked_at.is_(None))
    return (await conn.execute(query)).scalar_one_or_none()


async def list_tokens(conn: AsyncConnection) -> list[AnyRow]:
    """All there ever were, without their hashes."""
    shown = (Token.id, Token.user_id, Token.name, Token.created_at, Token.revoked_at)
    return list((await conn.execute(select(*shown).order_by(Token.created_at, Token.id))).all())


async def revoke_token(conn: AsyncConnection, token_id: str) -> bool:
    """False: it was revoked before."""
    statement = update(Token).where(Token.id == token_id, Token.revoked_at.is_(None)).values(revoked_at=now())
    return (await conn.execute(statement.returning(Token.id))).one_or_none() is not None


def _hash(token: str) -> str:
    # Plain: a token is 256 random bits, which nobody guesses however fast the hash is.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
