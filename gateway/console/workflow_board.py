"""A workflow laid out as a board: columns, and in them a card for the plan, for each task where it stands, for the
merge and for the handing over. Pure: made of what `workers.workflows.view` has read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.workflow_words import how_far, tasks_of
from models.spending import Spent
from models.workflow_progress import Progress
from workers.workflows.view import StageView, TaskView, WorkflowView

# Each column with the kinds of stages that are done in it.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "Plan": ("prepare", "plan"),
    "Build": ("build", "fix"),
    "Check": ("check",),
    "Review": ("review",),
    "Merge": ("merge",),
    "Hand over": ("publish",),
}
LANE: Final = ("Build", "Check", "Review")
_COLUMN_OF: Final = {kind: column for column, kinds in COLUMNS.items() for kind in kinds}
_TONES: Final = {"running": "busy", "waiting": "warn", "completed": "ok", "negative": "bad", "failed": "bad"}
_WORDS: Final = {"running": "at work", "waiting": "waits for a person", "completed": "done", "replaced": "begun anew"}
_MARKS: Final = {"completed": "✓", "negative": "✗", "failed": "✗", "cancelled": "–", "replaced": "↻"}
# The way of a workflow in a list.
_WAY: Final = (("prepare",), ("plan",), ("build", "fix", "check", "review"), ("merge",), ("publish",))


@dataclass(frozen=True)
class Card:
    """Something that stands in a column. `stage`: what it is at; None: it has not begun. `before`: what was done for it
    earlier, by column. `target`: where on the page all of it is told."""

    title: str
    target: str
    column: str
    stage: StageView | None
    before: Mapping[str, tuple[StageView, ...]]
    spent: Spent | None
    is_over: bool

    @property
    def tone(self) -> str:
        return tone_of(self.stage) if self.stage is not None else "quiet"

    @property
    def is_live(self) -> bool:
        return self.stage is not None and self.stage.state in ("running", "waiting")


@dataclass(frozen=True)
class Board:
    plan: Card
    tasks: tuple[tuple[TaskView, Card], ...]
    merge: Card
    publish: Card
    seconds: Mapping[str, float]  # by column: how long was worked in it


def lay_out(view: WorkflowView) -> Board:
    over = view.row.status != "running"
    whole = {column: _whole(view, column, over) for column in ("Plan", "Merge", "Hand over")}
    tasks = tuple((task, _card(task.title, f"in-{task.key}", task.stages, "Build", over)) for task in view.tasks)
    return Board(whole["Plan"], tasks, whole["Merge"], whole["Hand over"], _seconds(view))


def _whole(view: WorkflowView, column: str, over: bool) -> Card:
    stages = [stage for stage in view.whole if _COLUMN_OF[stage.kind] == column]
    return _card(column, "in-whole", stages, column, over)


def _card(title: str, target: str, stages: Sequence[StageView], first: str, over: bool) -> Card:
    stage = stages[-1] if stages else None
    column = _COLUMN_OF[stage.kind] if stage is not None else first
    before = {name: tuple(one for one in stages[:-1] if _COLUMN_OF[one.kind] == name) for name in COLUMNS}
    return Card(title, target, column, stage, before, _sum(one.spent for one in stages), over)


def tone_of(stage: StageView) -> str:
    return _TONES.get(stage.state, "quiet")


def word_of(stage: StageView) -> str:
    """What it is at or has come to, in a few words."""
    ended = stage.in_words if stage.state in ("completed", "negative") else ""
    return ended or _WORDS.get(stage.state, stage.state)


def mark_of(stage: StageView) -> str:
    return _MARKS.get(stage.state, "●")


def is_newest(stage: StageView, stages: Sequence[StageView]) -> bool:
    """Whether it is the last of its kind: what people want to see of a task first."""
    return stage.id == [one for one in stages if one.kind == stage.kind][-1].id


def _sum(spent: Iterable[Spent | None]) -> Spent | None:
    whole: Spent | None = None
    for one in spent:
        if one is not None:
            whole = one if whole is None else whole + one
    return whole


def _seconds(view: WorkflowView) -> dict[str, float]:
    found: dict[str, float] = {}
    for stage in view.stages:
        took = ((stage.ended_at or view.row.at) - stage.started_at).total_seconds()
        column = _COLUMN_OF[stage.kind]
        found[column] = found.get(column, 0.0) + max(took, 0.0)
    return found


def way_of(status: str, progress: Progress) -> tuple[list[str], str]:
    """For a list: the state of each part of the way (done, now, ahead), and where it is, in words."""
    if status == "completed":
        return ["done"] * len(_WAY), tasks_of(progress)
    at = next((number for number, kinds in enumerate(_WAY) if progress.kind in kinds), 0)
    parts = ["done" if number < at else "now" if number == at else "ahead" for number in range(len(_WAY))]
    return parts, how_far(progress)
