"""The board of a workflow, laid out from what its stages have come to."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.console.workflow_board import Card, is_newest, lay_out, mark_of, tone_of, way_of, word_of
from models.spending import Spent
from models.workflow_progress import Progress
from tests.support.workflow_rows import checked, reviewed, spec
from workers.workflows.spec import Spec
from workers.workflows.view import StageView, TaskView, WorkflowView

pytestmark = pytest.mark.spec("O1")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def stage(number: int, kind: Any, task: str = "", *, state: str = "completed", **more: Any) -> StageView:
    own: dict[str, Any] = {"round": 0, "attempt": 1, "provider": "codex", "model": None, "doing": None, "output": {}}
    own |= {"session_id": "s", "turn_id": "t", "error": None, "spent": None}
    own |= {"started_at": BEGAN, "ended_at": BEGAN + timedelta(minutes=1)}
    return StageView(**(own | {"id": f"{number}", "number": number, "kind": kind, "task": task, "state": state} | more))


def view(*stages: StageView, tasks: tuple[str, ...] = (), status: str = "running") -> WorkflowView:
    seen = tuple(
        TaskView(key, key.title(), "", (), (), "codex", "gemini", tuple(one for one in stages if one.task == key))
        for key in tasks
    )
    row: Any = SimpleNamespace(status=status, at=BEGAN + timedelta(minutes=10))
    return WorkflowView(row, Spec.model_validate(spec()), "", stages, seen)


def columns(before: Card) -> dict[str, str]:
    return {name: "".join(mark_of(one) for one in stages) for name, stages in before.before.items() if stages}


def test_a_card_stands_where_its_task_is_and_shows_what_was_before() -> None:
    board = lay_out(
        view(
            stage(1, "prepare"),
            stage(2, "plan"),
            stage(3, "build", "a"),
            stage(4, "build", "b", state="running", ended_at=None),
            stage(5, "check", "a", state="negative", output=checked(False)),
            stage(6, "fix", "a", round=1),
            stage(7, "check", "a", round=1, output=checked()),
            stage(8, "review", "a", round=1, state="waiting"),
            tasks=("a", "b"),
        )
    )
    [(_, a), (_, b)] = board.tasks
    assert (a.column, a.tone, columns(a)) == ("Review", "warn", {"Build": "✓✓", "Check": "✗✓"})
    assert (b.column, b.tone, b.is_live, columns(b)) == ("Build", "busy", True, {})
    assert (board.plan.column, board.plan.tone) == ("Plan", "ok")
    assert (board.merge.stage, board.merge.tone, board.publish.is_live) == (None, "quiet", False)
    assert board.seconds == {"Plan": 120.0, "Build": 60.0 + 600.0 + 60.0, "Check": 120.0, "Review": 60.0}


def test_before_there_is_a_plan_there_are_no_tasks() -> None:
    board = lay_out(view())
    assert (board.tasks, board.plan.stage, board.plan.is_over) == ((), None, False)
    assert lay_out(view(status="failed")).merge.is_over


def test_what_a_task_has_cost_is_the_sum_of_its_stages() -> None:
    spent = Spent((), 1, 10, 0, 0, 5, 0.5, 0)
    stages = [stage(1, "build", "a", spent=spent), stage(2, "check", "a"), stage(3, "fix", "a", spent=spent)]
    [(_, card)] = lay_out(view(*stages, tasks=("a",))).tasks
    assert card.spent is not None
    assert (card.spent.cost_usd, card.spent.calls) == (1.0, 2)


def test_a_stage_is_told_by_what_it_came_to() -> None:
    told = {
        "passed": stage(1, "check", output=checked()),
        "make test ended with 1": stage(1, "check", state="negative", output=checked(False)),
        "changes asked for (1 blocking, 1 minor)": stage(1, "review", state="negative", output=reviewed(False)),
        "waits for a person": stage(1, "publish", state="waiting"),
        "at work": stage(1, "build", state="running"),
        "done": stage(1, "build"),
        "begun anew": stage(1, "plan", state="replaced", error="it ended without handing anything in"),
        "cancelled": stage(1, "build", state="cancelled", error="the workflow is over"),
        "failed": stage(1, "build", state="failed", error="no key"),
    }
    assert [word_of(one) for one in told.values()] == list(told)
    assert [tone_of(one) for one in told.values()] == (
        ["ok", "bad", "bad", "warn", "busy", "ok", "quiet", "quiet", "bad"]
    )


def test_of_each_kind_the_last_is_the_newest() -> None:
    stages = [stage(1, "check"), stage(2, "fix"), stage(3, "check")]
    assert [is_newest(one, stages) for one in stages] == [False, True, True]


def test_the_way_of_a_workflow_is_told_in_a_line() -> None:
    approved: Any = SimpleNamespace(status="completed", verdict="approve")
    asked: Any = SimpleNamespace(status="completed", verdict="request_changes")
    half = Progress("fix", last_of_task={"a": approved, "b": asked})
    assert way_of("running", half) == (["done", "done", "now", "ahead", "ahead"], "1 of 2 tasks done")
    assert way_of("running", Progress()) == (["now", *["ahead"] * 4], "about to begin")
    assert way_of("failed", Progress("merge", last_of_task={"a": approved}))[1] == "putting the work together"
    assert way_of("completed", Progress("publish", last_of_task={"a": approved})) == (["done"] * 5, "1 task done")
