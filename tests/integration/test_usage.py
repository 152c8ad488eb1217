"""What was spent, added up by the database: the same sums on PostgreSQL and SQLite."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from models import AgentGroup, BudgetDay, Database, Session, Turn, Usage
from models.base import new_id
from models.budgets import reserve, settle, today
from models.spending import DIMENSIONS, budget_states, start_of_day, usage_by, usage_in_total

pytestmark = pytest.mark.both_databases

LATE = datetime(2026, 3, 1, 23, 59, 59, 999000, tzinfo=UTC)
EARLY = datetime(2026, 3, 2, 0, 0, 0, tzinfo=UTC)
BEFORE = datetime(2026, 2, 1, tzinfo=UTC)


class Ledger:
    """Rows of usage with as little around them as the tables allow."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._turns: dict[str, dict[str, str]] = {}

    async def group(self, folder: str, **config: Any) -> str:
        group, session, turn = new_id(), new_id(), new_id()

        async def work(conn: AsyncConnection) -> None:
            await conn.execute(insert(AgentGroup).values(id=group, folder=folder, name=folder, config=config))
            await conn.execute(insert(Session).values(id=session, agent_group_id=group))
            values = {"session_id": session, "number": 1, "provider": "openai", "lease_token": 1}
            await conn.execute(insert(Turn).values(id=turn, **values))

        await self.db.transact(work)
        self._turns[folder] = {"agent_group_id": group, "session_id": session, "turn_id": turn}
        return group

    async def call(self, folder: str, cost: str | None, **values: Any) -> None:
        row = {"provider": "openai", "model": "m", "input_tokens": 10, "output_tokens": 1} | values
        row |= {"cost_usd": Decimal(cost) if cost is not None else None, **self._turns[folder]}
        await self.db.transact(lambda conn: conn.execute(insert(Usage).values(**row)))

    def turn(self, folder: str) -> str:
        return self._turns[folder]["turn_id"]


@pytest.fixture
def ledger(db: Database) -> Ledger:
    return Ledger(db)


@pytest.mark.spec("P21", "G4")
async def test_sums_by_any_combination_the_dearest_first(ledger: Ledger) -> None:
    await ledger.group("cheap")
    await ledger.group("dear")
    await ledger.call("cheap", "0.00000001", created_at=EARLY)
    await ledger.call("dear", "1.50", model="big", cache_read_tokens=5, cache_write_tokens=7, created_at=EARLY)
    await ledger.call("dear", "0.25", model="big", created_at=LATE)
    await ledger.call("dear", "0.50", model="small", created_at=LATE)
    rows = await ledger.db.read(lambda conn: usage_by(conn, ["agent", "model"], BEFORE))
    assert [(row.key, row.calls, row.cost_usd) for row in rows] == [
        (("dear", "big"), 2, 1.75),
        (("dear", "small"), 1, 0.5),
        (("cheap", "m"), 1, 1e-8),
    ]
    assert (rows[0].input_tokens, rows[0].cache_read_tokens, rows[0].cache_write_tokens) == (20, 5, 7)
    total = await ledger.db.read(lambda conn: usage_in_total(conn, BEFORE))
    assert (total.key, total.calls, total.output_tokens, total.unpriced_calls) == ((), 4, 4, 0)
    assert total.cost_usd == pytest.approx(2.25000001)
    [first] = await ledger.db.read(lambda conn: usage_by(conn, ["agent"], BEFORE, limit=1))
    assert first.key == ("dear",)
    for dimension in DIMENSIONS:
        assert await ledger.db.read(lambda conn, d=dimension: usage_by(conn, [d], BEFORE))  # type: ignore[misc]


@pytest.mark.spec("P21")
async def test_a_day_is_that_of_utc_and_begins_at_midnight(ledger: Ledger) -> None:
    await ledger.group("a")
    await ledger.call("a", "1", created_at=LATE)
    await ledger.call("a", "2", created_at=EARLY)
    await ledger.call("a", "4", created_at=EARLY.astimezone(tz=None) + timedelta(hours=23, minutes=59))
    rows = await ledger.db.read(lambda conn: usage_by(conn, ["day"], BEFORE))
    assert [(row.key, row.cost_usd) for row in rows] == [(("2026-03-02",), 6.0), (("2026-03-01",), 1.0)]
    total = await ledger.db.read(lambda conn: usage_in_total(conn, EARLY))
    assert total.cost_usd == 6.0


@pytest.mark.spec("P21")
async def test_what_has_no_price_is_counted_and_not_guessed(ledger: Ledger) -> None:
    group = await ledger.group("a")
    await ledger.group("b")
    assert (await ledger.db.read(lambda conn: usage_in_total(conn, BEFORE))).calls == 0
    await ledger.call("a", None, user_id="x:1")
    await ledger.call("b", "0.1")
    await ledger.call("b", None)
    rows = await ledger.db.read(lambda conn: usage_by(conn, ["agent", "user"], BEFORE))
    assert [(row.key, row.cost_usd, row.unpriced_calls) for row in rows] == [
        (("b", None), 0.1, 1),
        (("a", "x:1"), None, 1),
    ]
    [only] = await ledger.db.read(lambda conn: usage_by(conn, ["agent"], BEFORE, agent_group_id=group))
    assert only.key == ("a",)


@pytest.mark.spec("P21")
async def test_todays_budget_shows_what_is_spent_held_and_added(ledger: Ledger) -> None:
    group = await ledger.group("a", budget={"daily_usd": 2.0, "user_daily_usd": 0.5})
    await ledger.group("without")
    await ledger.call("a", "0.30", user_id="x:1")
    await ledger.call("a", "9.00", user_id="x:2", created_at=EARLY)  # another day
    everybody, one = await ledger.db.read(budget_states)
    assert (everybody.folder, everybody.user_id, everybody.cap_usd) == ("a", None, 2.0)
    assert everybody.spent_usd == pytest.approx(0.3)
    assert (one.user_id, one.cap_usd) == ("x:1", 0.5)
    assert one.left_usd == pytest.approx(0.2)

    async def hold(conn: AsyncConnection) -> None:
        day = await today(conn)
        who: dict[str, Any] = {
            "turn_id": ledger.turn("a"),
            "agent_group_id": group,
            "user_id": "",
            "day": day,
            "cap": 2.0,
        }
        assert await reserve(conn, step_id="s1", usd=0.2, **who)
        assert await reserve(conn, step_id="s2", usd=0.4, **who)
        await settle(conn, "s2", 0.1)
        await conn.execute(BudgetDay.__table__.update().values(extra_usd=1.0))  # type: ignore[attr-defined]

    await ledger.db.transact(hold)
    [everybody, _] = await ledger.db.read(lambda conn: budget_states(conn, group))
    figures = [everybody.cap_usd, everybody.held_usd, everybody.spent_usd, everybody.left_usd]
    assert figures == pytest.approx([3.0, 0.2, 0.4, 2.4])


async def test_midnight_is_the_databases(db: Database) -> None:
    midnight, week = await db.read(start_of_day), await db.read(lambda conn: start_of_day(conn, 6))
    assert (midnight.hour, midnight.minute, midnight.microsecond, midnight.tzinfo) == (0, 0, 0, UTC)
    assert midnight - week == timedelta(days=6)
