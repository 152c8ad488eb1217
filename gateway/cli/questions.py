"""`longshore questions` and `longshore answer`: what agents ask people, and answering for one of them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import AsJson, Desk, data_of, fail, out, print_done, print_json, run, shown
from gateway.figures import ago, until
from models.base import AnyRow, now
from models.consent import PendingQuestion
from models.groups import AgentGroup
from models.lookup import short
from models.sessions import Session
from workers.consent.questions import give_answer
from workers.house import ring_for

BY = "cli"


def questions(
    everything: Annotated[bool, typer.Option("--all", help="also those that were answered or came too late")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="at most so many")] = 50,
    as_json: AsJson = False,
) -> None:
    """List what agents have asked people and wait for, the oldest first."""

    async def command(desk: Desk) -> None:
        query = _asked().order_by(PendingQuestion.created_at, PendingQuestion.id).limit(limit)
        if not everything:
            query = query.where(PendingQuestion.status == "pending", PendingQuestion.expires_at > now())
        rows = await desk.db.read(lambda conn: _rows(conn, query))
        if as_json:
            print_json([data_of(row._mapping) for row in rows])
        elif not rows:
            out.print("no agent " + ("has asked anything" if everything else "waits for an answer"))
        else:
            out.print(_table(rows))
            if any(row.status == "pending" for row in rows):
                out.print("answer: [bold]longshore answer ID TEXT[/bold] [dim](or an option's number)[/dim]")

    run(command)


def answer(
    question: Annotated[str, typer.Argument(help="the question's id (its end is enough)")],
    text: Annotated[str, typer.Argument(help="an option's number or label; any text if there are none")],
    as_json: AsJson = False,
) -> None:
    """Answer a question; the agent goes on at once."""
    if not text.strip():
        fail("the answer is empty", 2)

    async def command(desk: Desk) -> None:
        query = _asked().where(PendingQuestion.id.endswith(question, autoescape=True)).limit(5)
        rows = await desk.db.read(lambda conn: _rows(conn, query))
        if len(rows) != 1:
            fail(
                f"{'several questions end' if rows else 'no question ends'} with {question!r}; see: longshore questions"
            )
        answered = await give_answer(desk.db, rows[0].id, text, BY)
        ring_for(desk, [(answered.session_id, answered.provider)], answered.deliveries)
        print_done(f"answered. {rows[0].folder} goes on", as_json, question=rows[0].id)

    run(command, broker=True)


def options_of(row: AnyRow) -> list[str]:
    return [str(option) for option in row.question.get("options") or []]


def numbered(options: Sequence[str]) -> str:
    return "  ".join(f"{number} {option}" for number, option in enumerate(options, 1))


def _asked() -> Select[Any]:
    return (
        select(PendingQuestion.__table__, AgentGroup.folder)
        .join(Session, Session.id == PendingQuestion.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
    )


async def _rows(conn: AsyncConnection, query: Select[Any]) -> list[AnyRow]:
    return list((await conn.execute(query)).all())


def _table(rows: list[AnyRow]) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("id", "agent", "where", "asked", "question", "options", "state"):
        table.add_column(name, no_wrap=name in ("id", "asked"))
    for row in rows:
        where = f"{row.channel_type}:{row.platform_id}" + (f"/{row.thread_id}" if row.thread_id else "")
        title, text = row.question.get("title") or "", row.question.get("text") or ""
        said = f"[bold]{shown(title)}[/bold] {shown(text)}".strip()
        options = shown(numbered(options_of(row)) or "any text")
        table.add_row(short(row.id), shown(row.folder), shown(where), ago(row.created_at), said, options, _state(row))
    return table


def _state(row: AnyRow) -> str:
    if row.status == "answered":
        by = f" [dim]by {shown(row.answered_by)}[/dim]" if row.answered_by else ""
        return f"[green]{shown(row.answer or '')}[/green]{by}"
    if row.status == "expired" or row.expires_at <= datetime.now(UTC):
        return "[red]nobody answered[/red]"
    return f"[yellow]expires in {until(row.expires_at)}[/yellow]"
