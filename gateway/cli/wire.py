"""`longshore wire`, `wirings` and `unwire`: where agents listen, to what, and what becomes of strangers there."""

from collections.abc import Callable
from typing import Annotated, Final

import typer
from rich.table import Table

from gateway.cli.desk import BY, AsJson, Desk, data_of, fail, out, print_done, print_json, run, shown
from gateway.wiring_words import wiring_words
from models.groups import all_wirings
from workers.operations.wirings import (
    MAX_PRIORITY,
    FollowUp,
    Listening,
    ResponseScope,
    Strangers,
    check_place,
    put_wiring,
)
from workers.operations.wirings import unwire as remove
from workers.refusals import RefusedError

CHAT_HELP: Final = "the place on it; if it begins with a dash, put -- before the names"


def wire(
    agent: Annotated[str, typer.Argument(help="the agent group")],
    channel: Annotated[str, typer.Argument(help="the platform, e.g. webhook")],
    chat: Annotated[str, typer.Argument(help=CHAT_HELP)],
    pattern: Annotated[str | None, typer.Option(help="answer only what matches this regular expression")] = None,
    mention_only: Annotated[bool, typer.Option(help="answer only when mentioned")] = False,
    include_sender: Annotated[
        list[str] | None, typer.Option(help="answer only this sender, by the platform's id; may be repeated")
    ] = None,
    exclude_sender: Annotated[list[str] | None, typer.Option(help="never hear this sender; may be repeated")] = None,
    sticky: Annotated[
        bool | None,
        typer.Option(
            "--sticky/--no-sticky", help="once called in a thread, follow it; the default with --mention-only"
        ),
    ] = None,
    scope: Annotated[ResponseScope, typer.Option(help="what else reaches the agent")] = "all",
    per_thread: Annotated[bool, typer.Option(help="a session for each thread")] = False,
    follow_up: Annotated[
        FollowUp,
        typer.Option(help="a message to an agent at work joins it, interrupts it, waits, or is refused"),
    ] = "enqueue",
    priority: Annotated[int, typer.Option(min=-MAX_PRIORITY, max=MAX_PRIORITY, help="higher is asked first")] = 0,
    unknown: Annotated[
        Strangers | None,
        typer.Option(help="strangers there are turned away, asked about, or heard; a new place is strict"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let an agent listen in a place. Wired again, it listens as said the last time."""
    how = Listening(
        pattern=pattern,
        mention_only=mention_only,
        include_senders=tuple(include_sender or ()),
        exclude_senders=tuple(exclude_sender or ()),
        sticky=sticky,
        scope=scope,
        per_thread=per_thread,
        follow_up=follow_up,
        priority=priority,
    )
    _check(lambda: check_place(channel, chat))
    _check(lambda: how.columns(channel))

    async def command(desk: Desk) -> None:
        await put_wiring(desk, BY, agent, channel, chat, how, unknown)
        place = {"channel_type": channel, "platform_id": chat}
        print_done(f"{agent} listens on {channel} {chat}", as_json, agent=agent, **place)

    run(command)


def _check(work: Callable[[], object]) -> None:
    """What is wrong with what was typed, before anything is looked at."""
    try:
        work()
    except RefusedError as error:
        fail(str(error), 2)


def unwire(
    agent: Annotated[str, typer.Argument(help="the agent group")],
    channel: Annotated[str, typer.Argument(help="the platform")],
    chat: Annotated[str, typer.Argument(help=CHAT_HELP)],
    as_json: AsJson = False,
) -> None:
    """Let an agent listen in a place no more. What was said there stays."""

    _check(lambda: check_place(channel, chat))

    async def command(desk: Desk) -> None:
        if not await remove(desk, BY, agent, channel, chat):
            fail(f"{agent} does not listen on {channel} {chat!r}; see: longshore wirings")
        place = {"channel_type": channel, "platform_id": chat}
        print_done(f"{agent} no longer listens on {channel} {chat}", as_json, agent=agent, **place)

    run(command)


def wirings(as_json: AsJson = False) -> None:
    """List where agents listen, in the order in which they are asked."""

    async def command(desk: Desk) -> None:
        rows = await desk.db.read(all_wirings)
        if as_json:
            print_json([data_of(row._mapping) for row in rows])
        elif not rows:
            out.print("no agent listens anywhere: [bold]longshore wire AGENT CHANNEL CHAT[/bold]")
        else:
            table = Table(box=None, header_style="dim")
            for title in ("where", "strangers", "agent", "priority", "answers", "sessions"):
                table.add_column(title, no_wrap=title == "strangers")
            for row in rows:
                where = shown(f"{row.channel_type} {row.platform_id}")
                mode = {"shared": "one", "per-thread": "per thread"}[row.session_mode]
                cells = (where, row.unknown_sender_policy, shown(row.folder), str(row.priority))
                table.add_row(*cells, shown(wiring_words(row)), mode)
            out.print(table)

    run(command)
