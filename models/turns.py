"""Turns and their journal: each tool or model call is a step, written before (intent) and after (result)."""

from datetime import datetime
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
    delete,
    func,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, Words, given, new_id, now, values

_OPEN = text("status IN ('running', 'waiting', 'parked')")


class Turn(Base):
    __tablename__ = "turns"
    __table_args__ = (
        CheckConstraint(
            "status IN ('running', 'waiting', 'parked', 'completed', 'failed', 'cancelled')", name="status"
        ),
        UniqueConstraint("session_id", "number"),
        # A session is in one turn at a time, whatever the code believes.
        Index("uq_turns_open", "session_id", unique=True, postgresql_where=_OPEN, sqlite_where=_OPEN),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    number: Mapped[int] = mapped_column(Integer)
    # running: a worker has it (or had it and died); waiting: to be continued at a date; parked: for a person
    status: Mapped[str] = mapped_column(String(10), default="running")
    attempt: Mapped[int] = mapped_column(Integer, default=1)
    provider: Mapped[str] = mapped_column(String(100))
    provider_version: Mapped[str | None] = mapped_column(String(100))
    capabilities: Mapped[dict[str, Any] | None] = mapped_column(Json)
    model: Mapped[str | None] = mapped_column(String(200))
    # Providers this turn has given up on; it goes on with the next of the group's list.
    tried: Mapped[list[str] | None] = mapped_column(Json)
    # Since when it waits for limits and outages without using up tries.
    waiting_since: Mapped[datetime | None] = mapped_column(Timestamp)
    worker: Mapped[str | None] = mapped_column(String(200))
    lease_token: Mapped[int] = mapped_column(BigInteger)
    error_class: Mapped[str | None] = mapped_column(String(30))
    error: Mapped[str | None] = mapped_column(Words)
    started_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    ended_at: Mapped[datetime | None] = mapped_column(Timestamp)


class Step(Base):
    __tablename__ = "steps"
    __table_args__ = (
        CheckConstraint("kind IN ('model', 'tool')", name="kind"),
        CheckConstraint("status IN ('started', 'finished', 'failed')", name="status"),
        UniqueConstraint("turn_id", "number"),
        UniqueConstraint("turn_id", "key"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    turn_id: Mapped[str] = mapped_column(ForeignKey("turns.id"))
    number: Mapped[int] = mapped_column(Integer)
    key: Mapped[str] = mapped_column(String(200))  # the call's id: the same call of a later attempt finds its row
    kind: Mapped[str] = mapped_column(String(10))
    name: Mapped[str] = mapped_column(String(200))
    status: Mapped[str] = mapped_column(String(10), default="started")
    idempotent: Mapped[bool] = mapped_column(Boolean, default=False)
    input: Mapped[dict[str, Any]] = mapped_column(Json)
    output: Mapped[dict[str, Any] | None] = mapped_column(Json)
    started_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    ended_at: Mapped[datetime | None] = mapped_column(Timestamp)


_table = cast(Table, Turn.__table__)


async def open_turn(conn: AsyncConnection, session_id: str) -> AnyRow | None:
    query = select(Turn.__table__).where(Turn.session_id == session_id, _OPEN)
    return (await conn.execute(query)).one_or_none()


_COMPLETE = (
    update(_table)
    .where(Turn.id == given("turn"))
    .values(status="completed", ended_at=now(), error=None, error_class=None)
)


async def turns_of_session(conn: AsyncConnection, session_id: str) -> list[AnyRow]:
    query = select(Turn.__table__).where(Turn.session_id == session_id).order_by(Turn.number)
    return list((await conn.execute(query)).all())


async def complete_turn(conn: AsyncConnection, turn_id: str) -> None:
    await conn.execute(_COMPLETE, values(turn=turn_id))


async def set_turn(conn: AsyncConnection, turn_id: str, **changes: Any) -> None:
    await conn.execute(update(Turn).where(Turn.id == turn_id).values(**changes))


async def steps_of_turn(conn: AsyncConnection, turn_id: str) -> list[AnyRow]:
    query = select(Step.__table__).where(Step.turn_id == turn_id).order_by(Step.number)
    return list((await conn.execute(query)).all())


async def find_step(conn: AsyncConnection, turn_id: str, key: str) -> AnyRow | None:
    query = select(Step.__table__).where(Step.turn_id == turn_id, Step.key == key)
    return (await conn.execute(query)).one_or_none()


async def count_steps(conn: AsyncConnection, turn_id: str) -> int:
    query = select(func.count()).select_from(Step).where(Step.turn_id == turn_id)
    return int((await conn.execute(query)).scalar_one())


async def has_effects(conn: AsyncConnection, turn_id: str) -> bool:
    """Whether a turn has done something, or may have, that must not be done twice."""
    query = select(Step.id).where(Step.turn_id == turn_id, ~Step.idempotent, Step.status != "failed")
    return bool((await conn.execute(select(query.exists()))).scalar_one())


async def has_finished(conn: AsyncConnection, turn_id: str, name: str) -> bool:
    """Whether a call of that tool has done what it was to do in the turn."""
    query = select(Step.id).where(Step.turn_id == turn_id, Step.name == name, Step.status == "finished")
    return bool((await conn.execute(select(query.exists()))).scalar_one())


async def forget_unasked(conn: AsyncConnection, turn_id: str) -> None:
    """A turn ends without its model: the intent to call it, which was written with the opening, comes to nothing."""
    await conn.execute(delete(Step).where(Step.turn_id == turn_id, Step.kind == "model", Step.status == "started"))


async def outcome_of(conn: AsyncConnection, step_id: str) -> str | None:
    """What a step came to, if it is over: for whoever does it in the same transaction, and may be run again because
    nobody heard that it was committed."""
    step = (await conn.execute(select(Step.status, Step.output).where(Step.id == step_id))).one_or_none()
    return str(step.output["text"]) if step is not None and step.status == "finished" else None


async def finish_step(conn: AsyncConnection, step_id: str, *, ok: bool, output: dict[str, Any]) -> None:
    await conn.execute(
        update(Step)
        .where(Step.id == step_id)
        .values(status="finished" if ok else "failed", output=output, ended_at=now())
    )
