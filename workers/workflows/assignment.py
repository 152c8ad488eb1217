"""What a turn of a workflow's session works on: the stage its message asks for, and the files that stage is about.
Found when the turn is opened, in the transaction that opens it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.contracts import TaskSpec
from adapters.errors import ErrorClass, GitError, ProviderError
from adapters.git.workbench import Workbench
from adapters.sandbox.port import Sandbox
from adapters.workspace import Workspace
from models.base import AnyRow
from models.workflows import stage_of
from workers.workflows.spec import Spec, StageKind

FOLDER: Final = ".workflows"  # beside the workspaces; no agent's folder begins with a dot
# The repository of a workflow belongs to whoever runs git in the sandbox, which may be another user than an agent's.
GIT_ENV: Final = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}


@dataclass(frozen=True)
class Assignment:
    """`call`: what the stage is told besides words. `tree` and `at`: its files, and the commit they begin with.
    `planned`: the task as it was planned. `is_asked`: the turn is about the stage itself, and not about what somebody
    said in its session afterwards."""

    workflow_id: str
    stage_id: str
    kind: StageKind
    task: str
    call: dict[str, Any]
    tree: str | None
    at: str | None
    planned: TaskSpec | None
    goal: str
    spec: Spec
    budget_usd: float | None
    began: datetime
    is_asked: bool


async def assigned(conn: AsyncConnection, session_id: str, messages: Sequence[AnyRow]) -> Assignment | None:
    stage = await stage_of(conn, session_id, [message.id for message in messages])
    if stage is None:
        return None
    return Assignment(
        stage.workflow_id,
        stage.id,
        stage.kind,
        stage.task,
        stage.input.get("call") or {},
        stage.input.get("tree"),
        stage.input.get("at"),
        _task_of(stage.input.get("task")),
        stage.workflow_goal,
        Spec.model_validate(stage.workflow_spec),
        stage.workflow_budget_usd,
        stage.workflow_created_at,
        is_asked=any(message.id == stage.id for message in messages),
    )


def _task_of(planned: dict[str, Any] | None) -> TaskSpec | None:
    if planned is None:
        return None
    return TaskSpec(planned["title"], planned["goal"], tuple(planned["constraints"]), tuple(planned["acceptance"]))


def root_of(workspace_root: Path, workflow_id: str) -> Path:
    return workspace_root.absolute() / FOLDER / workflow_id


def workbench_of(workspace_root: Path, workflow_id: str, sandbox: Sandbox | None) -> Workbench:
    if sandbox is None:
        why = (
            "a workflow's repository is worked on in a sandbox, and this machine has none that holds: longshore doctor"
        )
        raise ProviderError(why, ErrorClass.INVALID_REQUEST)
    return Workbench(root_of(workspace_root, workflow_id), sandbox)


async def workspace_of(bench: Workbench, assignment: Assignment) -> Workspace:
    """The tree of the stage, made if it is not there; with what it conflicts with brought in, if it is to be mended."""
    assert assignment.tree is not None
    assert assignment.at is not None
    try:
        tree = await bench.tree(assignment.tree, assignment.at)
        if (onto := assignment.call.get("bring")) is not None:
            await bench.bring(assignment.tree, onto)
    except GitError as error:
        why = f"the files of this stage could not be laid out: {error}"
        raise ProviderError(why, ErrorClass.TOOL if error.retryable else ErrorClass.INVALID_REQUEST) from error
    return Workspace(tree)
