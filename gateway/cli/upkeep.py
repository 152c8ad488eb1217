"""`longshore doctor`, `migrate` and `health`."""

import asyncio
from typing import Annotated

import typer
from rich.table import Table

from adapters.registry import Registry
from gateway.cli.desk import EX_UNAVAILABLE, AsJson, Desk, fail, out, print_json, run, shown
from gateway.doctor import Check, examine
from models import schema
from models.errors import DatabaseDownError, StoreError
from models.fleet import living_processes
from workers.settings import SettingsError, load_settings

_MARKS = {"ok": "[green]✓[/green]", "warning": "[yellow]![/yellow]", "problem": "[red]✗[/red]"}


def doctor(as_json: AsJson = False) -> None:
    """Look at everything that can be wrong, and say what to do. Exits 1 if something is."""
    try:
        settings = load_settings()
    except SettingsError as error:
        fail(str(error))

    async def command() -> list[Check]:
        checks = []
        async for check in examine(settings, Registry()):
            checks.append(check)
            if not as_json:
                _print(check)
        return checks

    checks = asyncio.run(command())
    if as_json:
        print_json([vars(check) for check in checks])
    if any(check.state == "problem" for check in checks):
        raise typer.Exit(1)


def _print(check: Check) -> None:
    words = shown(check.detail) + (f"  [dim]→ {shown(check.remedy)}[/dim]" if check.remedy else "")
    if not out.is_terminal:
        out.print(f"{_MARKS[check.state]} {check.name:<22} {words}", soft_wrap=True)
        return
    row = Table.grid(padding=(0, 1))
    row.add_column()
    row.add_column(min_width=22, no_wrap=True)
    row.add_column()
    row.add_row(_MARKS[check.state], shown(check.name), words)
    out.print(row)


def migrate(
    to: Annotated[str, typer.Option(help="a revision; older ones go down, `base` removes all")] = "head",
    as_json: AsJson = False,
) -> None:
    """Bring the database's tables to this release."""
    try:
        settings = load_settings()
        schema.migrate(settings.database_url, to)
    except DatabaseDownError as error:
        fail(str(error), EX_UNAVAILABLE)
    except (SettingsError, StoreError) as error:
        fail(str(error))
    revision = schema.head() if to == "head" else to
    if as_json:
        print_json({"revision": revision})
    else:
        out.print(f"the database is at {revision}")


def health(
    node: Annotated[
        str | None, typer.Argument(help="a worker or beat, e.g. agent@host or just agent; else any worker")
    ] = None,
    within: Annotated[float, typer.Option(help="seconds since it last said that it lives")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """For probes: exits 0 if the process lives, works with the database, and has said so lately."""

    async def command(desk: Desk) -> list[str]:
        alive = await desk.db.read(lambda conn: living_processes(conn, within))
        names = [process.name for process in alive if process.kind == "worker" or node is not None]
        return [
            name for name in names if node is None or node in (name, name.rpartition(":")[0], name.partition("@")[0])
        ]

    names = run(command)
    if not names:
        fail(f"{node or 'no worker'} has not been seen for {within:g} s", EX_UNAVAILABLE)
    if as_json:
        print_json({"alive": names})
    else:
        out.print(f"alive: {', '.join(names)}")
