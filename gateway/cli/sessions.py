"""`longshore sessions`: what goes on, and one session's story."""

from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from gateway.cli.desk import AsJson, Desk, data_of, fail, out, print_json, run, shown
from gateway.figures import ago, until
from gateway.session_words import standing
from models.base import AnyRow
from models.browsing import messages_page, sessions_page
from models.lookup import find_sessions, short
from models.sessions import find_session
from models.spending import everybodys
from models.turns import turns_of_session
from workers.agents import AGENT

_FACTS: Final = (
    *("id", "folder", "provider", "channel_type", "platform_id", "thread_id", "status", "activity", "activity_since"),
    *("lease_expires_at", "resume_after", "message_seq", "turn_seq", "last_active", "replay_of", "delivers"),
    *("pending", "dead"),
)

_COLOURS: Final = {"busy": "green", "bad": "red", "warn": "yellow"}


def sessions(
    session: Annotated[str | None, typer.Argument(help="one session (the end of its id), with its messages")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="at most so many")] = 30,
    as_json: AsJson = False,
) -> None:
    """List sessions, the latest first; or show one."""
    if session is not None:
        run(lambda desk: _show(desk, session, as_json))
        return

    async def command(desk: Desk) -> None:
        rows = await desk.db.read(lambda conn: sessions_page(conn, everybodys, limit))
        if as_json:
            print_json([data_of(_facts(row)) for row in rows])
        elif not rows:
            out.print('no sessions yet. Say something: [bold]longshore send demo "hello"[/bold]')
        else:
            out.print(_table(rows))

    run(command)


def _facts(row: AnyRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _FACTS} | {"provider": _provider(row)}


def _provider(row: AnyRow) -> str | None:
    own: str | None = row.provider or row.group_provider
    return own


def _table(rows: list[Any]) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("session", "agent", "provider", "where", "state", "messages", "last active"):
        table.add_column(name, no_wrap=name in ("session", "last active"))
    for row in rows:
        provider, messages = _provider(row) or "-", str(row.message_seq)
        cells = (
            short(row.id),
            shown(row.folder),
            provider,
            shown(_where(row)),
            _state(row),
            messages,
            ago(row.last_active),
        )
        table.add_row(*cells)
    return table


def _where(row: Any) -> str:
    if row.replay_of is not None:
        return f"replay of {short(row.replay_of)}" + (", delivers" if row.delivers else "")
    if row.channel_type == AGENT:  # its thread is the session that asked
        return f"asked by {short(row.thread_id)}"
    return f"{row.channel_type}:{row.platform_id}" + (f"/{row.thread_id}" if row.thread_id else "")


def _state(row: Any) -> str:
    now = standing(row, datetime.now(UTC))
    if now.tone == "quiet":
        return f"[red]{row.dead} dead[/red]" if row.dead else now.word
    span = until(now.moment) if now.moment is not None and now.moment > datetime.now(UTC) else ago(now.moment)
    more = f", {row.pending} messages" if now.word == "waiting" and row.pending > 1 else ""
    return f"[{_COLOURS[now.tone]}]{now.word}[/][dim]{shown(now.told(span))}{more}[/dim]"


async def one_session(desk: Desk, fragment: str) -> str:
    """The id of the session that people name by its end."""
    found = await desk.db.read(lambda conn: find_sessions(conn, fragment))
    if len(found) != 1:
        fail(f"{'several sessions end' if found else 'no session ends'} with {fragment!r}; see: longshore sessions")
    return found[0]


async def _show(desk: Desk, fragment: str, as_json: bool) -> None:
    session_id = await one_session(desk, fragment)
    messages = await desk.db.read(lambda conn: messages_page(conn, session_id, None))
    turns = await desk.db.read(lambda conn: turns_of_session(conn, session_id))
    session = await desk.db.read(lambda conn: find_session(conn, session_id))
    assert session is not None
    if as_json:
        told = [{"direction": direction} | data_of(row._mapping) for direction, row in messages]
        about = {"id": session_id, "status": session.status, "replay_of": session.replay_of}
        print_json(about | {"messages": told, "turns": [data_of(row._mapping) for row in turns]})
        return
    out.print(f"[bold]session {session_id}[/bold]")
    if session.replay_of is not None:
        out.print(f"[dim]a replay of {session.replay_of}; compare: longshore replay --show {short(session_id)}[/dim]")
    for direction, row in messages:
        mark = "[cyan]←[/cyan]" if direction == "in" else "[green]→[/green]"
        text = row.content.get("text") or row.content.get("prompt") or row.kind
        note = "" if row.status in ("completed", "delivered") else f" [yellow]({row.status})[/yellow]"
        out.print(f"{mark} [dim]{row.seq}[/dim] {shown(str(text))}{note}", soft_wrap=True)
    for turn in turns:
        error = f" [red]{shown(turn.error)}[/red]" if turn.error else ""
        out.print(f"[dim]turn {turn.number}: {turn.status}, attempt {turn.attempt}, {turn.provider}[/dim]{error}")
