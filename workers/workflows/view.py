"""A workflow for people to look at: its tasks, each with its stages, what waits for somebody, and what it has cost. The
same for the command line, the API and the console."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.tools.submitting import PlanArguments
from models.base import AnyRow
from models.consent import Approval, PendingQuestion
from models.spending import Spent, usage_of_turns
from models.workflows import find_workflow, stages_of
from workers.workflows.spec import CLERK, Spec, StageKind, spec_of
from workers.workflows.stage_words import NAMES


@dataclass(frozen=True)
class StageView:
    """`state`: one of running, waiting (for a person), completed, failed, cancelled, replaced; and `negative` if it
    came to an end that sends the work back: checks that failed, changes asked for. `doing`: what its worker is at."""

    id: str
    number: int
    kind: StageKind
    task: str
    round: int
    attempt: int
    provider: str
    model: str | None
    state: str
    doing: str | None
    session_id: str
    turn_id: str | None
    started_at: datetime
    ended_at: datetime | None
    output: Mapping[str, Any]
    error: str | None
    spent: Spent | None
    asks: tuple[AnyRow, ...] = ()  # approvals of its turn, whatever became of them
    questions: tuple[AnyRow, ...] = ()  # that nobody has answered yet

    @property
    def name(self) -> str:
        return NAMES[self.kind]

    @property
    def in_words(self) -> str:
        """What it has come to, in a few words; nothing if it runs."""
        output = self.output
        if self.error:
            return self.error
        match self.kind:
            case "plan" if output:
                count = len(output.get("tasks", ()))
                return f"{count} task{'s' * (count != 1)}"
            case "check" if output:
                return "passed" if output.get("ok") else str(output.get("why") or "failed")
            case "review" if output:
                found = Counter(one["severity"] for one in output.get("findings", ()))
                counts = ", ".join(f"{number} {severity}" for severity, number in found.items())
                word = "approved" if output.get("verdict") == "approve" else "changes asked for"
                return f"{word} ({counts})" if counts else word
            case "merge" if output:
                files = len(output.get("files", ()))
                return f"{files} file{'s' * (files != 1)}" if output.get("ok") else str(output.get("why") or "")
            case "publish" if output:
                moved = "the branch has moved: put together again"
                return moved if output.get("moved") else str(output.get("url") or f"branch {output.get('branch')}")
            case _:
                return ""


@dataclass(frozen=True)
class TaskView:
    key: str
    title: str
    goal: str
    constraints: tuple[str, ...]
    acceptance: tuple[str, ...]
    builder: str
    reviewer: str
    stages: tuple[StageView, ...]

    @property
    def is_done(self) -> bool:
        """Built, checked and approved; what comes of it when all is put together is another matter."""
        last = self.stages[-1] if self.stages else None
        return last is not None and last.kind == "review" and last.state == "completed"


@dataclass(frozen=True)
class WorkflowView:
    """`stages`: all, in the order in which they were begun; `whole`: those of no task. `row`: the workflow's own."""

    row: AnyRow
    spec: Spec
    summary: str
    stages: tuple[StageView, ...]
    tasks: tuple[TaskView, ...]
    spent: Mapping[str, Spent] = field(default_factory=dict)  # by provider

    @property
    def whole(self) -> tuple[StageView, ...]:
        return tuple(stage for stage in self.stages if not stage.task)

    @property
    def waiting(self) -> tuple[AnyRow, ...]:
        """Approvals that somebody has to decide now."""
        return tuple(ask for stage in self.stages for ask in stage.asks if ask.status == "pending")

    @property
    def cost_usd(self) -> float:
        return sum(one.cost_usd or 0.0 for one in self.spent.values())

    @property
    def questions(self) -> tuple[AnyRow, ...]:
        """That agents ask people, and wait for."""
        return tuple(one for stage in self.stages for one in stage.questions)

    @property
    def diff(self) -> str:
        """The newest change there is to look at: the whole, or until there is one, what each task has."""
        merged = [stage for stage in self.stages if stage.kind == "merge" and stage.output.get("diff")]
        return str(merged[-1].output["diff"]) if merged else "".join(map(self.diff_of, self.tasks))

    @staticmethod
    def diff_of(task: TaskView) -> str:
        """What was last looked at of one task."""
        checked = [stage for stage in task.stages if stage.kind == "check" and stage.output.get("diff")]
        return str(checked[-1].output["diff"]) if checked else ""


