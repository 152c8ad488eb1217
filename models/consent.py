"""What waits for a person: questions an agent asked and approvals a risky call needs."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, Words, given, new_id, now, values
from models.turns import Step
from models.upsert import insert_or_update

_PENDING = text("status = 'pending'")


class PendingQuestion(Base):
    __tablename__ = "pending_questions"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'answered', 'expired')", name="status"),
        Index("ix_pending_questions_expiry", "expires_at", postgresql_where=_PENDING, sqlite_where=_PENDING),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    turn_id: Mapped[str | None] = mapped_column(ForeignKey("turns.id"))
    message_out_id: Mapped[str] = mapped_column(ForeignKey("messages_out.id"))
    channel_type: Mapped[str] = mapped_column(String(50))
    platform_id: Mapped[str] = mapped_column(String(255))
    thread_id: Mapped[str | None] = mapped_column(String(255))
    question: Mapped[dict[str, Any]] = mapped_column(Json)  # title, text, options
    status: Mapped[str] = mapped_column(String(10), default="pending")
    answer: Mapped[str | None] = mapped_column(Words)
    answered_by: Mapped[str | None] = mapped_column(String(255))
    expires_at: Mapped[datetime] = mapped_column(Timestamp)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class Approval(Base):
    __tablename__ = "approvals"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'approved', 'denied', 'expired', 'used')", name="status"),
        CheckConstraint("risk IN ('low', 'medium', 'high')", name="risk"),
        Index("ix_approvals_expiry", "expires_at", postgresql_where=_PENDING, sqlite_where=_PENDING),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    turn_id: Mapped[str | None] = mapped_column(ForeignKey("turns.id"))
    category: Mapped[str] = mapped_column(String(50))
    summary: Mapped[str] = mapped_column(Words)
    risk: Mapped[str] = mapped_column(String(10))
    payload: Mapped[dict[str, Any]] = mapped_column(Json)
    payload_hash: Mapped[str] = mapped_column(String(64))  # what is approved is exactly this payload
    status: Mapped[str] = mapped_column(String(10), default="pending")
    decided_by: Mapped[str | None] = mapped_column(String(255))
    decided_at: Mapped[datetime | None] = mapped_column(Timestamp)
    expires_at: Mapped[datetime] = mapped_column(Timestamp)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


async def put_question(
    conn: AsyncConnection, question_id: str, message_out_id: str, question: dict[str, Any], seconds: float, **place: Any
) -> None:
    """Write a question down, once; it waits for so many seconds."""
    asked = {"id": question_id, "message_out_id": message_out_id, "question": question} | place
    await insert_or_update(conn, PendingQuestion, ["id"], expires_at=now(seconds), **asked)


_OPEN_QUESTION = (
    select(PendingQuestion.__table__)
    .where(
        PendingQuestion.session_id == given("session"),
        PendingQuestion.status == "pending",
        PendingQuestion.expires_at > now(),
    )
    .order_by(PendingQuestion.created_at, PendingQuestion.id)
    .limit(1)
)


async def open_question(conn: AsyncConnection, session_id: str) -> AnyRow | None:
    """The oldest question of a session that still waits for its answer."""
    return (await conn.execute(_OPEN_QUESTION, values(session=session_id))).one_or_none()


async def find_question(conn: AsyncConnection, question_id: str) -> AnyRow | None:
    """With `at`, the database's time."""
    query = select(PendingQuestion.__table__, now().label("at")).where(PendingQuestion.id == question_id)
    return (await conn.execute(query)).one_or_none()


async def answer_question(conn: AsyncConnection, question_id: str, answer: str, answered_by: str | None) -> bool:
    """The first answer in time wins; False: it came too late."""
    statement = (
        update(PendingQuestion)
        .where(
            PendingQuestion.id == question_id, PendingQuestion.status == "pending", PendingQuestion.expires_at > now()
        )
        .values(status="answered", answer=answer, answered_by=answered_by)
        .returning(PendingQuestion.id)
    )
    return (await conn.execute(statement)).one_or_none() is not None


async def expire_question(conn: AsyncConnection, question_id: str) -> bool:
    statement = (
        update(PendingQuestion)
        .where(
            PendingQuestion.id == question_id, PendingQuestion.status == "pending", PendingQuestion.expires_at <= now()
        )
        .values(status="expired")
        .returning(PendingQuestion.id)
    )
    return (await conn.execute(statement)).one_or_none() is not None


async def close_questions(conn: AsyncConnection, turn_id: str) -> None:
    """The turn that asked is given up: nobody waits for the answer any more, nor for an approval of what it wanted."""
    statement = update(PendingQuestion).where(PendingQuestion.turn_id == turn_id, PendingQuestion.status == "pending")
    await conn.execute(statement.values(status="expired"))
    asked = Approval.id.in_(select(Step.id).where(Step.turn_id == turn_id, Step.status == "started"))
    await conn.execute(update(Approval).where(asked, Approval.status == "pending").values(status="expired"))


