"""`/v1/usage` and `/v1/budgets`: what model calls took and cost, and how much of today's budgets is left."""

from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.http.api.forms import Page
from gateway.http.api.groups import OfAgent
from gateway.http.belongings import agent_of
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, HouseDep
from gateway.http.problems import documented
from models.spending import (
    DIMENSIONS,
    BudgetState,
    Spent,
    budget_states,
    start_of_day,
    usage_by,
    usage_in_total,
)

_ONE: Final = "|".join(DIMENSIONS)
MOST_DAYS: Final = 3650
MOST_ROWS: Final = 1000


class Figures(BaseModel):
    calls: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    cost_usd: float | None = Field(description="US dollars; null: nobody knows the price of any of these calls")
    unpriced_calls: int = Field(description="calls without a known price, which are not in the cost")


class UsageRow(Figures):
    key: dict[str, str | None] = Field(description="a value for each name in `by`")


class UsageReport(BaseModel):
    since: datetime
    rows: list[UsageRow] = Field(description="the dearest first")
    more: bool = Field(description="there are more rows than `limit`; the total has them all")
    total: Figures


class BudgetView(BaseModel):
    """One budget today: a person's, or a task's, or what everybody may spend together. US dollars."""

    agent: str
    user: str | None
    task: str | None
    spent_usd: float
    held_usd: float = Field(description="for calls under way")
    cap_usd: float
    left_usd: float


router = APIRouter(tags=["usage"])


@router.get("/usage", responses=documented(404))
async def usage(
    house: HouseDep,
    door: DoorDep,
    caller: Annotated[Caller, needs("read")],
    by: Annotated[
        str,
        Query(
            max_length=100,
            pattern=rf"^({_ONE})(,({_ONE}))*$",
            description=f"one or more of {', '.join(DIMENSIONS)}, with commas",
        ),
    ] = "agent,model",
    days: Annotated[int, Query(ge=1, le=MOST_DAYS, description="today (UTC) and the days before")] = 7,
    agent: OfAgent = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
) -> UsageReport:
    """Tokens, calls and cost of the agents that the caller may look at."""
    names = list(dict.fromkeys(by.split(",")))
    mine = (await door.reach(caller)).where

    async def look(conn: AsyncConnection) -> tuple[datetime, list[Spent], Spent]:
        group = await _group(conn, caller, agent)
        start = await start_of_day(conn, days - 1)
        rows = await usage_by(conn, names, start, agent_group_id=group, mine=mine, limit=limit + 1)
        return start, rows, await usage_in_total(conn, start, agent_group_id=group, mine=mine)

    start, rows, total = await house.db.read(look)
    shown = [UsageRow(key=dict(zip(names, row.key, strict=True)), **_figures(row)) for row in rows[:limit]]
    return UsageReport(since=start, rows=shown, more=len(rows) > limit, total=Figures(**_figures(total)))


@router.get("/budgets", responses=documented(404))
async def budgets(
    house: HouseDep, door: DoorDep, caller: Annotated[Caller, needs("read")], agent: OfAgent = None
) -> Page[BudgetView]:
    """Today's budgets (UTC). A person's or a task's share is listed once it has been used."""
    mine = (await door.reach(caller)).where

    async def look(conn: AsyncConnection) -> list[BudgetState]:
        return await budget_states(conn, await _group(conn, caller, agent), mine=mine)

    return Page(items=[_budget(state) for state in await house.db.read(look)])


async def _group(conn: AsyncConnection, caller: Caller, agent: str | None) -> str | None:
    return (await agent_of(conn, caller.user_id, agent)).id if agent is not None else None


def _figures(spent: Spent) -> dict[str, int | float | None]:
    return {name: value for name, value in vars(spent).items() if name != "key"}


def _budget(state: BudgetState) -> BudgetView:
    money = {name: getattr(state, name) for name in ("spent_usd", "held_usd", "cap_usd", "left_usd")}
    return BudgetView(agent=state.folder, user=state.user_id, task=state.series_id, **money)
