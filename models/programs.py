"""The memory of CLI agents: what a program needs of its own files to go on with a conversation on any machine."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, LargeBinary, String, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Json, Timestamp, Words, now
from models.outbox import MessageOut
from models.upsert import insert_or_update


class ProgramState(Base):
    """One per session and provider, written with the end of the turn it remembers."""

    __tablename__ = "program_states"
    __table_args__ = (Index("ix_program_states_turn_id", "turn_id"),)

    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), primary_key=True)
    provider: Mapped[str] = mapped_column(String(100), primary_key=True)
    state: Mapped[bytes] = mapped_column(LargeBinary)
    # Set: it was taken in the middle of this turn, for the reason given, when the turn had said `messages_left` things.
    turn_id: Mapped[str | None] = mapped_column(ForeignKey("turns.id"))
    reason: Mapped[str | None] = mapped_column(Words)
    messages_left: Mapped[int] = mapped_column(Integer, default=0)
    # Numbers of that turn's messages which it surely holds; others came while it ran, and may be in it or not.
    messages_known: Mapped[list[int] | None] = mapped_column(Json)
    updated_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


async def save_state(conn: AsyncConnection, session_id: str, provider: str, state: bytes) -> None:
    """At the end of a turn."""
    none = {"turn_id": None, "reason": None, "messages_left": 0, "messages_known": None}
    await _save(conn, session_id, provider, state, **none)


async def save_interrupted(
    conn: AsyncConnection,
    session_id: str,
    provider: str,
    state: bytes,
    *,
    turn_id: str,
    reason: str,
    messages_known: list[int],
) -> None:
    """In the middle of a turn that goes on later from just here."""
    more = {"turn_id": turn_id, "reason": reason, "messages_known": messages_known}
    await _save(conn, session_id, provider, state, messages_left=await count_left(conn, turn_id), **more)


async def _save(conn: AsyncConnection, session_id: str, provider: str, state: bytes, **more: object) -> None:
    key = {"session_id": session_id, "provider": provider}
    await insert_or_update(conn, ProgramState, ["session_id", "provider"], **key, state=state, updated_at=now(), **more)


async def load_state(conn: AsyncConnection, session_id: str, provider: str) -> bytes | None:
    query = select(ProgramState.state).where(ProgramState.session_id == session_id, ProgramState.provider == provider)
    found: bytes | None = (await conn.execute(query)).scalar_one_or_none()
    return found


async def forget(conn: AsyncConnection, session_id: str) -> None:
    """The conversation is over: what programs remember of it is of no use to anybody."""
    await conn.execute(delete(ProgramState).where(ProgramState.session_id == session_id))


async def interrupted_at(conn: AsyncConnection, session_id: str, provider: str, turn_id: str) -> AnyRow | None:
    """Where the turn was interrupted, if its program's memory was kept then."""
    columns = (ProgramState.reason, ProgramState.messages_left, ProgramState.messages_known, ProgramState.updated_at)
    query = select(*columns).where(
        ProgramState.session_id == session_id, ProgramState.provider == provider, ProgramState.turn_id == turn_id
    )
    return (await conn.execute(query)).one_or_none()


async def count_left(conn: AsyncConnection, turn_id: str, *, besides: Sequence[str] = ()) -> int:
    """How many things a turn has said to somebody so far (or may have), `besides` those with these ids."""
    query = (
        select(func.count())
        .select_from(MessageOut)
        .where(
            MessageOut.turn_id == turn_id,
            MessageOut.kind != "notice",
            MessageOut.status != "cancelled",
            MessageOut.id.not_in(besides),
        )
    )
    return int((await conn.execute(query)).scalar_one())
