"""Browsers that are signed in to the console, and the one-time links that sign one in. Only hashes are kept.

A browser that came in by a token is out as soon as the token is revoked or over."""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import CheckConstraint, ColumnElement, ForeignKey, String, and_, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Json, Timestamp, new_id, now
from models.tokens import Bearer, Token, hash_secret, is_good

LINK_SECONDS: Final = 15 * 60.0
BROWSER_SECONDS: Final = 12 * 3600.0


class SignIn(Base):
    __tablename__ = "sign_ins"
    __table_args__ = (CheckConstraint("kind IN ('link', 'browser')", name="kind"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    kind: Mapped[str] = mapped_column(String(10))
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    token_id: Mapped[str | None] = mapped_column(ForeignKey("tokens.id"))
    scopes: Mapped[list[str]] = mapped_column(Json)
    expires_at: Mapped[datetime] = mapped_column(Timestamp, index=True)
    used_at: Mapped[datetime | None] = mapped_column(Timestamp)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


@dataclass(frozen=True)
class Visitor:
    """Who a browser is signed in as."""

    sign_in_id: str
    user_id: str
    scopes: frozenset[str]


def new_secret() -> str:
    return secrets.token_urlsafe(32)


async def put_link(conn: AsyncConnection, secret: str, user_id: str, scopes: Collection[str]) -> None:
    """A link that signs one browser in, once."""
    values = {"kind": "link", "secret_hash": hash_secret(secret), "user_id": user_id, "scopes": sorted(scopes)}
    await conn.execute(insert(SignIn).values(**values, expires_at=now(LINK_SECONDS)))


async def find_link(conn: AsyncConnection, secret: str) -> bool:
    """Whether it would sign somebody in; without a lock, for whoever guesses."""
    return bool((await conn.execute(select(select(SignIn.id).where(_is_open(secret)).exists()))).scalar_one())


async def use_link(conn: AsyncConnection, secret: str, browser_secret: str) -> str | None:
    """The first in time is signed in, and this is who they are. None: there is no such link, it is over, or somebody
    had it."""
    statement = update(SignIn).where(_is_open(secret)).values(used_at=now()).returning(SignIn.user_id, SignIn.scopes)
    link = (await conn.execute(statement)).one_or_none()
    if link is None:
        return None
    await _put_browser(conn, browser_secret, user_id=link.user_id, scopes=link.scopes, token_id=None)
    return str(link.user_id)


def _is_open(secret: str) -> ColumnElement[bool]:
    """A link that nobody has used, and that is not over."""
    this = and_(SignIn.secret_hash == hash_secret(secret), SignIn.kind == "link")
    return and_(this, SignIn.used_at.is_(None), SignIn.expires_at > now())


async def sign_in(conn: AsyncConnection, browser_secret: str, bearer: Bearer) -> None:
    """By a token, which stays its measure."""
    user_id, scopes, token_id = bearer.user_id, sorted(bearer.scopes), bearer.token_id
    await _put_browser(conn, browser_secret, user_id=user_id, scopes=scopes, token_id=token_id)


async def _put_browser(conn: AsyncConnection, secret: str, **values: object) -> None:
    # Those that are over are of no use to anybody.
    await conn.execute(delete(SignIn).where(SignIn.expires_at < now()))
    await conn.execute(
        insert(SignIn).values(
            kind="browser", secret_hash=hash_secret(secret), expires_at=now(BROWSER_SECONDS), **values
        )
    )


async def find_visitor(conn: AsyncConnection, browser_secret: str) -> Visitor | None:
    query = (
        select(SignIn.id, SignIn.user_id, SignIn.scopes)
        .outerjoin(Token, Token.id == SignIn.token_id)
        .where(
            SignIn.secret_hash == hash_secret(browser_secret),
            SignIn.kind == "browser",
            SignIn.expires_at > now(),
            or_(SignIn.token_id.is_(None), is_good()),
        )
    )
    row = (await conn.execute(query)).one_or_none()
    return Visitor(row.id, row.user_id, frozenset(row.scopes)) if row is not None else None


async def sign_out(conn: AsyncConnection, sign_in_id: str) -> None:
    await conn.execute(delete(SignIn).where(SignIn.id == sign_in_id))


async def sign_out_everywhere(conn: AsyncConnection, user_id: str) -> int:
    """Every browser of somebody, and every link that would let one in. How many browsers there were."""
    mine = delete(SignIn).where(SignIn.user_id == user_id)
    await conn.execute(mine.where(or_(SignIn.kind == "link", SignIn.expires_at <= now())))
    return (await conn.execute(mine)).rowcount
