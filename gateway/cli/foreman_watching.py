"""Watching a foreman's workflow until it is over: a board that is redrawn in a terminal, a line per change in a pipe.
It only reads rows: whoever stops watching stops nothing."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

import typer
from rich.live import Live
from rich.markup import escape

from gateway.cli.desk import Desk, err, fail, out, print_json, shown, visible
from gateway.cli.foreman_board import board
from gateway.cli.foreman_story import Story
from gateway.cli.foreman_words import STATES, cost_of, line_of
from gateway.figures import money, spent
from gateway.workflow_data import workflow_data
from models.errors import DatabaseDownError
from models.lookup import find_workflows, short
from workers.workflows.view import WorkflowView, look

LOOK_SECONDS: Final = 0.5
AWAY: Final = "this is what was last seen, and it is looked again"


async def one_workflow(desk: Desk, fragment: str) -> str:
    """The id of the workflow that people name by its end."""
    found = await desk.db.read(lambda conn: find_workflows(conn, fragment.strip()))
    if len(found) != 1:
        fail(
            f"{'several workflows end' if found else 'no workflow ends'} with {fragment!r}; see: longshore foreman list"
        )
    return found[0]


async def view_of(desk: Desk, workflow_id: str) -> WorkflowView:
    seen = await desk.db.read(lambda conn: look(conn, workflow_id))
    return seen if seen is not None else fail(f"there is no workflow {workflow_id!r}; see: longshore foreman list")


async def watched(desk: Desk, workflow_id: str, *, as_json: bool = False) -> None:
    """Until it is over; then what came of it. `as_json`: only that, as one document. Exits with 1 unless the goal was
    reached."""
    try:
        view = await _until_over(desk, workflow_id, quiet=as_json)
    except asyncio.CancelledError:
        name = short(workflow_id)
        err.print(f"it goes on without you. Watch it: [bold]longshore foreman watch {name}[/bold]", soft_wrap=True)
        err.print(f"stop it: [bold]longshore foreman cancel {name}[/bold]", soft_wrap=True)
        raise
    if as_json:
        print_json(workflow_data(view))
    else:
        print_end(view)
        _print_ways(view)
    if view.row.status != "completed":
        raise typer.Exit(1)


def _print_ways(view: WorkflowView) -> None:
    """What can be done now that it is over."""
    name = short(view.row.id)
    if view.row.status == "completed":
        out.print(f"the whole change: [bold]longshore foreman show {name} --diff[/bold]", soft_wrap=True)
    else:
        out.print(f"all about it: [bold]longshore foreman show {name}[/bold]", soft_wrap=True)
        out.print(f"go on where it stopped: [bold]longshore foreman restart {name}[/bold]", soft_wrap=True)


async def _until_over(desk: Desk, workflow_id: str, *, quiet: bool) -> WorkflowView:
    if quiet:
        return [view async for view, _ in _views(desk, workflow_id)][-1]
    if out.is_terminal and os.environ.get("TERM", "dumb") != "dumb":
        return await _on_a_board(desk, workflow_id)
    story, told = Story(), ""
    async for view, trouble in _views(desk, workflow_id):
        if trouble and trouble != told:
            err.print(f"[yellow]{shown(trouble)}[/yellow]: {AWAY}", soft_wrap=True)
        told = trouble
        for line in story.lines(view):
            out.print(escape(line), soft_wrap=True)
    return view


async def _on_a_board(desk: Desk, workflow_id: str) -> WorkflowView:
    """Gone at the end: what is left to be read is printed once more, for good."""
    with Live(console=out, auto_refresh=False, transient=True) as live:
        async for view, trouble in _views(desk, workflow_id):
            live.update(board(view, f"{visible(trouble)}: {AWAY}" if trouble else ""), refresh=True)
    out.print(board(view))
    return view


async def _views(desk: Desk, workflow_id: str) -> AsyncIterator[tuple[WorkflowView, str]]:
    """What is seen every moment, until it is over; the last is of its end. With what keeps one from seeing more: a
    database that is away for a while is waited for."""
    view = await view_of(desk, workflow_id)
    yield view, ""
    while view.row.status == "running":
        await asyncio.sleep(LOOK_SECONDS)
        try:
            view = await view_of(desk, workflow_id)
        except DatabaseDownError as error:
            yield view, str(error)
        else:
            yield view, ""


def print_end(view: WorkflowView) -> None:
    """The outcome, what was done, where it is, and what it has cost."""
    row = view.row
    out.print(f"\n[{STATES[row.status]}]{row.status}[/]: {shown(row.outcome or '')}", soft_wrap=True)
    result = row.result or {}
    if result.get("summary"):
        out.print(f"\n{shown(result['summary']).rstrip()}\n", soft_wrap=True)
    if result.get("url"):
        out.print(f"pull request: [bold]{shown(result['url'])}[/bold]", soft_wrap=True)
    elif result.get("branch"):
        branch, repository = line_of(result["branch"]), line_of(view.spec.repository, 500)
        out.print(f"branch [bold]{escape(branch)}[/bold] of {escape(repository)}", soft_wrap=True)
    print_costs(view)


def print_costs(view: WorkflowView) -> None:
    for provider, used in view.spent.items():
        words = spent(used.read_tokens, used.output_tokens, used.cost_usd, partly_unknown=used.unpriced_calls > 0)
        out.print(f"[dim]{shown(provider)}: {words}[/dim]", soft_wrap=True)
    if len(view.spent) > 1 and cost_of(view.stages) not in ("", "?"):
        out.print(f"[dim]together: {money(view.cost_usd)}[/dim]")
