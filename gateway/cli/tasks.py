"""`longshore tasks`: what agents are to do later, once or again and again; and the reminders they have noted."""

import sys
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Annotated, Any, cast

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import BY, AsJson, Desk, agent_id, err, fail, out, print_done, print_json, run, shown
from gateway.cli.listening import listeners, warn_of_provider
from gateway.cli.task_making import add
from gateway.cli.task_options import (
    UTC_NAME,
    At,
    Budget,
    CatchUpOption,
    Every,
    Jitter,
    Model,
    OverlapOption,
    PauseAfter,
    Provider,
    Script,
    Zone,
    checked_cron,
    checked_zone,
    moment,
    named_terms,
)
from gateway.cli.task_words import Line, print_reminder, print_task, reminder_data, table_of, task_data
from models.base import AnyRow
from models.lookup import short
from models.reminders import cancel_reminder, find_reminders, reminders_of
from models.tasks import database_now, series_of
from workers import timetable
from workers.bells import agent_queue
from workers.operations import tasks as operations
from workers.operations.agents import agent_named
from workers.operations.group_settings import NONE
from workers.refusals import RefusedError
from workers.timetable import EVERYTHING, MIN_HANDLE, Changes, Scope, Task

tasks = typer.Typer(help="Scheduled work: what agents are to do later, once or again and again.", no_args_is_help=True)
tasks.command("add")(add)

Handle = Annotated[str, typer.Argument(metavar="ID", help="the task's id (its end is enough)")]
SHOWN_RUNS = 10


