"""What waits for a person: questions an agent asked and approvals a risky call needs. What ends one closes its cards in
the same transaction."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, Words, given, new_id, now, values
from models.card_endings import close_answered, close_decided, close_overdue, close_unneeded
from models.sessions import Session
from models.turns import Step
from models.upsert import insert_ignoring, insert_or_update

_PENDING = text("status = 'pending'")


class PendingQuestion(Base):
    __tablename__ = "pending_questions"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'answered', 'expired')", name="status"),
        Index("ix_pending_questions_expiry", "expires_at", postgresql_where=_PENDING, sqlite_where=_PENDING),
        Index("ix_pending_questions_turn_id", "turn_id"),
        Index("ix_pending_questions_message_out_id", "message_out_id"),
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


# What approvals are about, where it matters: a call, money for today, a stranger who wants to be let in.
TOOL: Final = "tool"
BUDGET: Final = "budget"
ACCESS: Final = "access"


class Approval(Base):
    __tablename__ = "approvals"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'approved', 'denied', 'expired', 'used')", name="status"),
        CheckConstraint("risk IN ('low', 'medium', 'high')", name="risk"),
        Index("ix_approvals_expiry", "expires_at", postgresql_where=_PENDING, sqlite_where=_PENDING),
        Index("ix_approvals_turn_id", "turn_id"),
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


@dataclass(frozen=True)
class Closed:
    """A question or an approval that is over by this. `deliveries`: what its cards become, to be rung for."""

    row: AnyRow
    deliveries: list[str]


async def answer_question(
    conn: AsyncConnection, question_id: str, answer: str, answered_by: str | None
) -> Closed | None:
    """The first answer in time wins; None: it came too late. `answered_by`: a user's id, if it is somebody's."""
    statement = (
        update(PendingQuestion)
        .where(
            PendingQuestion.id == question_id, PendingQuestion.status == "pending", PendingQuestion.expires_at > now()
        )
        .values(status="answered", answer=answer, answered_by=answered_by)
        .returning(*PendingQuestion.__table__.columns)
    )
    answered = (await conn.execute(statement)).one_or_none()
    return None if answered is None else Closed(answered, await close_answered(conn, answered))


async def expire_question(conn: AsyncConnection, question_id: str) -> Closed | None:
    """None: it has been answered, or still waits."""
    await lock_session_of(conn, PendingQuestion, question_id)
    statement = (
        update(PendingQuestion)
        .where(
            PendingQuestion.id == question_id, PendingQuestion.status == "pending", PendingQuestion.expires_at <= now()
        )
        .values(status="expired")
        .returning(*PendingQuestion.__table__.columns)
    )
    expired = (await conn.execute(statement)).one_or_none()
    return None if expired is None else Closed(expired, await close_overdue(conn, expired))


async def lock_session_of(conn: AsyncConnection, table: type[PendingQuestion] | type[Approval], asked_id: str) -> None:
    """The session's row is locked before what belongs to it: a worker that is just parking the turn holds it, and looks
    for decisions under it."""
    session = select(table.session_id).where(table.id == asked_id).scalar_subquery()
    await conn.execute(select(Session.id).where(Session.id == session).with_for_update())


async def close_questions(conn: AsyncConnection, turn_id: str) -> list[str]:
    """The turn that asked is given up: nobody waits for the answer any more, nor for an approval of what it wanted.
    Returns what to ring for."""
    mine = (PendingQuestion.turn_id == turn_id, PendingQuestion.status == "pending")
    asked = Approval.id.in_(select(Step.id).where(Step.turn_id == turn_id, Step.status == "started"))
    return await _close(conn, mine, (asked, Approval.status == "pending"))


async def _close(conn: AsyncConnection, questions: Any, approvals: Any) -> list[str]:
    deliveries = []
    for table, chosen in ((PendingQuestion, questions), (Approval, approvals)):
        closing = update(table).where(*chosen).values(status="expired").returning(*table.__table__.columns)
        for row in (await conn.execute(closing)).all():
            deliveries += await close_unneeded(conn, row)
    return deliveries


async def abandon_waits(conn: AsyncConnection, turn_id: str) -> None:
    """An attempt that asked people has ended without being put away: what it asked is nobody's any more. The next one
    asks for itself, so the key of what it wanted is free again."""
    asked = select(PendingQuestion.id).where(PendingQuestion.turn_id == turn_id, PendingQuestion.status == "pending")
    wanted = select(Approval.id).where(Approval.turn_id == turn_id, Approval.status.in_(["pending", "approved"]))
    given_up = {"status": "failed", "output": {"text": "the attempt that asked has ended"}, "ended_at": now()}
    given_up["key"] = Step.id
    begun = update(Step).where(Step.turn_id == turn_id, Step.status == "started")
    await conn.execute(begun.where(or_(Step.id.in_(asked), Step.id.in_(wanted))).values(**given_up))
    steps = select(Step.id).where(Step.turn_id == turn_id)
    # What its cards become is delivered when the sweep finds it: nobody waits for that.
    await _close(
        conn,
        (PendingQuestion.turn_id == turn_id, PendingQuestion.status == "pending", PendingQuestion.id.in_(steps)),
        (Approval.turn_id == turn_id, Approval.status.in_(["pending", "approved"]), Approval.id.in_(steps)),
    )


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


async def decide_approval(conn: AsyncConnection, approval_id: str, status: str, decided_by: str) -> Closed | None:
    """The first decision in time wins. None: decided already, expired, or not there. The session's row is locked first
    (`lock_session_of`)."""
    statement = (
        update(Approval)
        .where(Approval.id == approval_id, Approval.status == "pending", Approval.expires_at > now())
        .values(status=status, decided_by=decided_by, decided_at=now())
        .returning(*Approval.__table__.columns)
    )
    decided = (await conn.execute(statement)).one_or_none()
    return None if decided is None else Closed(decided, await close_decided(conn, decided))


async def put_approval(conn: AsyncConnection, seconds: float, **asked: Any) -> bool:
    """Write down what somebody must approve, once; it waits for so many seconds. False: it was asked before, and may
    be decided: it stays as it is."""
    expires_at = (await conn.execute(select(now(seconds)))).scalar_one()
    return await insert_ignoring(conn, Approval, expires_at=expires_at, **asked)


async def use_approval(conn: AsyncConnection, approval_id: str) -> bool:
    """An approval is good for one call; False: it was never given, or it is over: used, or expired."""
    statement = update(Approval).where(Approval.id == approval_id, Approval.status == "approved")
    return (await conn.execute(statement.values(status="used").returning(Approval.id))).one_or_none() is not None


async def expire_approval(conn: AsyncConnection, approval_id: str) -> list[str]:
    """Also one that was given and not used in time. Returns what to ring for."""
    await lock_session_of(conn, Approval, approval_id)
    statement = update(Approval).where(
        Approval.id == approval_id, Approval.status.in_(["pending", "approved"]), Approval.expires_at <= now()
    )
    expired = await conn.execute(statement.values(status="expired").returning(*Approval.__table__.columns))
    return [message for row in expired.all() for message in await close_overdue(conn, row)]


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
    """What the agent is told: the value of the option chosen by its words or its number, else the text itself. An
    option may be called `1`: what it says counts before where it stands."""
    labels, told = question.get("options") or [], question.get("values") or []
    said = text.strip()
    options = [(str(label).strip(), str(value)) for label, value in zip(labels, told, strict=False)]
    numbers = {str(number): value for number, (_, value) in enumerate(options, 1)}
    by_words = (value for label, value in options if label.casefold() == said.casefold())
    return next(by_words, numbers.get(said.rstrip(".)"), said))
