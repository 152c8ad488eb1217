"""What model calls have cost, added up by the database; and how much of today's budgets is left.

Days are UTC's, and today is the database's, as for the budgets themselves."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Float, Select, cast, func, select, true
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import InstrumentedAttribute

from models.base import AnyRow
from models.budgets import EVERYBODY, TASK, BudgetDay, today
from models.conversation import Usage
from models.groups import AgentGroup
from models.series import Series
from models.utc_parts import utc_day

# Given the column with an agent's id: whether it is one of those that somebody may look at.
Mine = Callable[[InstrumentedAttribute[str]], ColumnElement[bool]]


def everybodys(_column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
    return true()


_DIMENSIONS: Final[dict[str, ColumnElement[Any]]] = {
    "agent": AgentGroup.folder.expression,
    "provider": Usage.provider.expression,
    "model": Usage.model.expression,
    "user": Usage.user_id.expression,
    "session": Usage.session_id.expression,
    "turn": Usage.turn_id.expression,
    "day": utc_day(Usage.created_at),
}
DIMENSIONS: Final = tuple(_DIMENSIONS)

# Money is added up as a float: SQLite has no other number for it, and nobody is billed by this.
_COST = func.sum(cast(Usage.cost_usd, Float))
_SUMS: Final[tuple[ColumnElement[Any], ...]] = (
    func.count().label("calls"),
    func.coalesce(func.sum(Usage.input_tokens), 0).label("input_tokens"),
    func.coalesce(func.sum(Usage.cache_read_tokens), 0).label("cache_read_tokens"),
    func.coalesce(func.sum(Usage.cache_write_tokens), 0).label("cache_write_tokens"),
    func.coalesce(func.sum(Usage.output_tokens), 0).label("output_tokens"),
    _COST.label("cost_usd"),
    (func.count() - func.count(Usage.cost_usd)).label("unpriced_calls"),
)


@dataclass(frozen=True)
class Spent:
    """`key` has a value for each dimension asked for. `cost_usd` is None if no call of these has a known price;
    `unpriced_calls` have none, and are not in it."""

    key: tuple[str | None, ...]
    calls: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    cost_usd: float | None
    unpriced_calls: int

    def __add__(self, other: "Spent") -> "Spent":
        known = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Spent(
            self.key,
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.output_tokens + other.output_tokens,
            sum(known) if known else None,
            self.unpriced_calls + other.unpriced_calls,
        )

    @property
    def read_tokens(self) -> int:
        """All that models were given: anew, from a cache, and to be put into one."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True)
class BudgetState:
    """One budget today: a person's, or a task's (`series_id`), or what everybody may spend together. US dollars."""

    folder: str
    user_id: str | None
    spent_usd: float
    held_usd: float
    cap_usd: float
    series_id: str | None = None

    @property
    def left_usd(self) -> float:
        return max(self.cap_usd - self.spent_usd - self.held_usd, 0.0)


async def usage_by(
    conn: AsyncConnection,
    dimensions: Sequence[str],
    since: datetime,
    *,
    agent_group_id: str | None = None,
    mine: Mine = everybodys,
    limit: int | None = None,
) -> list[Spent]:
    """Sums for each combination of the dimensions, the dearest first."""
    columns = [_DIMENSIONS[name] for name in dimensions]
    labelled = [column.label(f"key_{name}") for name, column in zip(dimensions, columns, strict=True)]
    query = (
        _since(select(*labelled, *_SUMS), since, agent_group_id, mine)
        .group_by(*columns)
        .order_by(func.coalesce(_COST, 0.0).desc(), func.sum(Usage.output_tokens).desc(), *columns)
        .limit(limit)
    )
    return [_spent(row, len(columns)) for row in (await conn.execute(query)).all()]


async def usage_of_turns(conn: AsyncConnection, turn_ids: Collection[str]) -> dict[str, Spent]:
    """What each has used, by its id; nothing for one that has called no model."""
    query = select(Usage.turn_id, *_SUMS).where(Usage.turn_id.in_(turn_ids)).group_by(Usage.turn_id)
    return {row.turn_id: _spent(row, 1) for row in (await conn.execute(query)).all()} if turn_ids else {}


async def usage_in_total(
    conn: AsyncConnection, since: datetime, *, agent_group_id: str | None = None, mine: Mine = everybodys
) -> Spent:
    return _spent((await conn.execute(_since(select(*_SUMS), since, agent_group_id, mine))).one(), 0)


