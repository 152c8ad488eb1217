"""`longshore dead`: what was given up, why, and trying it again."""

import json
from typing import Annotated, Any

import typer
from rich.table import Table
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import BY, AsJson, Desk, data_of, err, fail, out, print_done, print_json, run, shown
from models.base import AnyRow
from models.browsing import dead_page, rejected_page, undelivered_page
from models.lookup import find_dead, find_undelivered, short
from models.spending import everybodys
from workers.failover import check_choice
from workers.operations import dead as operations
from workers.refusals import RefusedError

dead = typer.Typer(help="Dead letters: messages that were given up, with the reason.", invoke_without_command=True)


@dead.callback()
def listing(
    context: typer.Context,
    rejected: Annotated[bool, typer.Option("--rejected", help="input that was refused instead")] = False,
    undelivered_only: Annotated[
        bool, typer.Option("--undelivered", help="replies that did not arrive instead")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="at most so many")] = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the latest first."""
    if context.invoked_subcommand is not None:
        return

    async def command(desk: Desk) -> None:
        rows = await desk.db.read(lambda conn: _listed(conn, limit, rejected, undelivered_only))
        if as_json:
            print_json([data_of(row._mapping) for row in rows])
        elif not rows:
            what = "refused" if rejected else "left undelivered" if undelivered_only else "given up"
            out.print(f"nothing here: [green]nothing was {what}[/green]")
        else:
            out.print(_rejected(rows) if rejected else _undelivered(rows) if undelivered_only else _dead(rows))

    run(command)


async def _listed(conn: AsyncConnection, limit: int, rejected: bool, undelivered: bool) -> list[AnyRow]:
    if rejected:
        return await rejected_page(conn, limit)
    return await (undelivered_page if undelivered else dead_page)(conn, everybodys, limit)


@dead.command("show")
def show(
    message: Annotated[str, typer.Argument(help="the message's id (its end is enough)")],
    as_json: AsJson = False,
) -> None:
    """Everything about one dead letter."""

    async def command(desk: Desk) -> None:
        row = await _one(desk, message)
        if as_json:
            print_json(data_of(row._mapping))
            return
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
    provider: Annotated[str | None, typer.Option(help="who is to answer it, instead of the agent's own")] = None,
    model: Annotated[str | None, typer.Option(help="with which model")] = None,
    as_json: AsJson = False,
) -> None:
    """Try a dead letter again, with all its tries; on another provider, if you name one."""
    if (message is None) == (not everything):
        fail("name one message, or give --all", 2)

    async def command(desk: Desk) -> None:
        if message is not None:
            row = await _one(desk, message)
            done = await operations.retry(desk, BY, row.id, provider=provider, model=model)
            print_done(done.text, as_json, message=row.id)
            return
        await _retry_all(desk, provider, model, as_json)

    run(command, broker=True)


async def _retry_all(desk: Desk, provider: str | None, model: str | None, as_json: bool) -> None:
    """One that cannot be tried again does not keep the others."""
    check_choice(desk.registry, provider, model)
    rows = await desk.db.read(lambda conn: dead_page(conn, everybodys, 10_000))
    refused: list[str] = []
    for row in sorted(rows, key=lambda row: (row.session_id, row.seq)):
        try:
            await operations.retry(desk, BY, row.id, provider=provider, model=model)
        except RefusedError as error:
            refused.append(row.id)
            err.print(shown(f"{short(row.id)}: {error}"), soft_wrap=True)
    again = [row.id for row in rows if row.id not in refused]
    print_done(f"{len(again)} back in the queue", as_json, messages=again, refused=refused)
    if refused:
        raise typer.Exit(1)


@dead.command("discard")
def discard_one(
    message: Annotated[str, typer.Argument(help="the message's id (its end is enough)")], as_json: AsJson = False
) -> None:
    """Put a dead letter away for good. The row stays, as `discarded`."""

    async def command(desk: Desk) -> None:
        row = await _one(desk, message)
        print_done((await operations.discard(desk, BY, row.id)).text, as_json, message=row.id)

    run(command)


@dead.command("resend")
def resend_one(
    message: Annotated[str, typer.Argument(help="the reply's id (its end is enough)")], as_json: AsJson = False
) -> None:
    """Send an undelivered reply again, under its old key. One that is `unknown` may have arrived: look first."""

    async def command(desk: Desk) -> None:
        rows = await desk.db.read(lambda conn: find_undelivered(conn, message))
        if len(rows) != 1:
            found = "several replies end" if rows else "no reply ends"
            fail(f"{found} with {message!r}; see: longshore dead --undelivered")
        print_done((await operations.resend(desk, BY, rows[0].id)).text, as_json, message=rows[0].id)

    run(command, broker=True)


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
