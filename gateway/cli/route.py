"""`longshore route`: what would become of a message, and why. It writes nothing."""

from typing import Annotated, Any

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import AsJson, Desk, fail, out, print_json, run, shown
from models.groups import all_wirings
from models.lookup import short
from workers.intake.explaining import explain
from workers.intake.incoming import Incoming, parse_incoming
from workers.intake.visits import Visit, visit_key

_MARKS = {"answers": "[green]→[/green]", "overhears": "[yellow]·[/yellow]"}
_WORDS = {"answers": "answers", "overhears": "overhears", "passes": "passes", "beaten": "is not asked any more"}


def route(
    channel: Annotated[str, typer.Option(help="the platform, e.g. slack")],
    text: Annotated[str, typer.Option(help="what is said")],
    chat: Annotated[str | None, typer.Option(help="the place; may be left out if only one is wired there")] = None,
    sender: Annotated[str | None, typer.Option(help="who says it, by the platform's id")] = None,
    thread: Annotated[str | None, typer.Option(help="the thread")] = None,
    mention: Annotated[bool, typer.Option(help="the agent is mentioned")] = False,
    direct: Annotated[bool, typer.Option(help="in a chat of one person")] = False,
    as_json: AsJson = False,
) -> None:
    """Explain which agent would answer a message from outside, and why. Nothing is stored, and nobody is told."""

    async def command(desk: Desk) -> None:
        desk.registry.channels.get(channel)
        fields = {
            "channel_type": channel,
            "platform_id": chat if chat is not None else await _only_chat(desk, channel),
            "text": text,
            "sender_id": sender.removeprefix(f"{channel}:") if sender is not None else None,
            "thread_id": thread,
            "is_mention": mention,
        }
        incoming = parse_incoming(fields)
        found = await desk.db.read(lambda conn: _explained(conn, desk, incoming, direct))
        if as_json:
            print_json(found)
        else:
            _print(found)

    run(command)


async def _explained(conn: AsyncConnection, desk: Desk, incoming: Incoming, direct: bool) -> dict[str, Any]:
    trusted = desk.registry.channels.get(incoming.channel_type).capabilities.trusted
    visit = Visit(incoming, direct, trusted, key=visit_key(incoming, ""))
    return await explain(conn, desk.registry, desk.settings, visit)


async def _only_chat(desk: Desk, channel: str) -> str:
    wired = await desk.db.read(all_wirings)
    chats = sorted({row.platform_id for row in wired if row.channel_type == channel})
    if len(chats) != 1:
        known = f"agents listen in: {', '.join(chats[:20])}" if chats else "no agent listens there yet (longshore wire)"
        fail(f"name a place on {channel} with --chat; {known}", 2)
    return str(chats[0])


def _print(found: dict[str, Any]) -> None:
    out.print(f"[bold]{shown(found['place'])}[/bold] [dim]strangers: {found['policy']}[/dim]")
    for one in found["wirings"]:
        mark = _MARKS.get(one["takes"], "[dim]✗[/dim]")
        out.print(f"{mark} {shown(one['agent'])} {_WORDS[one['takes']]}: {shown(one['reason'])}", soft_wrap=True)
    if found["registers"] is not None:
        out.print(f"the channel's rules would wire {shown(found['registers'])} here")
    if found["agent"] is None:
        out.print("[yellow]no agent takes it[/yellow]")
    else:
        session = f"session {short(found['session'])}" if found["session"] else "a new session"
        out.print(f"{'answered' if found['wakes'] else 'overheard'} by {shown(found['agent'])}, in {session}")
    if found["command"] is not None:
        out.print(f"command: {shown(found['command'])}")
    out.print(f"sender: {shown(found['sender'])}: {shown(found['admission'])}", soft_wrap=True)
