"""`longshore approvals`, `approve` and `deny`: what agents may do only if somebody says so."""

import math
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import AsJson, Desk, data_of, fail, out, print_done, print_json, run, shown
from gateway.figures import ago, until
from models.base import AnyRow, now
from models.consent import Approval
from models.groups import AgentGroup
from models.lookup import short
from models.sessions import Session
from workers.consent.approvals import decide
from workers.house import ring_for

_RISKS = {"low": "low", "medium": "[yellow]medium[/yellow]", "high": "[red]high[/red]"}


def approvals(
    approval: Annotated[str | None, typer.Argument(help="show this one whole (the end of its id is enough)")] = None,
    everything: Annotated[bool, typer.Option("--all", help="also those that were decided or came too late")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="at most so many")] = 50,
    as_json: AsJson = False,
) -> None:
    """List what waits for a decision, the oldest first; or show one whole, as it would be done."""

    async def command(desk: Desk) -> None:
        if approval is not None:
            row = await _find(desk, approval)
            if as_json:
                print_json(data_of(row._mapping))
            else:
                out.print(f"{shown(row.summary)}\n{_state(row)}\n", soft_wrap=True)
                print_json(row.payload)
            return
        query = _asked().order_by(Approval.created_at, Approval.id).limit(limit)
        if not everything:
            query = query.where(Approval.status == "pending", Approval.expires_at > now())
        rows = await desk.db.read(lambda conn: _rows(conn, query))
        if as_json:
            print_json([data_of(row._mapping) for row in rows])
        elif not rows:
            out.print("nothing " + ("was ever asked for" if everything else "waits for a decision"))
        else:
            out.print(_table(rows))
            if any(row.status == "pending" for row in rows):
                out.print("decide: [bold]longshore approve ID[/bold] or [bold]longshore deny ID[/bold]")

    run(command)


def approve(
    approval: Annotated[str, typer.Argument(help="the approval's id (its end is enough)")],
    usd: Annotated[
        float | None, typer.Option(help="for a budget: how much more for today; else what was asked")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Allow what an agent asks for; it goes on at once."""
    if usd is not None and not (math.isfinite(usd) and usd > 0):
        fail("--usd must be more than 0", 2)
    run(lambda desk: _decide(desk, approval, approve=True, usd=usd, as_json=as_json), broker=True)


def deny(
    approval: Annotated[str, typer.Argument(help="the approval's id (its end is enough)")], as_json: AsJson = False
) -> None:
    """Refuse what an agent asks for; what waits for it is given up."""
    run(lambda desk: _decide(desk, approval, approve=False, usd=None, as_json=as_json), broker=True)


async def _decide(desk: Desk, fragment: str, *, approve: bool, usd: float | None, as_json: bool) -> None:
    row = await _find(desk, fragment)
    decided = await decide(desk.db, row.id, approve=approve, usd=usd)
    ring_for(desk, decided.wakes, decided.deliveries)
    print_done(decided.text, as_json, approval=row.id)


async def _find(desk: Desk, fragment: str) -> AnyRow:
    query = _asked().where(Approval.id.endswith(fragment, autoescape=True)).limit(5)
    rows = await desk.db.read(lambda conn: _rows(conn, query))
    if len(rows) != 1:
        fail(f"{'several approvals end' if rows else 'no approval ends'} with {fragment!r}; see: longshore approvals")
    return rows[0]


def _asked() -> Select[Any]:
    return (
        select(Approval.__table__, AgentGroup.folder)
        .join(Session, Session.id == Approval.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
    )


async def _rows(conn: AsyncConnection, query: Select[Any]) -> list[AnyRow]:
    return list((await conn.execute(query)).all())


def _table(rows: list[AnyRow]) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("id", "agent", "asked", "what for", "risk", "state"):
        table.add_column(name, no_wrap=name in ("id", "asked"))
    for row in rows:
        what = f"[bold]{shown(row.category)}[/bold] {shown(row.summary)}"
        table.add_row(short(row.id), shown(row.folder), ago(row.created_at), what, _RISKS[row.risk], _state(row))
    return table


def _state(row: AnyRow) -> str:
    if row.status == "pending" and row.expires_at > datetime.now(UTC):
        return f"[yellow]expires in {until(row.expires_at)}[/yellow]"
    status = "expired" if row.status == "pending" else row.status
    by = f" [dim]by {shown(row.decided_by)}[/dim]" if row.decided_by else ""
    return f"{'[red]' if status in ('denied', 'expired') else '[green]'}{status}[/]{by}"
