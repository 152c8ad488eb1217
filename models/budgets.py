"""Money: what an agent (or one person with it) may spend in a day, what is spent, and what is held for calls under way.

A call reserves before it is made and settles after. Reserving is one conditional UPDATE of the day's row, so however
many workers ask at once, the cap is passed by at most the reserve of one call."""

from datetime import datetime
from decimal import Decimal
from typing import cast

from sqlalchemy import Delete, Float, ForeignKey, Index, String, Table, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Timestamp, given, now, values
from models.consent import Approval
from models.conversation import Usage
from models.inbox import MessageIn
from models.sessions import Session
from models.upsert import insert_ignoring

EVERYBODY = ""
# Before the id of a task, whose runs have a budget of their own, where there is else a person's. No person's id has a
# control character in it.
TASK = "\x1ftask:"
# The same before the id of a workflow, whose budget is for all of it: its "day" is the one it began on.
WORKFLOW = "\x1fworkflow:"


class BudgetDay(Base):
    """One day (UTC) of one agent's budget; with a user, of that person's share of it, or of one task's."""

    __tablename__ = "budget_days"
    __table_args__ = (Index("ix_budget_days_approval_id", "approval_id"),)

    agent_group_id: Mapped[str] = mapped_column(ForeignKey("agent_groups.id"), primary_key=True)
    user_id: Mapped[str] = mapped_column(String(255), primary_key=True, default=EVERYBODY)
    day: Mapped[str] = mapped_column(String(10), primary_key=True)
    spent_usd: Mapped[float] = mapped_column(Float, default=0.0)
    reserved_usd: Mapped[float] = mapped_column(Float, default=0.0)
    # What somebody with the right to do so has added for this day.
    extra_usd: Mapped[float] = mapped_column(Float, default=0.0)
    # The question whether to add something; one for all turns that wait.
    approval_id: Mapped[str | None] = mapped_column(ForeignKey("approvals.id"))


class Reservation(Base):
    """Money held for a model call under way. Gone when the call is settled, or its turn lets go."""

    __tablename__ = "reservations"
    __table_args__ = (Index("ix_reservations_turn_id", "turn_id"),)

    step_id: Mapped[str] = mapped_column(Id, primary_key=True)
    user_id: Mapped[str] = mapped_column(String(255), primary_key=True)
    agent_group_id: Mapped[str] = mapped_column(ForeignKey("agent_groups.id"))
    turn_id: Mapped[str] = mapped_column(ForeignKey("turns.id"))
    day: Mapped[str] = mapped_column(String(10))
    usd: Mapped[float] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


_days = cast(Table, BudgetDay.__table__)
_THE_DAY = (
    BudgetDay.agent_group_id == given("group"),
    BudgetDay.user_id == given("user"),
    BudgetDay.day == given("day"),
)
_RESERVE = (
    update(_days)
    .where(*_THE_DAY, BudgetDay.spent_usd + BudgetDay.reserved_usd < given("cap") + BudgetDay.extra_usd)
    .values(reserved_usd=BudgetDay.reserved_usd + given("usd"))
    .returning(_days.c.day)
)
_SETTLE = (
    update(_days)
    .where(*_THE_DAY)
    .values(reserved_usd=BudgetDay.reserved_usd - given("usd"), spent_usd=BudgetDay.spent_usd + given("cost"))
)
_FIND = select(_days).where(*_THE_DAY)


async def today(conn: AsyncConnection) -> datetime:
    """The database's clock: all workers agree on when a day begins."""
    return (await conn.execute(select(now()))).scalar_one()


async def reserve(
    conn: AsyncConnection,
    *,
    step_id: str,
    turn_id: str,
    agent_group_id: str,
    user_id: str,
    day: datetime,
    cap: float,
    usd: float,
) -> bool:
    """Hold money for a call. False: the day's cap is reached, and nothing was held. A step that already holds some (its
    worker died) keeps it."""
    date = day.date().isoformat()
    held = {"step_id": step_id, "user_id": user_id, "agent_group_id": agent_group_id, "turn_id": turn_id}
    if not await insert_ignoring(conn, Reservation, **held, day=date, usd=usd):
        return True
    asked = values(group=agent_group_id, user=user_id, day=date, cap=cap, usd=usd)
    if (await conn.execute(_FIND, asked)).one_or_none() is None:
        await _open_day(conn, agent_group_id, user_id, day)
    if (await conn.execute(_RESERVE, asked)).one_or_none() is not None:
        return True
    await conn.execute(delete(Reservation).where(Reservation.step_id == step_id, Reservation.user_id == user_id))
    return False


