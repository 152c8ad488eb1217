"""A foreman's workflow as a board for a terminal: what waits for somebody first, then a line for each part of the work.
Pure: drawn anew from what is seen each time."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.cli.foreman_words import (
    MARKS,
    STATES,
    at_work,
    cost_of,
    line_of,
    named,
    title_of,
    took,
    trail,
    waits,
)
from gateway.figures import money, span
from models.lookup import short
from workers.workflows.spec import CLERK, StageKind
from workers.workflows.stage_words import NAMES
from workers.workflows.view import StageView, TaskView, WorkflowView

_BEFORE: Final[tuple[StageKind, ...]] = ("prepare", "plan")
_AFTER: Final[tuple[StageKind, ...]] = ("merge", "publish")


def board(view: WorkflowView, note: str = "") -> RenderableType:
    """`note`: what whoever looks should know, such as that this is old."""
    parts: list[RenderableType] = [_head(view)]
    for wait in waits(view):
        besides = f"   ({wait.besides})" if wait.besides else ""
        parts.append(Text.assemble(("? ", "yellow"), wait.what, "\n  ", (wait.command, "bold"), (besides, "dim")))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    # What is said and who does it give way on a narrow terminal; marks and figures do not.
    for may_shrink in (False, True, True, False, False):
        table.add_column(no_wrap=not may_shrink)
    for kind in _BEFORE:
        _add_part(table, view, kind)
    for task in view.tasks:
        _add_task(table, view, task)
    for kind in _AFTER:
        _add_part(table, view, kind)
    parts.append(table)
    if note:
        parts.append(Text(note, style="yellow"))
    return Group(*parts)


def _head(view: WorkflowView) -> Text:
    row = view.row
    passed = ((row.ended_at or row.at) - row.created_at).total_seconds()
    of = f" of {money(row.budget_usd)}" if row.budget_usd is not None else ""
    head = Text.assemble(
        ("workflow ", "dim"),
        (short(row.id), "bold"),
        " ",
        (row.status, STATES[row.status]),
        (f" for {span(passed)}, {money(view.cost_usd)}{of}" if row.status == "running" else "", "dim"),
    )
    return head.append(f"\n{line_of(row.goal, 300)}")


def _add_part(table: Table, view: WorkflowView, kind: StageKind) -> None:
    """What is done once, for all: on one line."""
    stages = [stage for stage in view.whole if stage.kind == kind]
    if not stages:
        table.add_row(Text("·", style="dim"), Text(NAMES[kind], style="dim"))
        return
    words = at_work(stages[-1])
    what = Text.assemble(NAMES[kind], (f": {words}" if words else "", "dim"))
    _add(table, view, stages, what, Text(_who(stages[-1])))


def _add_task(table: Table, view: WorkflowView, task: TaskView) -> None:
    """With its stages below it."""
    if not task.stages:
        table.add_row(Text("·", style="dim"), Text(title_of(task), style="dim"))
        return
    last = task.stages[-1]
    what = Text(title_of(task)).append("\n").append_text(trail(task.stages))
    _add(table, view, task.stages, what, Text.assemble(_who(last), "\n", (at_work(last), "dim")))


def _add(table: Table, view: WorkflowView, stages: Sequence[StageView], what: Text, who: Text) -> None:
    mark, style = MARKS[stages[-1].state]
    for cell in (what, who):
        cell.no_wrap, cell.overflow = True, "ellipsis"
    table.add_row(Text(mark, style=style), what, who, Text(took(stages[-1], view), style="dim"), cost_of(stages))


def _who(stage: StageView) -> str:
    return "" if stage.provider == CLERK else line_of(named(stage), 40)
