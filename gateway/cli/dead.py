"""`longshore dead`: what was given up, why, and trying it again."""

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from gateway.cli.desk import Desk, fail, out, print_json, run, shown
from models.lookup import (
    discard,
    find_dead,
    find_undelivered,
    list_dead,
    list_rejected,
    resend,
    revive,
    short,
    undelivered,
)
from models.sessions import find_session

dead = typer.Typer(help="Dead letters: messages that were given up, with the reason.", invoke_without_command=True)


@dead.callback()
def listing(
    context: typer.Context,
    rejected: Annotated[bool, typer.Option("--rejected", help="input that was refused instead")] = False,
    undelivered_only: Annotated[
        bool, typer.Option("--undelivered", help="replies that did not arrive instead")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List dead letters, the latest first."""
    if context.invoked_subcommand is not None:
        return

    async def command(desk: Desk) -> None:
        query = list_rejected if rejected else undelivered if undelivered_only else list_dead
        rows = await desk.db.read(lambda conn: query(conn, limit))
        if as_json:
            print_json([dict(row._mapping) for row in rows])
        elif not rows:
            what = "refused" if rejected else "left undelivered" if undelivered_only else "given up"
            out.print(f"nothing here: [green]nothing was {what}[/green]")
        else:
            out.print(_rejected(rows) if rejected else _undelivered(rows) if undelivered_only else _dead(rows))

    run(command)


@dead.command("show")
def show(message: Annotated[str, typer.Argument(help="the message's id (its end is enough)")]) -> None:
    """Everything about one dead letter."""

    async def command(desk: Desk) -> None:
        row = await _one(desk, message)
        out.print(f"[bold]message {row.seq}[/bold] to {shown(row.folder)}, {row.kind}, {row.tries} tries")
        out.print(f"[red]{row.error_class}[/red]: {shown(row.error or '')}", soft_wrap=True)
        out.print(f"[dim]id {shown(row.id)}, session {row.session_id}[/dim]")
        out.print_json(data=row.content)
        out.print(f"try again: [bold]longshore dead retry {shown(short(row.id))}[/bold]")

    run(command)


@dead.command("retry")
def retry(
    message: Annotated[str | None, typer.Argument(help="the message's id (its end is enough)")] = None,
    everything: Annotated[bool, typer.Option("--all", help="all dead letters")] = False,
) -> None:
    """Try a dead letter again, with all its tries."""
    if (message is None) == (not everything):
        fail("name one message, or give --all", 2)

    async def command(desk: Desk) -> None:
        rows = [await _one(desk, message)] if message else await desk.db.read(lambda conn: list_dead(conn, 10_000))
        for row in sorted(rows, key=lambda row: (row.session_id, row.seq)):
            await _revive(desk, row)
        out.print(f"{len(rows)} back in the queue")

    run(command, broker=True)


@dead.command("discard")
def discard_one(message: Annotated[str, typer.Argument(help="the message's id (its end is enough)")]) -> None:
    """Put a dead letter away for good. The row stays, as `discarded`."""

    async def command(desk: Desk) -> None:
        row = await _one(desk, message)
        await desk.db.transact(lambda conn: discard(conn, row.id))
        out.print("discarded")

    run(command)


@dead.command("resend")
def resend_one(message: Annotated[str, typer.Argument(help="the reply's id (its end is enough)")]) -> None:
    """Send an undelivered reply again, under its old key. One that is `unknown` may have arrived: look first."""

    async def command(desk: Desk) -> None:
        rows = await desk.db.read(lambda conn: find_undelivered(conn, message))
        if len(rows) != 1:
            found = "several replies end" if rows else "no reply ends"
            fail(f"{found} with {message!r}; see: longshore dead --undelivered")
        await desk.db.transact(lambda conn: resend(conn, rows[0].id))
        desk.bells.deliver(rows[0].id)
        out.print("back in the queue")

    run(command, broker=True)


async def _revive(desk: Desk, row: Any) -> None:
    session = await desk.db.read(lambda conn: find_session(conn, row.session_id))
    assert session is not None
    provider = session.provider or session.group_provider or desk.settings.default_provider
    desk.registry.providers.get(provider)  # refuses an unknown one before anything is changed
    if session_id := await desk.db.transact(lambda conn: revive(conn, row.id)):
        desk.bells.wake(session_id, provider)


async def _one(desk: Desk, fragment: str) -> Any:
    rows = await desk.db.read(lambda conn: find_dead(conn, fragment))
    if len(rows) != 1:
        fail(f"{'several dead letters end' if rows else 'no dead letter ends'} with {fragment!r}; see: longshore dead")
    return rows[0]


def _dead(rows: list[Any]) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("id", "agent", "tries", "why", "message"):
        table.add_column(name, no_wrap=name == "id")
    for row in rows:
        text = str(row.content.get("text") or row.content.get("prompt") or row.kind)
        why = f"[red]{row.error_class}[/red] {shown(row.error or '')}"
        table.add_row(shown(short(row.id)), shown(row.folder), str(row.tries), why, shown(text[:80]))
    return table


def _rejected(rows: list[Any]) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("id", "when", "why", "what"):
        table.add_column(name, no_wrap=name in ("id", "when"))
    for row in rows:
        when = row.created_at.strftime("%m-%d %H:%M:%S")
        what = json.dumps(row.payload.get("kwargs") or row.payload, ensure_ascii=False)
        table.add_row(shown(short(row.id)), when, shown(row.reason), shown(what[:100]))
    return table


def _undelivered(rows: list[Any]) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("id", "to", "status", "tries", "why"):
        table.add_column(name, no_wrap=name == "id")
    for row in rows:
        where = f"{row.channel_type}:{row.platform_id}"
        table.add_row(shown(short(row.id)), shown(where), row.status, str(row.attempts), shown(row.error or ""))
    return table