async def look(conn: AsyncConnection, workflow_id: str) -> WorkflowView | None:
    row = await find_workflow(conn, workflow_id)
    if row is None:
        return None
    rows = await stages_of(conn, workflow_id)
    turns = {stage.id: stage.turn_id or stage.message_turn for stage in rows}
    known = [turn for turn in turns.values() if turn is not None]
    spent = await usage_of_turns(conn, known)
    asks = await _of_turns(conn, Approval, known)
    questions = await _of_turns(conn, PendingQuestion, known)
    stages = tuple(
        _stage(
            one, turns[one.id], spent.get(turns[one.id] or ""), asks.get(turns[one.id]), questions.get(turns[one.id])
        )
        for one in rows
    )
    spec = spec_of(row)
    plan = next((one.output for one in reversed(stages) if one.kind == "plan" and one.state == "completed"), None)
    parsed = PlanArguments.model_validate(plan) if plan else None
    tasks = (
        tuple(_task(task, number, spec, stages) for number, task in enumerate(parsed.tasks[: spec.most_tasks]))
        if parsed
        else ()
    )
    return WorkflowView(row, spec, parsed.summary if parsed else "", stages, tasks, _by_provider(stages))


async def _of_turns(conn: AsyncConnection, table: type[Any], turns: Sequence[str]) -> dict[str | None, list[AnyRow]]:
    found: dict[str | None, list[AnyRow]] = {}
    query = select(table.__table__).where(table.turn_id.in_(turns)).order_by(table.created_at, table.id)
    for row in (await conn.execute(query)).all() if turns else ():
        found.setdefault(row.turn_id, []).append(row)
    return found


def _stage(
    row: AnyRow, turn_id: str | None, spent: Spent | None, asks: list[AnyRow] | None, questions: list[AnyRow] | None
) -> StageView:
    open_questions = tuple(one for one in questions or () if one.status == "pending")
    runs = row.status == "running"
    waits = runs and (open_questions or any(ask.status == "pending" for ask in asks or ()))
    output = row.output or {}
    negative = row.status == "completed" and (output.get("ok") is False or output.get("verdict") == "request_changes")
    return StageView(
        id=row.id,
        number=row.number,
        kind=row.kind,
        task=row.task,
        round=row.round,
        attempt=row.attempt,
        provider=row.provider,
        model=row.model,
        state="waiting" if waits else "negative" if negative else row.status,
        doing=row.activity if runs else None,
        session_id=row.session_id,
        turn_id=turn_id,
        started_at=row.started_at,
        ended_at=row.ended_at,
        output=output,
        error=row.error,
        spent=spent,
        asks=tuple(asks or ()),
        questions=open_questions if runs else (),
    )


def _task(task: Any, number: int, spec: Spec, stages: Sequence[StageView]) -> TaskView:
    builder = spec.builder_of(number).provider
    return TaskView(
        task.key,
        task.title,
        task.goal,
        tuple(task.constraints),
        tuple(task.acceptance),
        builder,
        spec.reviewers[builder].provider,
        tuple(stage for stage in stages if stage.task == task.key),
    )


def _by_provider(stages: Sequence[StageView]) -> dict[str, Spent]:
    """Each turn once: a session's turn belongs to one stage."""
    found: dict[str, Spent] = {}
    for stage in stages:
        if stage.spent is not None and stage.provider != CLERK:
            before = found.get(stage.provider)
            found[stage.provider] = stage.spent if before is None else before + stage.spent
    return found
