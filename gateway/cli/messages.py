"""`longshore send` and `longshore tail`: talk to an agent, watch the fleet."""

import asyncio
import sys
from typing import Annotated

import typer

from adapters.events import MessagesJoined, TurnEnded, TurnStarted
from gateway.cli.desk import Desk, FollowUp, err, out, print_json, run
from gateway.cli.listening import nobody_listens
from gateway.cli.sessions import one_session
from gateway.cli.stream import EventPrinter
from workers.events import Follower, redis_client
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept


def send(
    agent: Annotated[str, typer.Argument(help="the agent group, by folder name or id")],
    text: Annotated[str, typer.Argument(help="what to say; - reads standard input")],
    channel: Annotated[str, typer.Option(help="the platform the answer goes to")] = "local",
    chat: Annotated[str, typer.Option(help="the place on that platform; another one is another session")] = "inbox",
    thread: Annotated[str | None, typer.Option(help="a thread of that place")] = None,
    message_id: Annotated[str | None, typer.Option("--id", help="your key: the same one is taken once")] = None,
    follow_up: Annotated[
        FollowUp | None, typer.Option(help="if the agent is at work: join it, interrupt it, wait, or be refused")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="show the answer as it is written")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="print the accepted message, or the events, as JSON")] = False,
) -> None:
    """Send a message to an agent and watch it answer."""
    said = sys.stdin.read() if text == "-" else text

    async def command(desk: Desk) -> bool:
        given = {
            "agent_group": agent,
            "channel_type": channel,
            "platform_id": chat,
            "thread_id": thread,
            "message_id": message_id,
            "follow_up": follow_up,
            "text": said,
            "sender_id": "you",
            "sender_name": "you",
        }
        incoming = parse_incoming({key: value for key, value in given.items() if value is not None})
        client = redis_client(desk.settings.redis_url)
        try:
            accepted = await accept(desk.db, desk.registry, desk.settings, incoming)
            follower = Follower(desk.db, client, accepted.session_id, ready=lambda: accepted.ring(desk.bells))
            return await _after_sending(desk, follower, accepted, wait, as_json)
        finally:
            await client.aclose()

    if not run(command, broker=True):
        raise typer.Exit(1)


async def _after_sending(desk: Desk, follower: Follower, accepted: Accepted, wait: bool, as_json: bool) -> bool:
    if accepted.duplicate:
        err.print(f"[yellow]already there[/yellow] as message {accepted.seq} ({accepted.message_id}); not sent again")
    if not wait or accepted.duplicate:
        accepted.ring(desk.bells)
        if as_json:
            print_json(accepted.public())
        elif not accepted.duplicate:
            out.print(f"accepted: message {accepted.seq} ({accepted.message_id})")
        return True
    if (words := await nobody_listens(desk, accepted)) is not None:
        err.print(words)
    return await _show_answer(follower, accepted, as_json)


async def _show_answer(follower: Follower, accepted: Accepted, as_json: bool) -> bool:
    """Show events of the turn that has our message, until it ends for good."""
    printer = EventPrinter(out, usage=True)
    ours = accepted.answered_turn
    async for item in follower.events():
        if isinstance(item.event, TurnStarted | MessagesJoined) and accepted.seq in item.event.messages:
            ours = item.turn
        if ours is None or item.turn != ours:
            continue
        if as_json:
            sys.stdout.write(item.to_json() + "\n")
            sys.stdout.flush()
        else:
            printer.show(item)
        if isinstance(item.event, TurnEnded) and item.event.status in ("completed", "failed", "cancelled"):
            return item.event.status == "completed"
    return False


def tail(
    session: Annotated[
        str | None, typer.Argument(help="a session's id (its end is enough); else the whole fleet")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per line")] = False,
) -> None:
    """Watch events as they happen: of one session from its beginning, or of all from now on."""

    async def command(desk: Desk) -> None:
        session_id = await one_session(desk, session) if session else None
        client = redis_client(desk.settings.redis_url)
        printer = EventPrinter(out, prefix=session_id is None)
        if not as_json and session_id is None:
            err.print("[dim]watching the fleet; Ctrl-C stops[/dim]")
        try:
            async for item in Follower(desk.db, client, session_id).events():
                if as_json:
                    sys.stdout.write(item.to_json() + "\n")
                    sys.stdout.flush()
                else:
                    printer.show(item)
        except asyncio.CancelledError:
            printer.close()
            raise
        finally:
            await client.aclose()

    run(command, broker=True)
