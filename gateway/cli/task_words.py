"""Tasks and reminders as the terminal shows them. Whatever comes from a row is somebody else's text."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from rich.table import Table

from gateway.cli.desk import data_of, out, shown
from gateway.cli.task_options import Place
from gateway.figures import money, span
from models.base import AnyRow
from models.lookup import short
from models.quoting import one_line
from models.tasks import series_of
from scheduler.recurrence import RecurrenceError
from scheduler.reminders import following
from scheduler.words import distance, next_dates, often, when
from workers.task_terms import conditions
from workers.timetable import Run, Task

SHOWN_PROMPT: Final = 60
_SCRIPT_LINES: Final = 30
_BEGUN: Final = "[yellow]begun, waits[/yellow]"  # for somebody to decide, or to be tried again
_OUTCOMES: Final = {
    "completed": "[green]done[/green]",
    "failed": "[red]failed[/red]",
    "processing": "[green]running[/green]",
    "pending": _BEGUN,
    "paused": "[yellow]paused[/yellow]",
}


@dataclass(frozen=True)
class Line:
    """One row of the list. `date`: the next; None if there is none, or nobody can say. `comes`: by itself."""

    kind: str  # task, reminder
    id: str
    agent: str
    date: datetime | None
    timezone: str
    recurrence: str | None
    state: str  # with markup
    text: str
    comes: bool = True
    failures: int = 0

    @classmethod
    def of_task(cls, task: Task, at: datetime) -> "Line":
        return cls(
            kind="task",
            id=task.id,
            agent=task.agent,
            date=task.next_run(at),
            timezone=task.timezone,
            recurrence=task.recurrence,
            state=state_of(task, at),
            text=task.prompt,
            comes=task.status != "paused" and not task.under_way,
            failures=0 if task.gave_up else task.failures,  # then its state says so
        )

    @classmethod
    def of_reminder(cls, row: AnyRow, at: datetime) -> "Line":
        date, state = next_of_reminder(row, at)
        return cls(
            kind="reminder",
            id=series_of(row),
            agent=row.folder,
            date=date,
            timezone=row.timezone,
            recurrence=row.recurrence,
            state=state,
            text=str(row.content.get("text") or row.kind),
        )


def state_of(task: Task, at: datetime) -> str:
    """A few words, with markup."""
    if task.under_way:
        last = ", the last time" if task.recurrence is not None and task.scheduled is None else ""
        return ("[green]running[/green]" if task.status == "processing" else _BEGUN) + last
    if task.status == "paused":
        return f"[red]paused after {_failures(task.failures)}[/red]" if task.gave_up else "[yellow]paused[/yellow]"
    if task.is_over:
        return "[dim]over[/dim]"
    return "due" if task.scheduled is not None and task.scheduled <= at else "waiting"


def _failures(number: int) -> str:
    return f"{number} failure" if number == 1 else f"{number} failures"


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
        far = f"[dim], {distance(line.date, at)}[/dim]" if line.date is not None and line.comes else ""
        failed = f"\n[red]{_failures(line.failures)} in a row[/red]" if line.failures else ""
        kind = "\n[dim]reminder[/dim]" if line.kind == "reminder" else ""
        what = f"{shown(one_line(line.text, SHOWN_PROMPT))}\n[dim]{shown(often(line.recurrence))}[/dim]"
        cells = (f"{shown(short(line.id))}{kind}", shown(line.agent), f"{date}\n{line.state}{far}{failed}", what)
        table.add_row(*cells)
    return table


def _dates(recurrence: str | None, first: datetime | None, timezone: str, at: datetime) -> list[datetime]:
    return next_dates(recurrence, first, timezone, at) if first is not None else []


def print_task(task: Task, runs: list[Run], at: datetime) -> None:
    out.print(f"[bold]task {shown(task.handle)}[/bold] of {shown(task.agent)}: {state_of(task, at)}")
    _print_text(task.prompt)
    out.print(_facts_of(task, runs, at))
    out.print(f"its conversation: [bold]longshore sessions {shown(short(task.session_id))}[/bold]")
    if task.is_over:
        return
    first = "resume" if task.status == "paused" else "pause"
    out.print(f"change it: [bold]longshore tasks {first} {shown(task.handle)}[/bold] (or run-now, update, cancel)")


def print_reminder(row: AnyRow, at: datetime) -> None:
    date, state = next_of_reminder(row, at)
    handle = short(series_of(row))
    out.print(f"[bold]reminder {shown(handle)}[/bold] of {shown(row.folder)}: {state}")
    _print_text(row.content.get("text") or row.kind)
    table = _facts()
    _add_dates(table, row.recurrence, date, row.timezone, at)
    table.add_row("said in", shown(Place(row.channel_type, row.platform_id, row.thread_id)))
    if row.error:
        table.add_row("last error", f"[red]{shown(row.error)}[/red]")
    _add_ids(table, series_of(row), row.session_id)
    out.print(table)
    out.print(f"take it back: [bold]longshore tasks cancel {shown(handle)}[/bold]")


def _facts_of(task: Task, runs: list[Run], at: datetime) -> Table:
    table = _facts()
    head = "if resumed" if task.status == "paused" else "next"
    _add_dates(table, task.recurrence, task.next_run(at), task.timezone, at, head)
    table.add_row("answers to", shown(Place(task.channel_type, task.platform_id, task.thread_id)))
    head = "terms"
    for words in conditions(task.terms):
        table.add_row(head, shown(words))
        head = ""
    if task.failures and not task.gave_up:
        table.add_row("failures", f"[red]{task.failures} in a row[/red]")
    if task.error and not task.under_way and not task.is_over:
        table.add_row("why", shown(task.error))
    if task.terms.script is not None:
        lines = task.terms.script.splitlines()
        more = [f"… ({len(lines) - _SCRIPT_LINES} more lines)"] if len(lines) > _SCRIPT_LINES else []
        table.add_row("script", "\n".join(f"[cyan]{shown(line)}[/cyan]" for line in [*lines[:_SCRIPT_LINES], *more]))
    head = "last runs"
    for run in runs:
        table.add_row(head, _run_words(run, task.timezone, at))
        head = ""
    if not runs:
        table.add_row(head, "none yet")
    _add_ids(table, task.id, task.session_id)
    return table


def _add_ids(table: Table, row_id: str, session_id: str) -> None:
    table.add_row("id", f"[dim]{shown(row_id)}[/dim]")
    table.add_row("session", f"[dim]{shown(session_id)}[/dim]")


def _print_text(text: str) -> None:
    """In a terminal it is broken at words; into a pipe it goes as it is."""
    out.print(shown(text), soft_wrap=not out.is_terminal)


def _add_dates(
    table: Table, recurrence: str | None, first: datetime | None, timezone: str, at: datetime, head: str = "next"
) -> None:
    cron = f" [dim]({shown(recurrence)}, {shown(timezone)})[/dim]" if recurrence is not None else ""
    table.add_row("how often", shown(often(recurrence)) + cron)
    for date in _dates(recurrence, first, timezone, at):
        table.add_row(head, when(date, timezone, at))
        head = ""


def _facts() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _run_words(run: Run, timezone: str, at: datetime) -> str:
    words = [f"{when(run.scheduled, timezone)}: {_outcome(run)}"]
    if run.extra:
        words.append("besides its dates")
    if run.began is not None:
        words.append(span(((run.ended or at) - run.began).total_seconds()))
    if run.usd is not None:
        words.append(money(run.usd))
    return ", ".join(words) + (f"\n[dim]{shown(run.error)}[/dim]" if run.error else "")


def _outcome(run: Run) -> str:
    if run.status == "discarded":
        return "[yellow]passed over[/yellow]" if run.error is not None else "[yellow]cancelled[/yellow]"
    words = _OUTCOMES.get(run.status, shown(run.status))
    return f"{words} ({shown(run.error_class)})" if run.status == "failed" and run.error_class else words


def task_data(task: Task, at: datetime, runs: list[Run] | None = None) -> dict[str, Any]:
    """For programs."""
    data = {"kind": "task", "handle": task.handle} | data_of(asdict(task))
    data["next"] = task.next_runs(at)
    return data if runs is None else data | {"runs": [data_of(asdict(run)) for run in runs]}


def reminder_data(row: AnyRow, at: datetime) -> dict[str, Any]:
    data = {"kind": "reminder", "id": series_of(row), "handle": short(series_of(row))}
    data |= {"agent": row.folder, "session": row.session_id}
    named = ("recurrence", "timezone", "status", "channel_type", "platform_id", "thread_id", "content")
    date, _ = next_of_reminder(row, at)
    dates = {"scheduled": date, "next": _dates(row.recurrence, date, row.timezone, at)}
    return data | {name: getattr(row, name) for name in named} | dates
