"""One-time codes: whoever writes one to an agent's account becomes what it says. Only its hash is kept."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Timestamp, new_id, now
from models.upsert import insert_or_update


class Invitation(Base):
    __tablename__ = "invitations"
    __table_args__ = (
        CheckConstraint("role IN ('owner', 'admin', 'member')", name="role"),
        CheckConstraint("role <> 'owner' OR agent_group_id IS NULL", name="owner_is_global"),
        CheckConstraint("role <> 'member' OR agent_group_id IS NOT NULL", name="member_of_an_agent"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    code_hash: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(10))
    agent_group_id: Mapped[str | None] = mapped_column(ForeignKey("agent_groups.id"))
    expires_at: Mapped[datetime] = mapped_column(Timestamp)
    used_by: Mapped[str | None] = mapped_column(String(255))
    used_at: Mapped[datetime | None] = mapped_column(Timestamp)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class WrongCode(Base):
    """That somebody tried a code that was not one, for as long as it counts."""

    __tablename__ = "wrong_codes"
    __table_args__ = (Index("ix_wrong_codes_user", "user_id", "created_at"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    user_id: Mapped[str] = mapped_column(String(255))
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


async def put_invitation(
    conn: AsyncConnection, code_hash: str, role: str, agent_group_id: str | None, seconds: float
) -> None:
    """The same one once, also when the transaction is run again."""
    key = {"code_hash": code_hash, "role": role, "agent_group_id": agent_group_id}
    await insert_or_update(conn, Invitation, ["code_hash"], **key, expires_at=now(seconds))


async def use_invitation(conn: AsyncConnection, code_hash: str, used_by: str) -> AnyRow | None:
    """The first in time has it. None: there is none, it is over, or somebody had it."""
    statement = (
        update(Invitation)
        .where(Invitation.code_hash == code_hash, Invitation.used_at.is_(None), Invitation.expires_at > now())
        .values(used_by=used_by, used_at=now())
        .returning(Invitation.role, Invitation.agent_group_id)
    )
    return (await conn.execute(statement)).one_or_none()


async def burn_invitations(conn: AsyncConnection, code_hashes: Collection[str], why: str) -> None:
    """Those of them that are good are nobody's any more."""
    unused = (Invitation.code_hash.in_(code_hashes), Invitation.used_at.is_(None))
    await conn.execute(update(Invitation).where(*unused).values(used_by=why, used_at=now()))


async def count_wrong_codes(conn: AsyncConnection, user_id: str, seconds: float) -> int:
    """In the last so many seconds; older ones are forgotten."""
    await conn.execute(delete(WrongCode).where(WrongCode.user_id == user_id, WrongCode.created_at <= now(-seconds)))
    query = select(func.count()).select_from(WrongCode).where(WrongCode.user_id == user_id)
    return int((await conn.execute(query)).scalar_one())


async def note_wrong_code(conn: AsyncConnection, user_id: str) -> None:
    await conn.execute(insert(WrongCode).values(user_id=user_id))
