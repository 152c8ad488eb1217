"""`/v1/approvals`: what waits for a decision of the caller's, and deciding."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from gateway.http.api.forms import Page, RowId, Told, yours
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import HouseDep
from gateway.http.problems import documented
from models.base import AnyRow
from workers.consent.approvals import decide
from workers.consent.waiting import approvals_for, check_approval
from workers.house import ring_for


class ApprovalView(BaseModel):
    """Whole: what is approved is exactly this payload."""

    id: str
    agent: str
    session: str
    category: str
    summary: str
    risk: str
    payload: dict[str, Any]
    payload_hash: str
    created_at: datetime
    expires_at: datetime


class Decision(BaseModel):
    model_config = ConfigDict(extra="forbid")

    decision: Literal["approve", "deny"]
    payload_hash: str | None = Field(
        None, max_length=64, description="of what was looked at: nothing else is decided about"
    )


router = APIRouter(tags=["approvals"])


@router.get("/approvals")
async def list_approvals(house: HouseDep, caller: Annotated[Caller, needs("decide")]) -> Page[ApprovalView]:
    """Those the caller may decide about, the oldest first."""
    rows = await house.db.read(lambda conn: approvals_for(conn, caller.user_id))
    return Page(items=[approval_view(row) for row in rows])


@router.post("/approvals/{approval_id}", responses=documented(404, 409))
async def decide_approval(
    house: HouseDep, approval_id: RowId, given: Decision, caller: Annotated[Caller, needs("decide")]
) -> Told:
    """Approve or deny, once. 409: it was decided before, is over, or is about something else than was looked at."""
    with yours():
        await house.db.read(lambda conn: check_approval(conn, caller.user_id, approval_id))
    approve, shown = given.decision == "approve", given.payload_hash
    decided = await decide(house.db, approval_id, approve=approve, user_id=caller.user_id, shown=shown)
    ring_for(house, decided.wakes, decided.deliveries)
    return Told(text=decided.text)


def approval_view(row: AnyRow) -> ApprovalView:
    shown = {name: getattr(row, name) for name in ApprovalView.model_fields if name not in ("agent", "session")}
    return ApprovalView(agent=row.folder, session=row.session_id, **shown)