async def settle(conn: AsyncConnection, step_id: str, cost: float) -> None:
    """The call was made and cost so much. Nothing happens if nothing was held for it."""
    await _let_go(conn, delete(Reservation).where(Reservation.step_id == step_id), cost)


async def release_reservations(conn: AsyncConnection, turn_id: str) -> None:
    """Whatever a turn still holds is for calls it will not make now."""
    await _let_go(conn, delete(Reservation).where(Reservation.turn_id == turn_id), 0.0)


async def day_of(conn: AsyncConnection, agent_group_id: str, user_id: str, day: datetime) -> AnyRow:
    """The day's row, made if it is not there, and locked until the commit: who asks for more, asks once."""
    asked = values(group=agent_group_id, user=user_id, day=day.date().isoformat())
    found = (await conn.execute(_FIND.with_for_update(), asked)).one_or_none()
    if found is None:
        await _open_day(conn, agent_group_id, user_id, day)
        found = (await conn.execute(_FIND.with_for_update(), asked)).one()
    return found


async def awaits_approval(conn: AsyncConnection, agent_group_id: str, user_id: str, day: datetime) -> bool:
    """Whether somebody is still asked for more money for that day. Its row is locked until the commit, as by whoever
    decides: of the two, the second sees what the first did."""
    asked = (await day_of(conn, agent_group_id, user_id, day)).approval_id
    pending = select(Approval.id).where(Approval.id == asked, Approval.status == "pending")
    return bool((await conn.execute(select(pending.exists()))).scalar_one())


async def ask_for_more(conn: AsyncConnection, row: AnyRow, approval_id: str | None) -> None:
    await _change(conn, row.agent_group_id, row.user_id, row.day, approval_id=approval_id)


async def add_extra(conn: AsyncConnection, agent_group_id: str, user_id: str, day: str, usd: float) -> None:
    """Raise one day's cap. The next time it is reached, somebody is asked anew."""
    extra = BudgetDay.extra_usd + usd
    await _change(conn, agent_group_id, user_id, day, extra_usd=extra, approval_id=None)


async def _change(conn: AsyncConnection, agent_group_id: str, user_id: str, day: str, **changes: object) -> None:
    asked = values(group=agent_group_id, user=user_id, day=day)
    await conn.execute(update(_days).where(*_THE_DAY).values(**changes), asked)


async def _let_go(conn: AsyncConnection, chosen: Delete, cost: float) -> None:
    statement = chosen.returning(Reservation.agent_group_id, Reservation.user_id, Reservation.day, Reservation.usd)
    for row in (await conn.execute(statement)).all():
        asked = values(group=row.agent_group_id, user=row.user_id, day=row.day, usd=row.usd, cost=cost)
        await conn.execute(_SETTLE, asked)


async def _open_day(conn: AsyncConnection, agent_group_id: str, user_id: str, day: datetime) -> None:
    spent = await _spent(conn, agent_group_id, user_id, day)
    key = {"agent_group_id": agent_group_id, "user_id": user_id, "day": day.date().isoformat()}
    await insert_ignoring(conn, BudgetDay, **key, spent_usd=spent)


async def _spent(conn: AsyncConnection, agent_group_id: str, user_id: str, day: datetime) -> float:
    """What was spent before anybody looked: the budget may have been set in the middle of the day."""
    midnight = day.replace(hour=0, minute=0, second=0, microsecond=0)
    query = select(func.sum(Usage.cost_usd)).where(Usage.agent_group_id == agent_group_id, Usage.created_at >= midnight)
    if user_id.startswith(TASK):
        runs = select(MessageIn.turn_id).where(MessageIn.series_id == user_id.removeprefix(TASK))
        query = query.where(Usage.turn_id.in_(runs))
    elif user_id.startswith(WORKFLOW):
        of_workflow = select(Session.id).where(Session.workflow_id == user_id.removeprefix(WORKFLOW))
        query = query.where(Usage.session_id.in_(of_workflow))
    elif user_id != EVERYBODY:
        query = query.where(Usage.user_id == user_id)
    return float((await conn.execute(query)).scalar_one() or Decimal(0))
