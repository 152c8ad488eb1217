"""Workflows: a list of them, and one as a board with its stages as they go on: plan, findings, changes, what waits for
somebody. Stopping one, and letting one go on, is done by `workers.operations`."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console import workflow_board as board
from gateway.console.rendering.patches import patches_of
from gateway.console.responses import Notice, show, show_beside
from gateway.console.visitors import Guest, needs
from gateway.http.api.forms import RowId
from gateway.http.belongings import workflow_of
from gateway.http.dependencies import HouseDep
from models.base import AnyRow
from models.workflow_progress import Progress, progress_of
from models.workflows import workflows_page
from workers.access import Act
from workers.house import Done, House
from workers.operations import workflows as operations
from workers.workflows.spec import CLERK
from workers.workflows.view import WorkflowView, look

_SHOWN: Final = 30
Status = Literal["", "running", "completed", "failed", "cancelled"]
Operation = Callable[[House, str, str], Awaitable[Done]]
_OPERATIONS: Final[dict[str, Operation]] = {"cancel": operations.cancel, "restart": operations.restart}
_WORDS: Final[dict[str, Any]] = {
    "columns": board.COLUMNS,
    "lane": board.LANE,
    "tone_of": board.tone_of,
    "word_of": board.word_of,
    "mark_of": board.mark_of,
    "is_newest": board.is_newest,
    "patches_of": patches_of,
    "CLERK": CLERK,
}


router = APIRouter(prefix="/workflows")
LOOKS, OPERATES = needs("read", "some"), needs("operate", "some")


async def view_of(house: House, guest: Guest, workflow_id: str) -> WorkflowView:
    async def read(conn: AsyncConnection) -> WorkflowView:
        await workflow_of(conn, guest.user_id, workflow_id)
        view = await look(conn, workflow_id)
        assert view is not None
        return view

    return await house.db.read(read)


async def page(
    house: House, guest: Guest, workflow_id: str, template: str = "workflow.html", notice: Notice | None = None
) -> Response:
    view = await view_of(house, guest, workflow_id)
    # Forms in a part lead back to the page that it is on.
    at_page = replace(guest, path=f"/console/workflows/{workflow_id}")
    values = {"view": view, "row": view.row, "board": board.lay_out(view), **_WORDS}
    return await show_beside(at_page, template, notice=notice, **values)


@router.get("")
async def list_workflows(
    house: HouseDep,
    guest: Annotated[Guest, LOOKS],
    status: Status = "",
    before: Annotated[str, Query(max_length=36, pattern=r"^[\w-]*$")] = "",
) -> Response:
    async def read(conn: AsyncConnection) -> tuple[list[AnyRow], dict[str, Progress]]:
        rows = await workflows_page(conn, guest.reach.where, _SHOWN + 1, before or None, status=status or None)
        return rows, await progress_of(conn, [row.id for row in rows[:_SHOWN]])

    rows, progress = await house.db.read(read)
    shown, asked = rows[:_SHOWN], {"status": status, "before": before}
    older = ""
    if len(rows) > _SHOWN:
        older = f"/console/workflows?{urlencode({'status': status, 'before': shown[-1].id})}"
    return show(
        guest,
        "workflows.html",
        rows=shown,
        progress=progress,
        way_of=board.way_of,
        asked=asked,
        here_again=f"/console/workflows?{urlencode(asked)}",
        older=older,
    )


@router.get("/{workflow_id}")
async def show_workflow(house: HouseDep, workflow_id: RowId, guest: Annotated[Guest, LOOKS]) -> Response:
    return await page(house, guest, workflow_id)


@router.get("/{workflow_id}/now")
async def show_now(house: HouseDep, workflow_id: RowId, guest: Annotated[Guest, LOOKS]) -> Response:
    return await page(house, guest, workflow_id, "workflow_now.html")


@router.get("/{workflow_id}/stages/{stage_id}")
async def show_stage(
    house: HouseDep, workflow_id: RowId, stage_id: RowId, request: Request, guest: Annotated[Guest, LOOKS]
) -> Response:
    """All that a stage has handed in, which can be long."""
    view = await view_of(house, guest, workflow_id)
    stage = next((one for one in view.stages if one.id == stage_id), None)
    if stage is None:
        raise HTTPException(404, "there is no such stage")
    template = "stage.html" if "hx-request" in request.headers else "stage_page.html"
    return await show_beside(guest, template, view=view, row=view.row, stage=stage, **_WORDS)


@router.post("/{workflow_id}/{operation}")
async def operate(
    house: HouseDep, workflow_id: RowId, operation: Literal["cancel", "restart"], guest: Annotated[Guest, OPERATES]
) -> Response:
    await house.db.read(lambda conn: workflow_of(conn, guest.user_id, workflow_id, Act.OPERATE))
    done = await _OPERATIONS[operation](house, guest.user_id, workflow_id)
    return await page(house, guest, workflow_id, notice=Notice(done.text))
