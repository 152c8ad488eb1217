"""`/v1/workflows`: work of several agents with one result: to look at it, stop it and let it go on.

To begin one is not offered: it names a folder of the server, and a program to run there as its check."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.http.api.forms import After, Limit, Page, RowId, Told, excerpt, page
from gateway.http.api.usage import Figures
from gateway.http.belongings import workflow_of
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, HouseDep
from gateway.http.problems import documented
from gateway.workflow_data import workflow_data, workflow_facts
from models.workflows import workflows_page
from workers.access import Act
from workers.house import House
from workers.operations import workflows as operations
from workers.workflows.spec import MINUTES
from workers.workflows.starting import MAX_MINUTES
from workers.workflows.view import WorkflowView, look

Status = Literal["running", "completed", "failed", "cancelled"]


class ShownTarget(BaseModel):
    """Where the result goes: a branch of the repository, or a pull request."""

    branch: str
    pull_request: bool
    remote: str
    into: str | None


class ShownWorkflow(BaseModel):
    id: str
    agent: str
    kind: str
    goal: str
    status: Status
    outcome: str | None = Field(description="how it ended, in words")
    result: dict[str, Any] | None = Field(description="of one that is completed: branch, commit, url, summary, files")
    started_by: str
    repository: str
    target: ShownTarget
    budget_usd: float | None
    created_at: datetime
    deadline_at: datetime
    ended_at: datetime | None


class ShownWho(BaseModel):
    provider: str
    model: str | None
    why: str


class ShownRoles(BaseModel):
    planner: ShownWho
    builders: list[ShownWho]
    reviewers: dict[str, ShownWho] = Field(description="by the builder whose work is looked at")


class ShownTask(BaseModel):
    key: str
    title: str
    goal: str
    constraints: list[str]
    acceptance: list[str]
    builder: str
    reviewer: str
    stages: list[str] = Field(description="ids of `stages`, in the order in which they were begun")
    is_done: bool


class ShownAsk(BaseModel):
    """An approval; `/v1/approvals` has what it is about, and is where it is decided."""

    id: str
    category: str
    summary: str
    risk: Literal["low", "medium", "high"]
    status: Literal["pending", "approved", "denied", "expired", "used"]
    decided_by: str | None
    created_at: datetime
    expires_at: datetime


class ShownQuestion(BaseModel):
    """`/v1/questions` is where it is answered."""

    id: str
    title: str | None = None
    text: str | None = None
    options: list[Any] | None = None
    expires_at: datetime


class ShownStage(BaseModel):
    """One message to one agent, or to the clerk, which does what needs no judgement."""

    id: str
    number: int
    kind: Literal["prepare", "plan", "build", "fix", "check", "review", "merge", "publish"]
    name: str
    task: str = Field(description="a task's key; empty: it is about the whole")
    round: int
    attempt: int
    provider: str
    model: str | None
    state: Literal["running", "waiting", "completed", "negative", "failed", "cancelled", "replaced"] = Field(
        description="waiting: for a person; negative: it sends the work back; replaced: it was begun anew"
    )
    doing: str | None = Field(description="what its worker is at")
    in_words: str
    error: str | None
    session: str
    turn: str | None
    output: dict[str, Any] | str = Field(description="what was handed in, without the change; as text, if it was cut")
    cut: bool
    approvals: list[ShownAsk]
    usage: Figures | None
    started_at: datetime
    ended_at: datetime | None


class WholeWorkflow(ShownWorkflow):
    base: str | None
    check: str | None = Field(description="the test command; null: found by looking at the repository")
    roles: ShownRoles
    tries: int
    most_tasks: int
    notes: list[str]
    summary: str = Field(description="the plan, in a few sentences; empty: there is none yet")
    tasks: list[ShownTask]
    stages: list[ShownStage]
    waiting: list[ShownAsk] = Field(description="approvals that somebody has to decide now")
    questions: list[ShownQuestion]
    usage: dict[str, Figures] = Field(description="by provider")
    cost_usd: float


class Restart(BaseModel):
    model_config = ConfigDict(extra="forbid")

    minutes: float = Field(MINUTES, ge=1, le=MAX_MINUTES, description="so long it may take from now on")


router = APIRouter(tags=["workflows"])


@router.get("/workflows")
async def list_workflows(
    house: HouseDep,
    door: DoorDep,
    caller: Annotated[Caller, needs("read")],
    status: Status | None = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[ShownWorkflow]:
    """Workflows, the latest first."""
    mine = (await door.reach(caller)).where
    rows = await house.db.read(lambda conn: workflows_page(conn, mine, limit + 1, after, status=status))
    return page(rows, limit, lambda row: ShownWorkflow(**workflow_facts(row)), lambda row: row.id)


@router.get("/workflows/{workflow_id}", responses=documented(404))
async def show_workflow(house: HouseDep, workflow_id: RowId, caller: Annotated[Caller, needs("read")]) -> WholeWorkflow:
    """All of one: who does what, its tasks and stages, what waits for somebody, and what it has cost."""
    data = workflow_data(await _view(house, caller, workflow_id))
    for stage in data["stages"]:
        stage["output"], stage["cut"] = excerpt(stage["output"])
    return WholeWorkflow(**data)


@router.get(
    "/workflows/{workflow_id}/diff",
    response_class=PlainTextResponse,
    responses=documented(404),
)
async def show_workflow_diff(
    house: HouseDep, workflow_id: RowId, caller: Annotated[Caller, needs("read")]
) -> PlainTextResponse:
    """The change: the whole, or until there is one, what each task has. Of a very long one the beginning; empty:
    nothing was changed yet. As agents have written it: not for a terminal."""
    view = await _view(house, caller, workflow_id)
    return PlainTextResponse(view.diff, headers={"X-Content-Type-Options": "nosniff"})


@router.post("/workflows/{workflow_id}/cancel", responses=documented(404, 409))
async def cancel_workflow(house: HouseDep, workflow_id: RowId, caller: Annotated[Caller, needs("operate")]) -> Told:
    """Stop it: all that runs for it is given up, and nothing is merged. 409: it is over already."""
    await house.db.read(lambda conn: workflow_of(conn, caller.user_id, workflow_id, Act.OPERATE))
    return Told(text=(await operations.cancel(house, caller.user_id, workflow_id)).text)


@router.post("/workflows/{workflow_id}/restart", responses=documented(404, 409))
async def restart_workflow(
    house: HouseDep, workflow_id: RowId, caller: Annotated[Caller, needs("operate")], given: Restart | None = None
) -> Told:
    """Let it go on where it stopped: what is done stays done. 409: it runs, or has reached its goal."""
    await house.db.read(lambda conn: workflow_of(conn, caller.user_id, workflow_id, Act.OPERATE))
    minutes = (given or Restart()).minutes
    return Told(text=(await operations.restart(house, caller.user_id, workflow_id, minutes=minutes)).text)


async def _view(house: House, caller: Caller, workflow_id: str) -> WorkflowView:
    async def read(conn: AsyncConnection) -> WorkflowView:
        await workflow_of(conn, caller.user_id, workflow_id)
        seen = await look(conn, workflow_id)
        assert seen is not None
        return seen

    return await house.db.read(read)
