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
    title_of,
    took,
    trail,
    waits,
    worker_of,
)
from gateway.figures import money, span
from models.lookup import short
from workers.workflows.spec import CLERK, StageKind
from workers.workflows.view import NAMES, StageView, WorkflowView

_BEFORE: Final[tuple[StageKind, ...]] = ("prepare", "plan")
_AFTER: Final[tuple[StageKind, ...]] = ("merge", "publish")


def board(view: WorkflowView, note: str = "") -> RenderableType:
    """`note`: what whoever looks should know, such as that this is old."""
    parts: list[RenderableType] = [_head(view)]
    for what, command in waits(view):
        parts.append(Text.assemble(("? ", "yellow"), what, "\n  ", (command, "bold")))
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("", "", "so far", "who", "for", "at", "cost"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for kind in _BEFORE:
        _row(table, view, NAMES[kind], _of_kind(view, kind))
    for task in view.tasks:
        _row(table, view, title_of(task), task.stages)
    for kind in _AFTER:
        _row(table, view, NAMES[kind], _of_kind(view, kind))
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


def _of_kind(view: WorkflowView, kind: StageKind) -> list[StageView]:
    return [stage for stage in view.whole if stage.kind == kind]


def _row(table: Table, view: WorkflowView, what: str, stages: Sequence[StageView]) -> None:
    if not stages:
        table.add_row(Text("·", style="dim"), Text(what, style="dim"))
        return
    last = stages[-1]
    mark, style = MARKS[last.state]
    who = "" if last.provider == CLERK else worker_of(last)
    # One that is alone says by its mark how it stands.
    so_far = trail(stages) if last.task or len(stages) > 1 else Text()
    cells = (Text(mark, style=style), Text(what), so_far, Text(line_of(who, 40)), Text(took(last, view), style="dim"))
    table.add_row(*cells, Text(at_work(last), style="dim"), Text(cost_of(stages)))
