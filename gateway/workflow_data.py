"""A workflow as data, for programs: the same for the API and for `--json` at the command line. The names are promises.

Changes are left out: they are long, and have a way of their own at both doors."""

from typing import Any, Final

from models.base import AnyRow
from models.spending import Spent
from workers.workflows.spec import spec_of
from workers.workflows.view import StageView, TaskView, WorkflowView

_OWN: Final = ("id", "kind", "goal", "status", "outcome", "started_by", "budget_usd")
_TIMES: Final = ("created_at", "deadline_at", "ended_at")
_OF_STAGE: Final = (
    *("id", "number", "kind", "name", "task", "round", "attempt", "provider", "model", "state", "doing", "error"),
    *("started_at", "ended_at"),
)
_OF_TASK: Final = ("key", "title", "goal", "constraints", "acceptance", "builder", "reviewer")
_OF_ASK: Final = ("id", "category", "summary", "risk", "status", "decided_by", "created_at", "expires_at")
_FIGURES: Final = (
    *("calls", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "cost_usd"),
    "unpriced_calls",
)


def workflow_facts(row: AnyRow) -> dict[str, Any]:
    """What a list shows of one."""
    spec = spec_of(row)
    about = {"agent": row.folder, "repository": spec.repository, "target": spec.target.model_dump()}
    return _picked(row, _OWN) | about | {"result": row.result} | _picked(row, _TIMES)


def workflow_data(view: WorkflowView) -> dict[str, Any]:
    """All of it. A stage's `output` is what was handed in, without the change."""
    spec = view.spec
    roles = {
        "planner": spec.planner.model_dump(),
        "builders": [one.model_dump() for one in spec.builders],
        "reviewers": {builder: one.model_dump() for builder, one in spec.reviewers.items()},
    }
    limits = {"tries": spec.tries, "most_tasks": spec.most_tasks}
    asked = {"base": spec.base, "check": spec.check, "roles": roles, **limits, "notes": list(spec.notes)}
    return {
        **workflow_facts(view.row),
        **asked,
        "summary": view.summary,
        "tasks": [_task(one) for one in view.tasks],
        "stages": [_stage(one) for one in view.stages],
        "waiting": [_picked(one, _OF_ASK) for one in view.waiting],
        "questions": [{"id": one.id, "expires_at": one.expires_at, **one.question} for one in view.questions],
        "usage": {provider: _figures(spent) for provider, spent in view.spent.items()},
        "cost_usd": view.cost_usd,
    }


def _task(task: TaskView) -> dict[str, Any]:
    return _picked(task, _OF_TASK) | {"stages": [stage.id for stage in task.stages], "is_done": task.is_done}


def _stage(stage: StageView) -> dict[str, Any]:
    return {
        **_picked(stage, _OF_STAGE),
        "session": stage.session_id,
        "turn": stage.turn_id,
        "in_words": stage.in_words,
        "output": {name: value for name, value in stage.output.items() if name != "diff"},
        "approvals": [_picked(one, _OF_ASK) for one in stage.asks],
        "usage": _figures(stage.spent) if stage.spent is not None else None,
    }


def _figures(spent: Spent) -> dict[str, Any]:
    return _picked(spent, _FIGURES)


def _picked(thing: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _plain(getattr(thing, name)) for name in names}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
