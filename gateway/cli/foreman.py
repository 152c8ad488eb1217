"""`longshore foreman`: several agents, one result. To begin such a workflow, watch it, stop it and let it go on."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import BY, AsJson, Desk, out, print_done, print_json, run, shown
from gateway.cli.foreman_roles import roles
from gateway.cli.foreman_run import run_foreman
from gateway.cli.foreman_showing import print_diff, print_workflow
from gateway.cli.foreman_watching import one_workflow, view_of, watched
from gateway.cli.foreman_words import STATES, WAITS, line_of
from gateway.figures import ago
from gateway.workflow_data import workflow_data, workflow_facts
from gateway.workflow_words import how_far
from models.base import AnyRow
from models.lookup import short
from models.spending import everybodys
from models.workflow_progress import Progress, progress_of
from models.workflows import workflows_page
from workers.operations import workflows as operations
from workers.workflows.spec import MINUTES
from workers.workflows.starting import MAX_MINUTES

foreman = typer.Typer(help="Several agents, one result: plan, build, check, review, merge.", no_args_is_help=True)
foreman.command("run")(run_foreman)
foreman.command("roles")(roles)

Handle = Annotated[str, typer.Argument(metavar="ID", help="the workflow's id (its end is enough)")]


@foreman.command("list")
def list_workflows(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="at most so many")] = 20, as_json: AsJson = False
) -> None:
    """List workflows, the latest first."""

    async def command(desk: Desk) -> None:
        async def read(conn: AsyncConnection) -> tuple[list[AnyRow], dict[str, Progress]]:
            rows = await workflows_page(conn, everybodys, limit)
            return rows, await progress_of(conn, [row.id for row in rows if row.status == "running"])

        rows, running = await desk.db.read(read)
        if as_json:
            print_json([workflow_facts(row) for row in rows])
        elif not rows:
            out.print("no workflows yet. Begin one:\n  [bold]longshore foreman run --repo . --goal '…'[/bold]")
        else:
            out.print(_table(rows, running))

    run(command)


def _table(rows: list[AnyRow], running: Mapping[str, Progress]) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("id", "agent", "goal", "state", "", "begun"):
        table.add_column(name, no_wrap=name in ("id", "state", "begun"))
    for row in rows:
        state = f"[{STATES[row.status]}]{row.status}[/]"
        standing = _standing(running[row.id]) if row.id in running else row.outcome or ""
        goal, words = shown(line_of(row.goal, 80)), shown(line_of(standing, 120))
        table.add_row(short(row.id), shown(row.folder), goal, state, words, ago(row.created_at))
    return table


def _standing(progress: Progress) -> str:
    return WAITS if progress.waits else how_far(progress)


@foreman.command("show")
def show(
    workflow: Handle,
    diff: Annotated[bool, typer.Option("--diff", help="the change itself: the whole, or what there is so far")] = False,
    as_json: AsJson = False,
) -> None:
    """Everything about one: who does what, its tasks, their stages, what was found, what it has cost."""

    async def command(desk: Desk) -> None:
        view = await view_of(desk, await one_workflow(desk, workflow))
        if as_json:
            change: dict[str, Any] = {"diff": view.diff} if diff else {}
            print_json(workflow_data(view) | change)
        elif diff:
            print_diff(view)
        else:
            print_workflow(view)

    run(command)


@foreman.command("watch")
def watch(workflow: Handle, as_json: AsJson = False) -> None:
    """Watch one until it is over. Ctrl-C stops watching, and nothing else.

    Exits with 0 if the goal was reached, else with 1. With --json: one document when it is over."""

    async def command(desk: Desk) -> None:
        await watched(desk, await one_workflow(desk, workflow), as_json=as_json)

    run(command)


@foreman.command("cancel")
def cancel(workflow: Handle, as_json: AsJson = False) -> None:
    """Stop one: all that runs for it is given up, and nothing is merged."""

    async def command(desk: Desk) -> None:
        workflow_id = await one_workflow(desk, workflow)
        done = await operations.cancel(desk, BY, workflow_id)
        print_done(done.text, as_json, workflow=workflow_id)
        if not as_json:
            out.print(f"go on after all: [bold]longshore foreman restart {short(workflow_id)}[/bold]")

    run(command, broker=True)


@foreman.command("restart")
def restart(
    workflow: Handle,
    minutes: Annotated[float, typer.Option(min=1, max=MAX_MINUTES, help="so long it may take from now on")] = MINUTES,
    as_json: AsJson = False,
) -> None:
    """Let one that failed or was cancelled go on where it stopped: what is done stays done."""

    async def command(desk: Desk) -> None:
        workflow_id = await one_workflow(desk, workflow)
        done = await operations.restart(desk, BY, workflow_id, minutes=minutes)
        print_done(done.text, as_json, workflow=workflow_id)
        if not as_json:
            out.print(f"watch it: [bold]longshore foreman watch {short(workflow_id)}[/bold]")

    run(command, broker=True)
