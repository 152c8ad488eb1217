"""`longshore wire`, `wirings` and `unwire`: where agents listen, to what, and what becomes of strangers there."""

from typing import Annotated, Any, Final, Literal

import typer
from rich.table import Table
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import Desk, FollowUp, agent_id, check_name, fail, out, print_json, run, shown
from models.base import AnyRow
from models.groups import (
    Wiring,
    all_wirings,
    ensure_messaging_group,
    find_agent_group,
    find_place,
    remove_wiring,
    set_place,
)
from models.upsert import insert_or_update
from workers.intake.patterns import find_fault

Policy = Literal["strict", "request_approval", "public"]
MAX_PRIORITY: Final = 1_000_000
CHAT_HELP: Final = "the place on it; if it begins with a dash, put -- before the names"
_AT_WORK: Final = {
    "interrupt": "is interrupted by more",
    "separate": "takes more one by one",
    "reject": "refuses more while at work",
}


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
    scope: Annotated[
        Literal["all", "triggered", "allowlisted"], typer.Option(help="what else reaches the agent")
    ] = "all",
    per_thread: Annotated[bool, typer.Option(help="a session for each thread")] = False,
    follow_up: Annotated[
        FollowUp,
        typer.Option(help="a message to an agent at work joins it, interrupts it, waits, or is refused"),
    ] = "enqueue",
    priority: Annotated[int, typer.Option(min=-MAX_PRIORITY, max=MAX_PRIORITY, help="higher is asked first")] = 0,
    unknown: Annotated[
        Policy | None,
        typer.Option(help="strangers there are turned away, asked about, or heard; a new place is strict"),
    ] = None,
) -> None:
    """Let an agent listen in a place. Wired again, it listens as said the last time."""
    check_name("the platform", channel, 50)
    check_name("the place", chat)
    rules = _rules(channel, pattern, mention_only, include_sender or [], exclude_sender or [], sticky)
    if scope == "allowlisted" and "includeSenders" not in rules:
        fail("--scope allowlisted hears only those named with --include-sender: name somebody", 2)

    how = {
        "trigger_rules": rules,
        "response_scope": scope,
        "session_mode": "per-thread" if per_thread else "shared",
        "priority": priority,
        "follow_up": follow_up,
    }

    async def command(desk: Desk) -> None:
        desk.registry.channels.get(channel)
        await desk.db.transact(lambda conn: _wire(conn, agent, channel, chat, how, unknown))
        out.print(f"{shown(agent)} listens on {shown(channel)} {shown(chat)}")

    run(command)


async def _wire(
    conn: AsyncConnection, agent: str, channel: str, chat: str, how: dict[str, Any], unknown: Policy | None
) -> None:
    group_id = await agent_id(conn, agent)
    place = await ensure_messaging_group(conn, channel, chat)
    key = {"messaging_group_id": place, "agent_group_id": group_id}
    await insert_or_update(conn, Wiring, list(key), **key, **how)
    if unknown is not None:
        await set_place(conn, place, unknown_sender_policy=unknown)


def _rules(
    channel: str,
    pattern: str | None,
    mention_only: bool,
    include: list[str],
    exclude: list[str],
    sticky: bool | None,
) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    if pattern is not None:
        if (fault := find_fault(pattern)) is not None:
            fail(f"--pattern {pattern!r} {fault}", 2)
        rules["pattern"] = check_name("--pattern", pattern)
    if mention_only:
        rules["mentionOnly"] = True
    # People are named telegram:123 elsewhere.
    for rule, senders in (("includeSenders", include), ("excludeSenders", exclude)):
        if senders:
            rules[rule] = [check_name("a sender", sender.removeprefix(f"{channel}:")) for sender in senders]
    both = sorted({*rules.get("includeSenders", ())} & {*rules.get("excludeSenders", ())})
    if both:
        fail(f"{', '.join(both)} cannot be both included and excluded", 2)
    if mention_only if sticky is None else sticky:
        rules["sticky"] = True
    return rules


def unwire(
    agent: Annotated[str, typer.Argument(help="the agent group")],
    channel: Annotated[str, typer.Argument(help="the platform")],
    chat: Annotated[str, typer.Argument(help=CHAT_HELP)],
) -> None:
    """Let an agent listen in a place no more. What was said there stays."""

    check_name("the place", chat)

    async def command(desk: Desk) -> None:
        async def work(conn: AsyncConnection) -> bool:
            group, place = await find_agent_group(conn, agent), await find_place(conn, channel, chat)
            return group is not None and place is not None and await remove_wiring(conn, place.id, group.id)

        if not await desk.db.transact(work):
            fail(f"{agent} does not listen on {channel} {chat!r}; see: longshore wirings")
        out.print(f"{shown(agent)} no longer listens on {shown(channel)} {shown(chat)}")

    run(command)


def wirings(as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """List where agents listen, in the order in which they are asked."""

    async def command(desk: Desk) -> None:
        rows = await desk.db.read(all_wirings)
        if as_json:
            print_json([dict(row._mapping) for row in rows])
        elif not rows:
            out.print("no agent listens anywhere: [bold]longshore wire AGENT CHANNEL CHAT[/bold]")
        else:
            table = Table(box=None, header_style="dim")
            for title in ("where", "strangers", "agent", "priority", "answers", "sessions"):
                table.add_column(title, no_wrap=title == "strangers")
            for row in rows:
                where = shown(f"{row.channel_type} {row.platform_id}")
                mode = {"shared": "one", "per-thread": "per thread"}[row.session_mode]
                cells = (where, row.unknown_sender_policy, shown(row.folder), str(row.priority), _answers(row), mode)
                table.add_row(*cells)
            out.print(table)

    run(command)


def _answers(row: AnyRow) -> str:
    rules, triggered = row.trigger_rules or {}, row.response_scope == "triggered"
    words = [f"what matches {rules['pattern']!r}"] if rules.get("pattern") else []
    words += ["mentions"] if rules.get("mentionOnly") else []
    words += [f"only {', '.join(map(str, rules['includeSenders']))}"] if rules.get("includeSenders") else []
    words = words or ["mentions" if triggered else "everything"]
    words += [f"not {', '.join(map(str, rules['excludeSenders']))}"] if rules.get("excludeSenders") else []
    words += ["follows threads"] if rules.get("sticky") else []
    words += ["overhears the rest"] if triggered else []
    words += [_AT_WORK[row.follow_up]] if row.follow_up in _AT_WORK else []
    return shown("; ".join(words))
