"""`longshore wire`: where an agent listens."""

import re
from typing import Annotated, Any, Literal

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import Desk, FollowUp, fail, out, run, shown
from models.groups import Wiring, ensure_messaging_group, find_agent_group
from models.upsert import insert_or_update


def wire(
    agent: Annotated[str, typer.Argument(help="the agent group")],
    channel: Annotated[str, typer.Argument(help="the platform, e.g. webhook")],
    chat: Annotated[str, typer.Argument(help="the place on it")],
    pattern: Annotated[str | None, typer.Option(help="answer only what matches this regular expression")] = None,
    mention_only: Annotated[bool, typer.Option(help="answer only when mentioned")] = False,
    scope: Annotated[
        Literal["all", "triggered", "allowlisted"], typer.Option(help="what else reaches the agent")
    ] = "all",
    per_thread: Annotated[bool, typer.Option(help="a session for each thread")] = False,
    follow_up: Annotated[
        FollowUp,
        typer.Option(help="a message to an agent at work joins it, interrupts it, waits, or is refused"),
    ] = "enqueue",
    priority: Annotated[int, typer.Option(help="higher is asked first")] = 0,
) -> None:
    """Let an agent listen in a place."""
    rules: dict[str, Any] = {}
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            fail(f"--pattern {pattern!r} is not a regular expression: {error}", 2)
        rules["pattern"] = pattern
    if mention_only:
        rules["mentionOnly"] = True

    async def command(desk: Desk) -> None:
        desk.registry.channels.get(channel)

        async def work(conn: AsyncConnection) -> None:
            group = await find_agent_group(conn, agent)
            if group is None:
                fail(f"there is no agent {agent!r}; see: longshore groups list")
            values = {
                "messaging_group_id": await ensure_messaging_group(conn, channel, chat),
                "agent_group_id": group.id,
                "trigger_rules": rules,
                "response_scope": scope,
                "session_mode": "per-thread" if per_thread else "shared",
                "priority": priority,
                "follow_up": follow_up,
            }
            key = ["messaging_group_id", "agent_group_id"]
            await insert_or_update(conn, Wiring, key, **values)

        await desk.db.transact(work)
        out.print(f"{shown(agent)} listens on {shown(channel)} {shown(chat)}")

    run(command)