@tasks.command("list")
def list_tasks(
    agent: Annotated[str | None, typer.Argument(help="only this agent's")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most so many")] = 100,
    as_json: AsJson = False,
) -> None:
    """List tasks and reminders, the next first."""

    async def command(desk: Desk) -> None:
        now, found, noted = await desk.db.read(lambda conn: _all(conn, agent, limit))
        if as_json:
            print_json([*(task_data(task, now) for task in found), *(reminder_data(row, now) for row in noted)])
            return
        lines = [Line.of_task(task, now) for task in found] + [Line.of_reminder(row, now) for row in noted]
        if not lines:
            example = f"longshore tasks add {agent or 'AGENT'} 'What is new?' --every '0 9 * * 1-5'"
            out.print(f"no tasks yet. Make one:\n  [bold]{shown(example)}[/bold]")
            return
        lines.sort(key=lambda line: line.date or now)
        out.print(table_of(lines, now))
        if len(found) >= limit:
            out.print(f"[dim]the next {limit}; more with --limit[/dim]")

    run(command)


async def _all(conn: AsyncConnection, agent: str | None, limit: int) -> tuple[datetime, list[Task], list[AnyRow]]:
    group_id = await agent_id(conn, agent) if agent is not None else None
    found = await timetable.list_tasks(conn, Scope(agent_group_id=group_id), limit)
    return await database_now(conn), found, (await reminders_of(conn, agent_group_id=group_id))[:limit]


@tasks.command("show")
def show(task: Handle, as_json: AsJson = False) -> None:
    """Everything about one task: its terms, its next runs and its last ones."""

    async def command(desk: Desk) -> None:
        now = await desk.db.read(database_now)
        found = await desk.db.read(lambda conn: _live_or_past(conn, task))
        if not isinstance(found, Task):
            if as_json:
                print_json(reminder_data(found, now))
            else:
                print_reminder(found, now)
            return
        runs = await desk.db.read(lambda conn: timetable.runs_of(conn, found, SHOWN_RUNS))
        if as_json:
            print_json(task_data(found, now, runs))
        else:
            print_task(found, runs, now)

    run(command)


@tasks.command("pause")
def pause(task: Handle, as_json: AsJson = False) -> None:
    """Let a task rest until it is resumed."""
    _change(task, "pause", as_json, "go on: [bold]longshore tasks resume {}[/bold]")


@tasks.command("resume")
def resume(task: Handle, as_json: AsJson = False) -> None:
    """Let a paused task go on, with its next date to come."""
    _change(task, "resume", as_json)


@tasks.command("cancel")
def cancel(task: Handle, as_json: AsJson = False) -> None:
    """End a task or a reminder for good. A run that is on goes on to its end."""

    async def command(desk: Desk) -> None:
        found = await desk.db.read(lambda conn: _named(conn, task))
        if isinstance(found, Task):
            found, said = await operations.change(desk, BY, partial(_task, handle=task), "cancel")
            print_done(f"task {found.handle} of {found.agent} {said}", as_json, **_names(found))
            return
        sending = await desk.db.transact(lambda conn: cancel_reminder(conn, found)) == "sending"
        said = "is being sent, and this is the last time" if sending else "is cancelled"
        names = {"id": series_of(found), "handle": short(series_of(found)), "agent": found.folder}
        print_done(f"reminder {names['handle']} of {found.folder} {said}", as_json, **names)

    run(command)


@tasks.command("run-now")
def run_now(task: Handle, as_json: AsJson = False) -> None:
    """Run a task once more, now, besides its dates. Also one that is paused."""

    async def command(desk: Desk) -> None:
        found, (session_id, provider) = await operations.run_now(desk, BY, partial(_task, handle=task))
        print_done(f"task {found.handle} of {found.agent} runs now", as_json, **_names(found), session=session_id)
        if not as_json:
            out.print(f"watch it: [bold]longshore tail {short(session_id)}[/bold]")
        queue = agent_queue(provider or desk.settings.default_provider)
        if not await listeners(desk, provider or desk.settings.default_provider):
            err.print(f"[yellow]no worker listens on {shown(queue)}[/yellow]: it runs as soon as one starts")

    run(command, broker=True)


@tasks.command("update")
def update(
    task: Handle,
    prompt: Annotated[str | None, typer.Option(help="what is to be done instead; - reads standard input")] = None,
    at: At = None,
    every: Every = None,
    tz: Zone = None,
    catch_up: CatchUpOption = None,
    overlap: OverlapOption = None,
    jitter: Jitter = None,
    pause_after: PauseAfter = None,
    daily_budget: Budget = None,
    provider: Provider = None,
    model: Model = None,
    script: Script = None,
    as_json: AsJson = False,
) -> None:
    """Change a task: only what is named here.

    `none` takes --every, --jitter, --daily-budget or --script away; `default` takes back --provider or --model."""
    changes: dict[str, Any] = named_terms(catch_up, overlap, jitter, pause_after, daily_budget, provider, model, script)
    if tz is not None:
        changes["timezone"] = checked_zone(tz)
    if every is not None:
        changes["recurrence"] = None if every == NONE else checked_cron(every, changes.get("timezone", UTC_NAME))
    if prompt is not None:
        changes["prompt"] = sys.stdin.read() if prompt == "-" else prompt
        if not changes["prompt"].strip():
            fail("--prompt is empty: say what is to be done", 2)
    if not changes and at is None:
        fail("nothing to change: name what is to be another, for example --every '@daily'", 2)

    async def command(desk: Desk) -> None:
        async def work(conn: AsyncConnection) -> tuple[Task, str]:
            found = await _task(conn, task)
            if at is not None:
                zone = changes.get("timezone", found.timezone)
                changes["process_after"] = moment(at, await database_now(conn), zone)
            if changes.get("provider") is not None:
                operations.check_provider_options(
                    desk.registry, await agent_named(conn, found.agent_group_id), changes["provider"]
                )
            return found, await operations.update(conn, BY, found, cast(Changes, changes))

        found, said = await desk.db.transact(work)
        print_done(f"task {found.handle} of {found.agent} {said}", as_json, **_names(found))
        if changes.get("provider") is not None:
            await warn_of_provider(desk, changes["provider"])

    run(command)


def _change(handle: str, what: operations.Change, as_json: bool, hint: str = "") -> None:
    async def command(desk: Desk) -> None:
        found, said = await operations.change(desk, BY, partial(_task, handle=handle), what)
        print_done(f"task {found.handle} of {found.agent} {said}", as_json, **_names(found))
        if hint and not as_json:
            out.print(hint.format(shown(found.handle)))

    run(command)


def _names(task: Task) -> dict[str, str]:
    """What a program knows a task by."""
    return {"id": task.id, "handle": task.handle, "agent": task.agent}


async def _task(conn: AsyncConnection, handle: str) -> Task:
    found = await _named(conn, handle)
    if not isinstance(found, Task):
        name = short(series_of(found))
        fail(f"{name} is a reminder, which can be shown and cancelled: longshore tasks cancel {name}")
    return found


async def _live_or_past(conn: AsyncConnection, handle: str) -> Task | AnyRow:
    try:
        return await _named(conn, handle)
    except RefusedError as refused:
        if refused.kind != "nobody":
            raise
        with suppress(RefusedError):
            return await timetable.find_past(conn, handle)
        raise


async def _named(conn: AsyncConnection, handle: str) -> Task | AnyRow:
    """The task or the reminder that people name by the end of its id."""
    if len(handle.strip()) < MIN_HANDLE:
        fail(f"{handle!r} is too short for an id: give at least its last {MIN_HANDLE} characters", 2)
    reminders = await find_reminders(conn, None, handle.strip())
    ids = list(map(series_of, reminders))
    try:
        task = await timetable.find_task(conn, EVERYTHING, handle)
    except RefusedError as refused:
        if refused.kind != "nobody":
            raise
        if not reminders:
            raise RefusedError(f"{refused}; see: longshore tasks list", kind="nobody") from None
    else:
        if not reminders:
            return task
        ids.append(task.id)
    if len(ids) > 1:
        fail(f"{handle!r} may be one of several; give the whole id: {', '.join(ids[:5])}")
    return reminders[0]
