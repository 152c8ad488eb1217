"""Who did what, through whichever door; by who, what and agent."""

from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.console import Console
from gateway.console.visitors import Guest
from models.audit import list_audit
from models.base import AnyRow, storable
from models.groups import agent_groups

_SHOWN: Final = 100
# What is done to a session: its target has a page.
_OF_SESSIONS: Final = ("session.", "turn.")


def audit_pages(console: Console) -> APIRouter:
    router = APIRouter()

    @router.get("/audit")
    async def show_audit(
        guest: Annotated[Guest, console.needs("admin", "all")],
        who: Annotated[str, Query(max_length=255)] = "",
        act: Annotated[str, Query(max_length=50)] = "",
        agent: Annotated[str, Query(max_length=100)] = "",
        before: Annotated[str, Query(max_length=36, pattern=r"^[\w-]*$")] = "",
    ) -> Response:
        asked = {"who": storable(who.strip()), "act": storable(act.strip()), "agent": storable(agent)}
        narrow = {name: value or None for name, value in asked.items()}

        async def look(conn: AsyncConnection) -> tuple[list[AnyRow], list[AnyRow]]:
            return await list_audit(conn, _SHOWN + 1, before or None, **narrow), await agent_groups(conn)

        rows, groups = await console.house.db.read(look)
        older = ""
        if len(rows) > _SHOWN:
            older = "/console/audit?" + urlencode(asked | {"before": rows[_SHOWN - 1].id})
        return console.show(
            guest,
            "audit.html",
            rows=rows[:_SHOWN],
            older=older,
            asked=asked,
            agents=[row.folder for row in groups],
            of_sessions=_OF_SESSIONS,
        )

    return router