async def start_of_day(conn: AsyncConnection, days_back: int = 0) -> datetime:
    """Midnight (UTC) of today or of a day before, by the database's clock."""
    moment = await today(conn) - timedelta(days=days_back)
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


async def budget_states(
    conn: AsyncConnection, agent_group_id: str | None = None, *, mine: Mine = everybodys
) -> list[BudgetState]:
    """Today's budgets of all agents that have one. A person's share is listed once they have spent something, and so is
    a task's."""
    midnight = await start_of_day(conn)
    query = select(AgentGroup.id, AgentGroup.folder, AgentGroup.config).where(mine(AgentGroup.id))
    query = query.order_by(AgentGroup.folder)
    if agent_group_id is not None:
        query = query.where(AgentGroup.id == agent_group_id)
    states: list[BudgetState] = []
    tasks = await _task_states(conn, midnight.date())
    for group in (await conn.execute(query)).all():
        if budget := (group.config or {}).get("budget"):
            states += await _states_of(conn, group, budget, midnight)
        states += tasks.get(group.id, [])
    return states


async def _task_states(conn: AsyncConnection, day: date) -> dict[str, list[BudgetState]]:
    """By agent. The day's rows are few, however many tasks there are."""
    query = (
        select(BudgetDay.__table__, AgentGroup.folder, Series.daily_usd)
        .join(AgentGroup, AgentGroup.id == BudgetDay.agent_group_id)
        .join(Series, BudgetDay.user_id == TASK + Series.id)
        .where(BudgetDay.day == day.isoformat(), Series.daily_usd.is_not(None))
        .order_by(Series.id)
    )
    states: dict[str, list[BudgetState]] = {}
    for row in (await conn.execute(query)).all():
        held, cap = max(row.reserved_usd, 0.0), row.daily_usd + row.extra_usd
        series_id = row.user_id.removeprefix(TASK)
        state = BudgetState(row.folder, None, row.spent_usd, held, cap, series_id)
        states.setdefault(row.agent_group_id, []).append(state)
    return states


async def _states_of(
    conn: AsyncConnection, group: AnyRow, budget: dict[str, float], midnight: datetime
) -> list[BudgetState]:
    days = await _days(conn, group.id, midnight.date())
    spent = await _spent_today(conn, group.id, midnight)

    def state(user_id: str, cap: float) -> BudgetState:
        row = days.get(user_id)
        # Nobody has asked this budget yet: it will begin with what was spent before.
        used = row.spent_usd if row is not None else spent.get(user_id, 0.0)
        held, extra = (row.reserved_usd, row.extra_usd) if row is not None else (0.0, 0.0)
        return BudgetState(group.folder, user_id or None, used, max(held, 0.0), cap + extra)

    found = []
    if cap := budget.get("daily_usd"):
        found.append(state(EVERYBODY, cap))
    if cap := budget.get("user_daily_usd"):
        people = {user for user in {*days, *spent} if user != EVERYBODY and not user.startswith(TASK)}
        found += [state(user, cap) for user in sorted(people)]
    return found


async def _days(conn: AsyncConnection, agent_group_id: str, day: date) -> dict[str, AnyRow]:
    query = select(BudgetDay.__table__).where(
        BudgetDay.agent_group_id == agent_group_id, BudgetDay.day == day.isoformat()
    )
    return {row.user_id: row for row in (await conn.execute(query)).all()}


async def _spent_today(conn: AsyncConnection, agent_group_id: str, midnight: datetime) -> dict[str, float]:
    """By person, and by everybody together."""
    rows = await usage_by(conn, ["user"], midnight, agent_group_id=agent_group_id)
    people = {row.key[0]: row.cost_usd or 0.0 for row in rows if row.key[0]}
    return {EVERYBODY: sum(row.cost_usd or 0.0 for row in rows), **people}


def _since(
    query: Select[*tuple[Any, ...]], since: datetime, agent_group_id: str | None, mine: Mine
) -> Select[*tuple[Any, ...]]:
    joined = query.join_from(Usage, AgentGroup, AgentGroup.id == Usage.agent_group_id)
    joined = joined.where(Usage.created_at >= since, mine(Usage.agent_group_id))
    return joined if agent_group_id is None else joined.where(Usage.agent_group_id == agent_group_id)


def _spent(row: AnyRow, keys: int) -> Spent:
    calls, read, cached, written, said, cost, unpriced = row[keys:]
    usd = None if cost is None else float(cost)
    return Spent(tuple(row[:keys]), int(calls), int(read), int(cached), int(written), int(said), usd, int(unpriced))
