"""`longshore chat`: talk with an agent in the terminal, or line by line through a pipe."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Coroutine
from typing import Annotated, Any, cast

import redis.asyncio
import typer
from rich.console import Console

from adapters.events import Envelope, TurnEnded, TurnStarted
from gateway.assistant import FOLDER as ASSISTANT
from gateway.cli.chat_printer import ChatPrinter
from gateway.cli.conversation import ENDS, Conversation, fresh_place
from gateway.cli.desk import Desk, fail, out, run, shown
from gateway.cli.piped_lines import piped_lines
from gateway.cli.terminal import Terminal, is_interactive
from gateway.demo import FOLDER as DEMO
from models.base import AnyRow
from models.groups import agent_folders, find_agent_group
from workers.events import redis_client
from workers.refusals import RefusedError

HISTORY_FILE = "chat_history"
_HELP = (
    "[dim]  Enter sends, Alt-Enter begins a new line, arrows recall. A message sent while the agent works joins in.\n"
    "  /approve, /deny   decide about what the agent asks for; with its code, if several wait\n"
    "  /stop             stops what the agent is at\n"
    "  /new              begins a conversation without a past\n"
    "  /quit             leaves, as do Ctrl-D and Ctrl-C; what was sent is answered all the same[/dim]"
)


def chat(
    agent: Annotated[str | None, typer.Argument(help="the agent; else the only one, `assistant` or `demo`")] = None,
    place: Annotated[str, typer.Option("--chat", help="the place; another one is another conversation")] = "chat",
    new: Annotated[bool, typer.Option("--new", help="begin a conversation without a past")] = False,
) -> None:
    """Talk with an agent. Through a pipe, each line is a message; exits 1 if one of them could not be answered."""

    async def command(desk: Desk) -> bool:
        group = await _choose(desk, agent)
        provider = group.provider or desk.settings.default_provider
        desk.registry.providers.get(provider)  # refuses an unknown one before anything is said
        client = redis_client(desk.settings.redis_url)
        try:
            where = fresh_place() if new else place
            talk = _at_terminal if is_interactive() else _through_pipe
            return await talk(desk, client, group, where)
        finally:
            await client.aclose()

    if not run(command, broker=True):
        raise typer.Exit(1)


async def _choose(desk: Desk, agent: str | None) -> AnyRow:
    folders = await desk.db.read(agent_folders)
    known = ", ".join(folders) or "none yet (make one: longshore groups add NAME)"
    if agent is None:
        made_by_up = (name for name in (ASSISTANT, DEMO) if name in folders)
        agent = folders[0] if len(folders) == 1 else next(made_by_up, None)
    if agent is None:
        fail(f"which agent? There are: {known}", 2)
    group = await desk.db.read(lambda conn: find_agent_group(conn, agent))
    if group is None:
        fail(f"there is no agent {agent!r}; there are: {known}")
    return group


async def _through_pipe(desk: Desk, client: redis.asyncio.Redis, group: AnyRow, place: str) -> bool:
    """One message per line, each answered (or asking back) before the next is sent."""
    printer = ChatPrinter(out)
    well = True
    conversation, events = await _begin(desk, client, group, place, printer)
    try:
        async for line in piped_lines(sys.stdin.fileno()):
            try:
                match line.split():
                    case []:
                        continue
                    case ["/quit" | "/exit"]:
                        break
                    case ["/help"]:
                        printer.note(_HELP)
                    case ["/new"]:
                        await events.aclose()
                        conversation, events = await _begin(desk, client, group, fresh_place(), printer)
                    case ["/stop"]:
                        printer.note(shown(await conversation.stop()))
                    case ["/approve" | "/deny" as word, *code]:
                        printer.note(shown(await conversation.decide(word == "/approve", " ".join(code))))
                        well &= await _until_it_rests(events)
                    case _:
                        printer.echo(line.strip())
                        well &= await _exchange(conversation, events, line.strip())
            except RefusedError as error:
                printer.note(f"[red]{shown(error)}[/red]")
                well = False
    finally:
        await events.aclose()
        printer.close()
    return well


async def _exchange(conversation: Conversation, events: AsyncGenerator[Envelope, None], text: str) -> bool:
    accepted = await conversation.say(text)
    async for item in events:
        if await conversation.is_over(accepted, item):
            return cast(TurnEnded, item.event).status in ("completed", "parked")
    return False


async def _until_it_rests(events: AsyncGenerator[Envelope, None]) -> bool:
    """After a decision the turn goes on by itself."""
    async for item in events:
        if isinstance(item.event, TurnEnded) and item.event.status in ENDS:
            return item.event.status in ("completed", "parked")
    return False


async def _begin(
    desk: Desk, client: redis.asyncio.Redis, group: AnyRow, place: str, printer: ChatPrinter
) -> tuple[Conversation, AsyncGenerator[Envelope, None]]:
    conversation = Conversation(desk, client, group, place, printer)
    await conversation.open()
    return conversation, conversation.events()


async def _at_terminal(desk: Desk, client: redis.asyncio.Redis, group: AnyRow, place: str) -> bool:
    terminal = Terminal(desk.settings.home / HISTORY_FILE, sys.stdin.fileno(), sys.stdout)
    console = Console(file=cast("object", terminal), force_terminal=True, highlight=False)  # type: ignore[arg-type]
    await _Talk(desk, client, group, terminal, ChatPrinter(console)).run(place)
    return True


class _Talk:
    """A chat at a terminal: the keyboard and the events each go their own way."""

    def __init__(
        self, desk: Desk, client: redis.asyncio.Redis, group: AnyRow, terminal: Terminal, printer: ChatPrinter
    ) -> None:
        self._desk = desk
        self._client = client
        self._group = group
        self._terminal = terminal
        self._printer = printer
        self._following: asyncio.Task[None] | None = None
        self._unanswered = False
        self._warned = False  # that the agent is still at work

    async def run(self, place: str) -> None:
        provider = self._group.provider or f"{self._desk.settings.default_provider}, the default"
        name = f"[bold]{shown(self._group.name)}[/bold] [dim]({shown(provider)})[/dim]"
        self._printer.note(f"{name} [dim]- /help helps, Ctrl-D leaves[/dim]")
        conversation = await self._open(place)
        with self._terminal.opened(self._stay):
            try:
                while (line := await self._next_line()) is not None:
                    match line.split():
                        case []:
                            continue
                        case ["/quit" | "/exit"]:
                            break
                        case ["/help"]:
                            self._printer.note(_HELP)
                        case ["/new"]:
                            await self._stop_following()
                            conversation = await self._open(fresh_place())
                            come_back = f"longshore chat {self._group.folder} --chat {conversation.place}"
                            self._printer.note(f"[dim]a new conversation; come back to it: {shown(come_back)}[/dim]")
                        case ["/stop"]:
                            await self._do(conversation.stop())
                        case ["/approve" | "/deny" as word, *code]:
                            await self._do(conversation.decide(word == "/approve", " ".join(code)))
                        case _:
                            await self._say(conversation, line.strip())
                if self._unanswered:
                    self._printer.note("[dim]your message stays, and is answered: longshore chat shows it later[/dim]")
            finally:
                await self._stop_following()
                self._printer.close()

    async def _open(self, place: str) -> Conversation:
        conversation = Conversation(self._desk, self._client, self._group, place, self._printer)
        await conversation.open()
        self._follow(conversation)
        return conversation

    def _stay(self) -> bool:
        """Whoever presses Ctrl-C while the agent works may mean its work, and not the chat."""
        stay = self._terminal.busy and not self._warned
        if stay:
            self._warned = True
            self._printer.note("[dim]still at work: /stop stops it, Ctrl-C again leaves it to itself[/dim]")
        return stay

    async def _do(self, work: Coroutine[Any, Any, str]) -> None:
        try:
            self._printer.note(f"[dim]{shown(await work)}[/dim]")
        except RefusedError as error:
            self._printer.note(f"[red]{shown(error)}[/red]")

    async def _say(self, conversation: Conversation, text: str) -> None:
        self._printer.echo(text)
        try:
            await conversation.say(text)
            self._unanswered = True
        except RefusedError as error:
            self._printer.note(f"[red]{shown(error)}[/red]")
        self._follow(conversation)

    def _follow(self, conversation: Conversation) -> None:
        if self._following is None and conversation.session_id is not None:
            self._following = asyncio.create_task(self._show_events(conversation))

    async def _show_events(self, conversation: Conversation) -> None:
        async for item in conversation.events():
            match item.event:
                case TurnStarted():
                    self._terminal.busy, self._warned = True, False
                case TurnEnded(status=status):
                    self._terminal.busy = False
                    if status in ENDS:
                        self._unanswered = False

    async def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None
        self._terminal.busy = self._unanswered = False

    async def _next_line(self) -> str | None:
        """What is typed next; whatever stops the events stops the chat."""
        typed = asyncio.create_task(self._terminal.lines.get())
        waiting = {typed, *([self._following] if self._following else [])}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._following is not None and self._following.done():
                self._following.result()
            return await typed
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                if not typed.done():
                    typed.cancel()
                    await typed