async def abandon_waits(conn: AsyncConnection, turn_id: str) -> None:
    """An attempt that asked people has ended without being put away: what it asked is nobody's any more. The next one
    asks for itself, so the key of what it wanted is free again."""
    asked = select(PendingQuestion.id).where(PendingQuestion.turn_id == turn_id, PendingQuestion.status == "pending")
    wanted = select(Approval.id).where(Approval.turn_id == turn_id, Approval.status.in_(["pending", "approved"]))
    given_up = {"status": "failed", "output": {"text": "the attempt that asked has ended"}, "ended_at": now()}
    given_up["key"] = Step.id
    begun = update(Step).where(Step.turn_id == turn_id, Step.status == "started")
    await conn.execute(begun.where(or_(Step.id.in_(asked), Step.id.in_(wanted))).values(**given_up))
    for table in (PendingQuestion, Approval):
        open_ones = update(table).where(table.turn_id == turn_id, table.status.in_(["pending", "approved"]))
        mine = table.id.in_(select(Step.id).where(Step.turn_id == turn_id))
        await conn.execute(open_ones.where(mine).values(status="expired"))


async def steps_that_waited(conn: AsyncConnection, turn_id: str, since: datetime | None) -> list[AnyRow]:
    """Calls of a turn that have asked a person and are not done, or only since then, in their order."""
    asked = or_(
        Step.id.in_(select(PendingQuestion.id).where(PendingQuestion.turn_id == turn_id)),
        Step.id.in_(select(Approval.id).where(Approval.turn_id == turn_id)),
    )
    lately = Step.status == "started" if since is None else or_(Step.status == "started", Step.ended_at >= since)
    query = select(Step.__table__).where(Step.turn_id == turn_id, lately, asked)
    return list((await conn.execute(query.order_by(Step.number))).all())


async def still_waits(conn: AsyncConnection, step_ids: list[str]) -> float | None:
    """In how many seconds the first of these stops waiting for a person; None: all have their answer."""
    left: list[float] = []
    for table in (PendingQuestion, Approval):
        query = select(table.expires_at, now().label("at")).where(
            table.id.in_(step_ids), table.status == "pending", table.expires_at > now()
        )
        left += [(row.expires_at - row.at).total_seconds() for row in (await conn.execute(query)).all()]
    return min(left, default=None)


async def decide_approval(conn: AsyncConnection, approval_id: str, status: str, decided_by: str) -> AnyRow | None:
    """The first decision in time wins. None: decided already, expired, or not there."""
    statement = (
        update(Approval)
        .where(Approval.id == approval_id, Approval.status == "pending", Approval.expires_at > now())
        .values(status=status, decided_by=decided_by, decided_at=now())
        .returning(*Approval.__table__.columns)
    )
    return (await conn.execute(statement)).one_or_none()


async def put_approval(conn: AsyncConnection, seconds: float, **asked: Any) -> None:
    """Write down what somebody must approve, once; it waits for so many seconds."""
    await insert_or_update(conn, Approval, ["id"], expires_at=now(seconds), **asked)


async def use_approval(conn: AsyncConnection, approval_id: str) -> bool:
    """An approval is good for one call; False: it was used, or never given."""
    statement = update(Approval).where(Approval.id == approval_id, Approval.status == "approved")
    return (await conn.execute(statement.values(status="used").returning(Approval.id))).one_or_none() is not None


async def expire_approval(conn: AsyncConnection, approval_id: str) -> None:
    statement = update(Approval).where(
        Approval.id == approval_id, Approval.status.in_(["pending", "approved"]), Approval.expires_at <= now()
    )
    await conn.execute(statement.values(status="expired"))


async def is_awaited(conn: AsyncConnection, turn_id: str, key_prefix: str) -> bool:
    """Whether everything a parked turn waits for is still open: nothing has been answered or decided meanwhile. Steps
    of other attempts, with another `key_prefix`, are nobody's any more."""
    begun = select(Step.id).where(
        Step.turn_id == turn_id, Step.status == "started", Step.key.startswith(key_prefix, autoescape=True)
    )
    answered = select(PendingQuestion.id).where(PendingQuestion.id.in_(begun), PendingQuestion.status != "pending")
    decided = select(Approval.id).where(Approval.id.in_(begun), Approval.status.in_(["approved", "denied", "expired"]))
    return not (await conn.execute(select(or_(answered.exists(), decided.exists())))).scalar_one()


async def find_approval(conn: AsyncConnection, approval_id: str) -> AnyRow | None:
    """With `at`, the database's time."""
    query = select(Approval.__table__, now().label("at")).where(Approval.id == approval_id)
    return (await conn.execute(query)).one_or_none()


def chosen_value(question: dict[str, Any], text: str) -> str:
    """What the agent is told: the value of the option chosen by its number or its words, else the text itself."""
    labels, told = question.get("options") or [], question.get("values") or []
    said = text.strip()
    for number, (label, value) in enumerate(zip(labels, told, strict=False), 1):
        if said.rstrip(".)") == str(number) or said.casefold() == str(label).strip().casefold():
            return str(value)
    return said
