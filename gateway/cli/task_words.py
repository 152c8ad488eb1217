"""Tasks and reminders as the terminal shows them. Whatever comes from a row is somebody else's text."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from rich.table import Table

from gateway.cli.desk import out, shown
from gateway.cli.figures import money, span
from gateway.cli.task_options import Place
from models.base import AnyRow
from models.lookup import short
from scheduler.recurrence import RecurrenceError, upcoming
from scheduler.reminders import following
from scheduler.words import distance, often, when
from workers.timetable import Run, Task, conditions

SHOWN_PROMPT: Final = 60
_SCRIPT_LINES: Final = 30
_OUTCOMES: Final = {
    "completed": "[green]done[/green]",
    "failed": "[red]failed[/red]",
    "processing": "[green]running[/green]",
    "pending": "[yellow]goes on later[/yellow]",
    "paused": "[yellow]paused[/yellow]",
}


@dataclass(frozen=True)
class Line:
    """One row of the list. `date`: the next; None if there is none, or nobody can say."""

    kind: str  # task, reminder
    id: str
    agent: str
    date: datetime | None
    timezone: str
    recurrence: str | None
    state: str  # with markup
    text: str
    waits: bool

    @classmethod
    def of_task(cls, task: Task, at: datetime) -> "Line":
        waits = task.status != "paused"
        recurrence = task.recurrence if task.goes_on else None
        what = (task.id, task.agent, task.scheduled, task.timezone, recurrence)
        return cls("task", *what, state_of(task, at), task.prompt, waits)

    @classmethod
    def of_reminder(cls, row: AnyRow, at: datetime) -> "Line":
        date, state = next_of_reminder(row, at)
        what = (row.series_id or row.id, row.folder, date, row.timezone, row.recurrence)
        return cls("reminder", *what, state, str(row.content.get("text") or row.kind), True)


def state_of(task: Task, at: datetime) -> str:
    """A few words, with markup."""
    if task.under_way:
        return "[green]running[/green]" + ("" if task.scheduled is not None else ", the last time")
    failures = f"{task.failures} failure{'s' * (task.failures != 1)}"
    if task.status == "paused":
        gave_up = 0 < task.terms.pause_after <= task.failures
        return f"[red]paused after {failures}[/red]" if gave_up else "[yellow]paused[/yellow]"
    state = "due" if task.scheduled is not None and task.scheduled <= at else "waiting"
    return f"{state} [red]after {failures}[/red]" if task.failures else state


def next_of_reminder(row: AnyRow, at: datetime) -> tuple[datetime | None, str]:
    """When it is said next, and its state. One that was just said may have no next row yet."""
    if row.status == "sending":
        return row.scheduled_for, "[green]being sent[/green]"
    if row.status == "pending":
        return row.scheduled_for, "due" if row.scheduled_for <= at else "waiting"
    try:
        return following(row, at), "waiting"
    except RecurrenceError:
        return None, "over"


def table_of(lines: list[Line], at: datetime) -> Table:
    """The state below the date and the rhythm below the words: so it fits into 80 columns."""
    table = Table(box=None, header_style="dim")
    for name in ("id", "agent", "next run", "what"):
        table.add_column(name, no_wrap=name in ("id", "next run"))
    for line in lines:
        date = "-" if line.date is None else when(line.date.replace(second=0), line.timezone)
        far = f"[dim], {distance(line.date, at)}[/dim]" if line.date is not None and line.waits else ""
        kind = "\n[dim]reminder[/dim]" if line.kind == "reminder" else ""
        what = f"{shown(first_words(line.text))}\n[dim]{shown(often(line.recurrence))}[/dim]"
        table.add_row(f"{shown(short(line.id))}{kind}", shown(line.agent), f"{date}\n{line.state}{far}", what)
    return table


def first_words(text: str) -> str:
    """On one line."""
    words = " ".join(text.split())
    return words if len(words) <= SHOWN_PROMPT else f"{words[: SHOWN_PROMPT - 1]}…"


def dates_of(recurrence: str | None, first: datetime | None, timezone: str, count: int = 5) -> list[datetime]:
    """The next runs, if each is on time."""
    if first is None or recurrence is None:
        return [first] if first is not None else []
    try:
        return [first, *upcoming(recurrence, first, timezone, count - 1)]
    except RecurrenceError:
        return [first]


def print_task(task: Task, runs: list[Run], at: datetime) -> None:
    out.print(f"[bold]task {shown(task.handle)}[/bold] of {shown(task.agent)}: {state_of(task, at)}")
    _print_text(task.prompt)
    out.print(_facts_of(task, at))
    if runs:
        out.print(_runs(runs, task.timezone, at))
    else:
        out.print("[dim]no runs yet[/dim]")
    first = "resume" if task.status == "paused" else "pause"
    out.print(f"change it: [bold]longshore tasks {first} {shown(task.handle)}[/bold] (or run-now, update, cancel)")


def print_reminder(row: AnyRow, at: datetime) -> None:
    date, state = next_of_reminder(row, at)
    handle = short(row.series_id or row.id)
    out.print(f"[bold]reminder {shown(handle)}[/bold] of {shown(row.folder)}: {state}")
    _print_text(row.content.get("text") or row.kind)
    table = _facts()
    _add_dates(table, row.recurrence, date, row.timezone, at)
    table.add_row("said in", shown(Place(row.channel_type, row.platform_id, row.thread_id)))
    if row.error:
        table.add_row("last error", f"[red]{shown(row.error)}[/red]")
    _add_ids(table, row.series_id or row.id, row.session_id)
    out.print(table)
    out.print(f"take it back: [bold]longshore tasks cancel {shown(handle)}[/bold]")


def _facts_of(task: Task, at: datetime) -> Table:
    """All there is to know about a task but its runs."""
    table = _facts()
    paused = task.status == "paused"
    _add_dates(table, task.recurrence if task.goes_on else None, task.scheduled, task.timezone, at, paused=paused)
    table.add_row("answers to", shown(Place(task.channel_type, task.platform_id, task.thread_id)))
    head = "terms"
    for words in conditions(task.terms):
        table.add_row(head, shown(words))
        head = ""
    if task.failures:
        table.add_row("failures", f"[red]{task.failures} in a row[/red]")
    if task.terms.script is not None:
        lines = task.terms.script.splitlines()
        more = [f"… ({len(lines) - _SCRIPT_LINES} more lines)"] if len(lines) > _SCRIPT_LINES else []
        table.add_row("script", "\n".join(f"[cyan]{shown(line)}[/cyan]" for line in [*lines[:_SCRIPT_LINES], *more]))
    _add_ids(table, task.id, task.session_id)
    return table


def _add_ids(table: Table, row_id: str, session_id: str) -> None:
    table.add_row("id", f"[dim]{shown(row_id)}[/dim]")
    table.add_row("session", f"[dim]{shown(session_id)}[/dim]")


def _print_text(text: str) -> None:
    """Broken at words in a terminal, as it is in a pipe."""
    out.print(shown(text), soft_wrap=not out.is_terminal)


def _add_dates(
    table: Table, recurrence: str | None, first: datetime | None, timezone: str, at: datetime, *, paused: bool = False
) -> None:
    cron = f" [dim]({shown(recurrence)}, {shown(timezone)})[/dim]" if recurrence is not None else ""
    table.add_row("how often", shown(often(recurrence)) + cron)
    head = "if resumed" if paused else "next"
    for date in dates_of(recurrence, first, timezone):
        table.add_row(head, when(date, timezone, at))
        head = ""


def _facts() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _runs(runs: list[Run], timezone: str, at: datetime) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("run", "outcome", "took", "cost", "error"):
        table.add_column(name, no_wrap=name in ("run", "took", "cost"))
    for run in runs:
        date = when(run.scheduled, timezone) + ("\n[dim]besides its dates[/dim]" if run.extra else "")
        took = span(((run.ended or at) - run.began).total_seconds()) if run.began is not None else "-"
        table.add_row(date, _outcome(run), took, money(run.usd) if run.usd is not None else "-", shown(run.error or ""))
    return table


def _outcome(run: Run) -> str:
    if run.status == "discarded":
        return "[yellow]passed over[/yellow]" if run.error is not None else "[yellow]cancelled[/yellow]"
    words = _OUTCOMES.get(run.status, shown(run.status))
    return f"{words} ({shown(run.error_class)})" if run.status == "failed" and run.error_class else words


def task_data(task: Task, runs: list[Run] | None = None) -> dict[str, Any]:
    """For programs."""
    data = {"kind": "task", "handle": task.handle} | asdict(task)
    recurrence = task.recurrence if task.goes_on else None
    data["next"] = dates_of(recurrence, task.scheduled, task.timezone)
    return data if runs is None else data | {"runs": [asdict(run) for run in runs]}


def reminder_data(row: AnyRow, at: datetime) -> dict[str, Any]:
    data = {"kind": "reminder", "id": row.series_id or row.id, "handle": short(row.series_id or row.id)}
    named = ("session_id", "recurrence", "timezone", "status", "channel_type", "platform_id", "thread_id", "content")
    date, _ = next_of_reminder(row, at)
    dates = {"scheduled": date, "next": dates_of(row.recurrence, date, row.timezone)}
    return data | {"agent": row.folder} | {name: getattr(row, name) for name in named} | dates
