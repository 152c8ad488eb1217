"""`longshore foreman run`: a goal for a repository, and who is to reach it. What cannot be is refused here, while
somebody is there to be told; nothing has begun then."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gateway.cli.desk import BY, AsJson, Desk, err, fail, out, print_json, run, shown
from gateway.cli.foreman_watching import view_of, watched
from gateway.cli.foreman_words import goes_to, line_of, roles_of
from gateway.cli.listening import listeners
from gateway.figures import money, span
from gateway.workflow_data import workflow_data
from models.lookup import short
from workers.workflows.spec import CLERK, FOREMAN, MAX_GOAL, MAX_TASKS, MAX_TRIES, MINUTES, Spec
from workers.workflows.starting import MAX_BUDGET, MAX_MINUTES, Started, Wanted, start
from workers.workflows.view import WorkflowView


def run_foreman(
    repo: Annotated[Path, typer.Option(help="the git repository to work on", show_default="this folder")] = Path(),
    goal: Annotated[str | None, typer.Option(help="what must be true in the end")] = None,
    goal_file: Annotated[str | None, typer.Option(help="the goal from a file; - reads standard input")] = None,
    builders: Annotated[
        str | None, typer.Option(help="who builds: providers with commas, each `name` or `name:model`")
    ] = None,
    reviewer: Annotated[str | None, typer.Option(help="who reviews; never the one that has built")] = None,
    planner: Annotated[str | None, typer.Option(help="who plans")] = None,
    base: Annotated[
        str | None, typer.Option(help="the branch, tag or commit to begin from; else what is checked out")
    ] = None,
    check: Annotated[str | None, typer.Option(help="the test command; else what the repository's files say")] = None,
    branch: Annotated[str | None, typer.Option(help="the branch that gets the result; else a new one")] = None,
    pull_request: Annotated[bool, typer.Option("--pull-request", help="push it, and open a pull request")] = False,
    remote: Annotated[str | None, typer.Option(help="for a pull request: where to push to; else origin")] = None,
    into: Annotated[str | None, typer.Option(help="for a pull request: what it asks to be merged into")] = None,
    tries: Annotated[int, typer.Option(min=1, max=MAX_TRIES, help="so often each task may fail")] = 3,
    tasks: Annotated[int, typer.Option(min=1, max=MAX_TASKS, help="at most so many tasks at once")] = 4,
    budget: Annotated[float | None, typer.Option(min=0.01, max=MAX_BUDGET, help="US dollars for all of it")] = None,
    minutes: Annotated[float, typer.Option(min=1, max=MAX_MINUTES, help="so long it may take")] = MINUTES,
    agent: Annotated[str, typer.Option(help="whose policy, budget and people it has")] = FOREMAN,
    detach: Annotated[bool, typer.Option("--detach", help="begin, and do not watch")] = False,
    as_json: AsJson = False,
) -> None:
    """Let several agents reach a goal in a repository: plan, build, check, review, merge.

    Watches until it is over; Ctrl-C stops watching, and nothing else. Exits with 0 if the goal was reached, else with
    1. With --json: one document when it is over, or at once with --detach."""
    if not pull_request and (remote is not None or into is not None):
        fail("--remote and --into are for pull requests: add --pull-request", 2)
    if not repo.is_dir():
        fail(f"--repo: {str(repo)!r} is not a folder", 2)
    wanted = Wanted(
        repository=repo.resolve(),
        goal=_goal(goal, goal_file),
        base=base,
        check=check,
        planner=planner,
        builders=_names(builders),
        reviewer=reviewer,
        branch=branch,
        pull_request=pull_request,
        remote=remote or "origin",
        into=into,
        tries=tries,
        most_tasks=tasks,
        budget_usd=budget,
        minutes=minutes,
        agent=agent,
    )

    async def command(desk: Desk) -> None:
        started = await start(desk, BY, wanted)
        view = await view_of(desk, started.workflow_id)
        if not as_json:
            print_intent(view, started)
            await _warn_of_workers(desk, started.spec)
        if not detach:
            await watched(desk, started.workflow_id, as_json=as_json)
        elif as_json:
            print_json(workflow_data(view))
        else:
            out.print(f"watch it: [bold]longshore foreman watch {short(started.workflow_id)}[/bold]")

    run(command, broker=True)


def print_intent(view: WorkflowView, started: Started | None = None) -> None:
    """What it is to do, who does what and why, and where the result goes. `started`: if it was begun just now."""
    row, spec = view.row, view.spec
    out.print(f"[bold]workflow {short(row.id)}[/bold] of {shown(row.folder)}")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    minutes = (row.deadline_at - row.created_at).total_seconds()
    money_words = f", {money(row.budget_usd)}" if row.budget_usd is not None else ""
    tries = f"{spec.tries} tr{'y' if spec.tries == 1 else 'ies'} each"
    notes = started.notes if started is not None else ()
    prepared = next((stage.output for stage in view.stages if stage.kind == "prepare" and stage.output), {})
    commit = str(prepared.get("commit") or (started.commit if started is not None else ""))[:12]
    base = f"{spec.base} at {commit}" if spec.base and commit else spec.base or commit or "what is checked out"
    check = spec.check or prepared.get("check") or "found by looking at the repository's files"
    rows = [
        ("goal", line_of(row.goal, 1000)),
        ("repository", f"{line_of(spec.repository, 500)}, from {line_of(base)}"),
        ("checked by", line_of(check, 500)),
        *((what, f"{line_of(who)}{f': {line_of(why, 300)}' if why else ''}") for what, who, why in roles_of(spec)),
        ("result", line_of(goes_to(spec.target, spec.repository), 500)),
        (
            "limits",
            f"at most {spec.most_tasks} task{'s' * (spec.most_tasks != 1)}, {tries}, {span(minutes)}{money_words}",
        ),
        *(("note", line_of(note, 500)) for note in dict.fromkeys((*spec.notes, *notes))),
    ]
    for what, words in rows:
        grid.add_row(what, Text(words))
    out.print(grid)


async def _warn_of_workers(desk: Desk, spec: Spec) -> None:
    who = [CLERK, spec.planner.provider, *(one.provider for one in (*spec.builders, *spec.reviewers.values()))]
    who = list(dict.fromkeys(who))
    alone = [name for name in who if not await listeners(desk, name)]
    # That no worker runs at all is a note already.
    if alone and alone != who:
        names = ", ".join(alone)
        err.print(f"[yellow]no worker listens for {shown(names)}[/yellow]: it goes on as soon as one starts")


def _goal(said: str | None, file: str | None) -> str:
    if (said is None) == (file is None):
        fail("say what must be true in the end: --goal TEXT, or --goal-file FILE", 2)
    try:
        goal = said if file is None else sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"--goal-file: {file!r} cannot be read ({getattr(error, 'strerror', None) or 'it is not UTF-8'})", 2)
    assert goal is not None
    if not goal.strip() or len(goal) > MAX_GOAL:
        fail(f"the goal must have 1 to {MAX_GOAL:,} characters", 2)
    return goal.strip()


def _names(listed: str | None) -> tuple[str, ...]:
    if listed is None:
        return ()
    names = tuple(name.strip() for name in listed.split(","))
    if not all(names):
        fail("--builders: name providers with commas between them, for example codex,claude-code", 2)
    return names
