"""All sessions, the most recently active first: by agent and state, and searched."""

from typing import Annotated, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.responses import show
from gateway.console.visitors import Guest, needs
from gateway.http.api.forms import read_point
from gateway.http.dependencies import HouseDep
from gateway.session_words import standing
from models.base import AnyRow, storable
from models.browsing import Point, sessions_page
from models.groups import agent_groups

_SHOWN: Final = 50
Status = Literal["", "active", "closed"]


router = APIRouter()


@router.get("/sessions")
async def list_sessions(
    house: HouseDep,
    guest: Annotated[Guest, needs("read", "some")],
    agent: Annotated[str, Query(max_length=100)] = "",
    status: Status = "",
    q: Annotated[str, Query(max_length=200)] = "",
    after: Annotated[str, Query(max_length=250)] = "",
) -> Response:
    q, agent = storable(q.strip()), storable(agent)

    async def look(conn: AsyncConnection) -> tuple[list[AnyRow], list[AnyRow]]:
        narrow = {"agent": agent or None, "status": status or None, "search": q or None}
        rows = await sessions_page(conn, guest.reach.where, _SHOWN + 1, read_point(after or None), **narrow)
        return rows, await agent_groups(conn)

    rows, groups = await house.db.read(look)
    shown = rows[:_SHOWN]
    older = ""
    if len(rows) > _SHOWN:
        point = Point(shown[-1].last_active, shown[-1].id)
        older = "?" + urlencode({"agent": agent, "status": status, "q": q, "after": str(point)})
    agents = [row.folder for row in groups if guest.reach.includes(row.id)]
    asked = {"agent": agent, "status": status, "q": q, "after": after}
    return show(guest, "sessions.html", rows=shown, older=older, agents=agents, asked=asked, standing=standing)
