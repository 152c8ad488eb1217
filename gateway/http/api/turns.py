"""`/v1/sessions/{id}/turns`, `/v1/turns`: what an agent did, turn by turn and step by step.

What stands in steps was said by models, tools and web pages: it is data, cut to a bound, and never more than JSON."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.http.api.forms import After, Limit, Page, RowId, excerpt, page, read_number
from gateway.http.belongings import session_of, turn_of
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import HouseDep
from gateway.http.problems import documented
from models.base import AnyRow
from models.browsing import steps_page, turns_page
from models.spending import Spent, usage_of_turns

_FACTS = ("id", "number", "status", "attempt", "provider", "provider_version", "model", "worker")
_ENDING = ("error_class", "error", "started_at", "ended_at")


class TurnUsage(BaseModel):
    """`cost_usd` is null if no call has a known price."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None


class TurnView(BaseModel):
    id: str
    session: str
    agent: str
    number: int
    status: Literal["running", "waiting", "parked", "completed", "failed", "cancelled"] = Field(
        description="`waiting`: to be continued at a date; `parked`: for a person"
    )
    attempt: int
    provider: str
    provider_version: str | None
    model: str | None
    worker: str | None
    error_class: str | None
    error: str | None
    started_at: datetime
    ended_at: datetime | None
    usage: TurnUsage


class StepView(BaseModel):
    """A call of a model or a tool: written before it is made, and after."""

    id: str
    number: int
    kind: Literal["model", "tool"]
    name: str
    status: Literal["started", "finished", "failed"]
    idempotent: bool = Field(description="it may be made again without harm")
    input: dict[str, Any] | str = Field(description="as text, if it was cut")
    output: dict[str, Any] | str | None = Field(description="as text, if it was cut")
    cut: bool = Field(description="input or output is longer; this is its beginning")
    started_at: datetime
    ended_at: datetime | None


router = APIRouter(tags=["turns"])


@router.get("/sessions/{session_id}/turns", responses=documented(404))
async def list_turns(
    house: HouseDep, session_id: RowId, caller: Annotated[Caller, needs("read")], limit: Limit = 50, after: After = None
) -> Page[TurnView]:
    """In their order."""
    number = read_number(after)

    async def look(conn: AsyncConnection) -> tuple[list[AnyRow], dict[str, Spent]]:
        await session_of(conn, caller.user_id, session_id)
        rows = await turns_page(conn, session_id, limit + 1, number)
        return rows, await usage_of_turns(conn, [row.id for row in rows])

    rows, used = await house.db.read(look)
    return page(rows, limit, lambda row: turn_view(row, used), lambda row: row.number)


@router.get("/turns/{turn_id}", responses=documented(404))
async def show_turn(house: HouseDep, turn_id: RowId, caller: Annotated[Caller, needs("read")]) -> TurnView:
    """One turn, and what it has used."""

    async def look(conn: AsyncConnection) -> TurnView:
        row = await turn_of(conn, caller.user_id, turn_id)
        return turn_view(row, await usage_of_turns(conn, [row.id]))

    return await house.db.read(look)


@router.get("/turns/{turn_id}/steps", responses=documented(404))
async def list_steps(
    house: HouseDep, turn_id: RowId, caller: Annotated[Caller, needs("read")], limit: Limit = 50, after: After = None
) -> Page[StepView]:
    """Its calls of models and tools, in their order."""
    number = read_number(after)

    async def look(conn: AsyncConnection) -> list[AnyRow]:
        await turn_of(conn, caller.user_id, turn_id)
        return await steps_page(conn, turn_id, limit + 1, number)

    return page(await house.db.read(look), limit, step_view, lambda row: row.number)


def turn_view(row: AnyRow, used: dict[str, Spent]) -> TurnView:
    facts = {name: getattr(row, name) for name in (*_FACTS, *_ENDING)}
    spent = used.get(row.id)
    sums = {name: getattr(spent, name) for name in TurnUsage.model_fields} if spent is not None else {}
    return TurnView(session=row.session_id, agent=row.folder, usage=TurnUsage(**sums), **facts)


def step_view(row: AnyRow) -> StepView:
    facts = {name: getattr(row, name) for name in ("id", "number", "kind", "name", "status", "idempotent")}
    (given, given_cut), (came, came_cut) = excerpt(row.input), excerpt(row.output)
    times = {"started_at": row.started_at, "ended_at": row.ended_at}
    return StepView(input=given, output=came, cut=given_cut or came_cut, **facts, **times)
