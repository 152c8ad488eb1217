"""Who did what, through whichever door; by who, what and agent."""

from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.responses import show
from gateway.console.visitors import Guest, needs
from gateway.http.dependencies import HouseDep
from models.audit import list_audit
from models.base import AnyRow, storable
from models.groups import agent_groups

_SHOWN: Final = 100
# What is done to a session: its target has a page.
_OF_SESSIONS: Final = ("session.", "turn.")


router = APIRouter()


@router.get("/audit")
async def show_audit(
    house: HouseDep,
    guest: Annotated[Guest, needs("admin", "all")],
    who: Annotated[str, Query(max_length=255)] = "",
    act: Annotated[str, Query(max_length=50)] = "",
    agent: Annotated[str, Query(max_length=100)] = "",
    before: Annotated[str, Query(max_length=36, pattern=r"^[\w-]*$")] = "",
) -> Response:
    asked = {"who": storable(who.strip()), "act": storable(act.strip()), "agent": storable(agent)}
    narrow = {name: value or None for name, value in asked.items()}

    async def look(conn: AsyncConnection) -> tuple[list[AnyRow], list[AnyRow]]:
        return await list_audit(conn, _SHOWN + 1, before or None, **narrow), await agent_groups(conn)

    rows, groups = await house.db.read(look)
    older = ""
    if len(rows) > _SHOWN:
        older = "/console/audit?" + urlencode(asked | {"before": rows[_SHOWN - 1].id})
    return show(
        guest,
        "audit.html",
        rows=rows[:_SHOWN],
        older=older,
        asked=asked,
        agents=[row.folder for row in groups],
        of_sessions=_OF_SESSIONS,
    )
