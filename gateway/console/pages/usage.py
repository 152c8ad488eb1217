"""What the fleet has used and what that cost: by day, each made of agents, models, providers or people; the numbers
beneath, and today's budgets."""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.rendering.charts import Column, columns_of
from gateway.console.responses import show
from gateway.console.visitors import Guest, needs
from gateway.http.dependencies import HouseDep
from models.spending import budget_states, start_of_day, usage_by, usage_in_total

_MOST_ROWS: Final = 200
By = Literal["agent", "model", "provider", "user", "day"]
Days = Literal["1", "7", "30", "90"]
BYS: Final = (("agent", "agent"), ("model", "model"), ("provider", "provider"), ("user", "person"), ("day", "day"))
SPANS: Final = (("1", "today"), ("7", "7 days"), ("30", "30 days"), ("90", "90 days"))


router = APIRouter()


@router.get("/usage")
async def show_usage(
    house: HouseDep, guest: Annotated[Guest, needs("read", "some")], days: Days = "30", by: By = "agent"
) -> Response:
    mine = guest.reach.where
    parts_of = by if by != "day" else "agent"  # what the columns of the chart are made of

    async def look(conn: AsyncConnection) -> dict[str, Any]:
        since = await start_of_day(conn, int(days) - 1)
        return {
            "since": since,
            "daily": await usage_by(conn, ["day", parts_of], since, mine=mine),
            "groups": await usage_by(conn, ["agent"], since, mine=mine, limit=10),
            "models": await usage_by(conn, ["model"], since, mine=mine, limit=10),
            "rows": await usage_by(conn, [by], since, mine=mine, limit=_MOST_ROWS),
            "total": await usage_in_total(conn, since, mine=mine),
            "budgets": await budget_states(conn, mine=mine),
        }

    found = await house.db.read(look)
    parts: list[Column] = [
        (str(row.key[0]), str(row.key[1] or "unknown"), row.cost_usd or 0.0) for row in found["daily"]
    ]
    chart = columns_of(parts, found["since"].date(), int(days))
    if by == "day":
        found["rows"].sort(key=lambda row: row.key[0] or "", reverse=True)
    asked = {"days": days, "by": by}
    words: dict[str, Any] = {"asked": asked, "bys": BYS, "spans": SPANS, "parts_of": parts_of}
    return show(guest, "usage.html", **found, chart=chart, **words)
