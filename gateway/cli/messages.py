"""`longshore send` and `longshore tail`: talk to an agent, watch the fleet."""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Annotated, Final

import typer

from adapters.events import Envelope, MessagesJoined, TurnEnded, TurnStarted
from gateway.cli.desk import Desk, err, fail, out, print_json, print_json_text, run, shown
from gateway.cli.listening import nobody_listens
from gateway.cli.sessions import one_session
from gateway.cli.stream import EventPrinter
from models.errors import DatabaseDownError
from models.lookup import short
from models.sessions import find_session
from workers.events import Follower, redis_client
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.operations.agents import agent_named
from workers.operations.wirings import FollowUp

AGAIN_SECONDS: Final = 1.0


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
    printer = EventPrinter(out, usage=True)
    try:
        return await _show_answer(follower, accepted, None if as_json else printer)
    except asyncio.CancelledError:
        printer.close()
        err.print(f"[dim]it is answered all the same: longshore tail {short(accepted.session_id)}[/dim]")
        raise


async def _show_answer(follower: Follower, accepted: Accepted, printer: EventPrinter | None) -> bool:
    """Show events of the turn that has our message, until it ends for good. No printer: as JSON."""
    ours = accepted.answered_turn
    async for item in follower.events():
        if isinstance(item.event, TurnStarted | MessagesJoined) and accepted.seq in item.event.messages:
            ours = item.turn
        if ours is None or item.turn != ours:
            continue
        if printer is None:
            print_json_text(item.to_json())
        else:
            printer.show(item)
        if isinstance(item.event, TurnEnded) and item.event.status in ("completed", "failed", "cancelled"):
            return item.event.status == "completed"
    return False


def tail(
    session: Annotated[
        str | None, typer.Argument(help="a session's id (its end is enough); else the whole fleet")
    ] = None,
    agent: Annotated[list[str] | None, typer.Option(help="only this agent's sessions; may be repeated")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per line")] = False,
) -> None:
    """Watch events as they happen: of one session from its beginning, or of all from now on."""
    if session is not None and agent:
        fail("name a session or --agent, not both", 2)

    async def command(desk: Desk) -> None:
        session_id = await one_session(desk, session) if session else None
        wanted = [await desk.db.read(lambda conn, name=name: agent_named(conn, name)) for name in agent or ()]  # type: ignore[misc]
        client = redis_client(desk.settings.redis_url)
        printer = EventPrinter(out, prefix=session_id is None)
        if not as_json and session_id is None:
            who = ", ".join(shown(row.folder) for row in wanted) or "the fleet"
            err.print(f"[dim]watching {who}; Ctrl-C stops[/dim]")
        agents = _Agents(desk, {row.folder for row in wanted})
        try:
            async for item in _without_end(Follower(desk.db, client, session_id)):
                if session_id is None and not await agents.includes(item.session):
                    continue
                if as_json:
                    print_json_text(item.to_json())
                else:
                    printer.show(item, agents.names.get(item.session, ""))
        finally:
            printer.close()
            await client.aclose()

    run(command, broker=True)


async def _without_end(follower: Follower) -> AsyncIterator[Envelope]:
    """Whoever watches goes on watching when a database is back that was away for long; nothing is missed."""
    while True:
        try:
            async for item in follower.events():
                yield item
        except DatabaseDownError as error:
            err.print(f"[yellow]{shown(error)}[/yellow]: watching goes on as soon as it does", soft_wrap=True)
            await asyncio.sleep(AGAIN_SECONDS)


class _Agents:
    """Whose sessions are whose, looked up once each. `wanted`: only these agents'; none: everybody's."""

    def __init__(self, desk: Desk, wanted: set[str]) -> None:
        self._desk = desk
        self._wanted = wanted
        self.names: dict[str, str] = {}

    async def includes(self, session_id: str) -> bool:
        if session_id not in self.names:
            try:
                found = await self._desk.db.read(lambda conn: find_session(conn, session_id))
            except DatabaseDownError:  # whoever watches everybody goes on with what Redis says
                return not self._wanted
            self.names[session_id] = found.folder if found is not None else ""
        return not self._wanted or self.names[session_id] in self._wanted
