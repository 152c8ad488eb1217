"""One foreman's workflow, whole: who does what, its tasks with all their stages, what reviewers found, how checks
failed, and the change itself."""

from collections.abc import Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from gateway.cli.desk import out, shown, visible
from gateway.cli.foreman_run import print_intent
from gateway.cli.foreman_watching import print_costs, print_end
from gateway.cli.foreman_words import MARKS, at_work, cost_of, line_of, named, took, waits
from models.lookup import short
from workers.workflows.spec import StageKind
from workers.workflows.view import StageView, TaskView, WorkflowView

LOG_LINES: Final = 15
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def print_workflow(view: WorkflowView) -> None:
    print_intent(view)
    if view.summary:
        out.print(f"\n{shown(view.summary)}", soft_wrap=True)
    _print_whole(view, "prepare", "plan")
    for task in view.tasks:
        _print_task(view, task)
    _print_whole(view, "merge", "publish")
    for wait in waits(view):
        besides = f" [dim]({shown(wait.besides)})[/dim]" if wait.besides else ""
        out.print(f"\n[yellow]waits for you[/yellow]: {shown(wait.what)}", soft_wrap=True)
        out.print(f"  [bold]{shown(wait.command)}[/bold]{besides}", soft_wrap=True)
    if view.row.status == "running":
        print_costs(view)
        out.print(f"watch it: [bold]longshore foreman watch {short(view.row.id)}[/bold]")
    else:
        print_end(view)
        if view.row.status != "completed":
            out.print(f"go on where it stopped: [bold]longshore foreman restart {short(view.row.id)}[/bold]")


def _print_whole(view: WorkflowView, *kinds: StageKind) -> None:
    if stages := [stage for stage in view.whole if stage.kind in kinds]:
        out.print()
        _print_stages(view, stages)


def _print_task(view: WorkflowView, task: TaskView) -> None:
    out.print(f"\n[dim]{shown(task.key)}[/dim] [bold]{shown(line_of(task.title))}[/bold]", soft_wrap=True)
    out.print(f"  {shown(line_of(task.goal, 1000))}", soft_wrap=True)
    for line in task.acceptance:
        out.print(f"  [dim]done if[/dim] {shown(line_of(line, 500))}", soft_wrap=True)
    for line in task.constraints:
        out.print(f"  [dim]but[/dim] {shown(line_of(line, 500))}", soft_wrap=True)
    _print_stages(view, task.stages)
    last = {stage.kind: stage for stage in task.stages}
    if "review" in last:
        for finding in last["review"].output.get("findings", ()):
            out.print(_finding(finding), soft_wrap=True)
    if "check" in last and last["check"].state == "negative" and last["check"].output.get("log"):
        lines = visible(str(last["check"].output["log"])).rstrip().splitlines()[-LOG_LINES:]
        out.print(Text("\n".join(f"  | {line}" for line in lines), style="dim"), soft_wrap=True)


def _print_stages(view: WorkflowView, stages: Sequence[StageView]) -> None:
    table = Table.grid(padding=(0, 2))
    for number in range(7):
        table.add_column(no_wrap=number != 3, overflow="fold")
    for stage in stages:
        mark, style = MARKS[stage.state]
        words = Text(at_work(stage) if stage.state != "failed" else line_of(stage.in_words, 500))
        figures = (Text(took(stage, view), style="dim"), Text(cost_of([stage])), Text(short(stage.session_id), "dim"))
        table.add_row(Text(f"  {mark}", style), stage.name, Text(line_of(named(stage), 40)), words, *figures)
    out.print(table)


def _finding(finding: dict[str, Any]) -> str:
    line = f":{finding['line']}" if finding.get("line") else ""
    place = f" [dim]{shown(line_of(finding['file']))}{line}[/dim]" if finding.get("file") else ""
    colour = "yellow" if finding["severity"] == "blocking" else "dim"
    head = f"  [{colour}]{finding['severity']}[/]: {shown(line_of(finding['title'], 300))}{place}"
    details = [finding["detail"], *([f"suggestion: {finding['suggestion']}"] if finding.get("suggestion") else ())]
    return "\n".join([head, *(f"    {shown(line_of(detail, 1000))}" for detail in details)])


def print_diff(view: WorkflowView) -> None:
    """With what cannot be seen made visible: to apply it, take the branch."""
    if not view.diff:
        out.print("nothing has been changed yet")
        return
    for line in visible(view.diff).splitlines():
        head = line.startswith(("+++", "---", "diff "))
        style = "bold" if head else _COLOURS.get(line[:1], "")
        out.print(Text(line, style=style), soft_wrap=True)
