"""Who did what, through whichever door."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from gateway.console.console import Console
from gateway.console.visitors import Guest
from models.audit import list_audit

_SHOWN: Final = 100


def audit_pages(console: Console) -> APIRouter:
    router = APIRouter()

    @router.get("/audit")
    async def show_audit(
        guest: Annotated[Guest, console.needs("admin", "all")],
        before: Annotated[str, Query(max_length=36, pattern=r"^[\w-]*$")] = "",
    ) -> Response:
        rows = await console.house.db.read(lambda conn: list_audit(conn, _SHOWN + 1, before or None))
        older = f"/console/audit?before={rows[_SHOWN - 1].id}" if len(rows) > _SHOWN else ""
        return console.show(guest, "audit.html", rows=rows[:_SHOWN], older=older)

    return router
