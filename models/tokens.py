"""Tokens: how a browser or a program says over HTTP who it is, and what it may be used for. Shown once when it is made;
only the hash is kept.

A token narrows what its bearer may do, and never widens it: their standing with each agent is asked as well."""

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from sqlalchemy import ColumnElement, ForeignKey, String, and_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, given, new_id, now, values
from models.upsert import insert_ignoring

PREFIX: Final = "lst_"  # so that one that got somewhere it should not be is found
Scope = Literal["send", "read", "decide", "operate", "admin"]
# What each is good for, in words for people; the order of all lists of them.
SCOPES: Final[dict[Scope, str]] = {
    "send": "hand in messages, and talk in web chats",
    "read": "look at sessions, tasks, dead letters, usage and the fleet",
    "decide": "approve, deny, and answer questions",
    "operate": "cancel, reset, replay, try again, and change tasks",
    "admin": "set up agents and wirings, and read the audit log",
}
DEFAULT_SCOPES: Final[tuple[Scope, ...]] = ("send", "read", "decide")


class Token(Base):
    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    scopes: Mapped[list[str]] = mapped_column(Json, server_default='["send", "decide"]')
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    expires_at: Mapped[datetime | None] = mapped_column(Timestamp)
    revoked_at: Mapped[datetime | None] = mapped_column(Timestamp)


@dataclass(frozen=True)
class Bearer:
    token_id: str
    user_id: str
    scopes: frozenset[str]


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


async def put_token(
    conn: AsyncConnection,
    token: str,
    user_id: str,
    name: str,
    scopes: Collection[Scope] = DEFAULT_SCOPES,
    expires_at: datetime | None = None,
) -> None:
    """The same one once, also when the transaction is run again."""
    ordered = [scope for scope in SCOPES if scope in scopes]
    row = {"user_id": user_id, "name": name, "scopes": ordered, "expires_at": expires_at}
    await insert_ignoring(conn, Token, token_hash=hash_secret(token), **row)


def is_good() -> ColumnElement[bool]:
    """Neither revoked nor over."""
    return and_(Token.revoked_at.is_(None), or_(Token.expires_at.is_(None), Token.expires_at > now()))


_BEARER: Final = select(Token.id, Token.user_id, Token.scopes).where(Token.token_hash == given("hash"), is_good())


async def find_bearer(conn: AsyncConnection, token: str) -> Bearer | None:
    row = (await conn.execute(_BEARER, values(hash=hash_secret(token)))).one_or_none()
    return Bearer(row.id, row.user_id, frozenset(row.scopes)) if row is not None else None


async def any_token(conn: AsyncConnection) -> bool:
    """Whether anybody could come in by one."""
    return bool((await conn.execute(select(select(Token.id).where(is_good()).exists()))).scalar_one())


async def list_tokens(conn: AsyncConnection) -> list[AnyRow]:
    """All there ever were, without their hashes."""
    shown = (Token.id, Token.user_id, Token.name, Token.scopes, Token.created_at, Token.expires_at, Token.revoked_at)
    return list((await conn.execute(select(*shown).order_by(Token.created_at, Token.id))).all())


async def revoke_token(conn: AsyncConnection, token_id: str) -> bool:
    """False: it was revoked before."""
    statement = update(Token).where(Token.id == token_id, Token.revoked_at.is_(None)).values(revoked_at=now())
    return (await conn.execute(statement.returning(Token.id))).one_or_none() is not None


def hash_secret(token: str) -> str:
    # Plain: a token is 256 random bits, which nobody guesses however fast the hash is.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
