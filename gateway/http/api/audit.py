"""`/v1/audit`: who did what, through whichever door."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from gateway.http.api.forms import After, Limit, Page, page
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, HouseDep
from models.audit import list_audit
from models.base import AnyRow, storable


class AuditLine(BaseModel):
    id: str
    at: datetime
    who: str = Field(description="a user, or `cli` for whoever sits at the command line")
    act: str = Field(description="`dead.retry`: what kind of thing, and what was done to it")
    agent: str | None
    target: str
    detail: dict[str, Any]


router = APIRouter(tags=["audit"])


@router.get("/audit")
async def read_audit(
    house: HouseDep,
    door: DoorDep,
    caller: Annotated[Caller, needs("admin")],
    who: Annotated[
        str | None, Query(min_length=1, max_length=255, description="who did it; need only be begun")
    ] = None,
    act: Annotated[
        str | None, Query(min_length=1, max_length=50, description="what; need only be begun: `dead`")
    ] = None,
    agent: Annotated[str | None, Query(min_length=1, max_length=100, description="the agent it was about")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[AuditLine]:
    """What operators did, the latest first. For owners and global admins."""
    await door.see_fleet(caller)
    asked = {"who": who, "act": act, "agent": agent}
    narrow = {name: storable(value) for name, value in asked.items() if value is not None}
    rows = await house.db.read(lambda conn: list_audit(conn, limit + 1, after, **narrow))
    return page(rows, limit, _line, lambda row: row.id)


def _line(row: AnyRow) -> AuditLine:
    facts = {name: getattr(row, name) for name in AuditLine.model_fields if name != "agent"}
    return AuditLine(agent=row.folder, **facts)
