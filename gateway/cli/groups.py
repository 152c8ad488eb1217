"""`longshore groups` and `longshore wire`: agents, and where they listen."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table
from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import Desk, fail, out, print_json, run, shown
from models.groups import AgentGroup, Wiring, ensure_messaging_group, find_agent_group
from models.upsert import insert_or_update

groups = typer.Typer(help="Agents: their folder, provider and model.", no_args_is_help=True)


@groups.command("list")
def list_groups(as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """List agents."""

    async def command(desk: Desk) -> None:
        query = select(AgentGroup.__table__).order_by(AgentGroup.folder)
        rows = await desk.db.read(lambda conn: _all(conn, query))
        if as_json:
            print_json([dict(row._mapping) for row in rows])
            return
        table = Table(box=None, header_style="dim")
        for name in ("folder", "name", "provider", "model"):
            table.add_column(name)
        for row in rows:
            provider = row.provider or f"{desk.settings.default_provider} [dim](default)[/dim]"
            table.add_row(shown(row.folder), shown(row.name), provider, row.model or "-")
        out.print(table)

    run(command)


@groups.command("add")
def add(
    folder: Annotated[str, typer.Argument(help="the name people type, and the folder's name")],
    name: Annotated[str | None, typer.Option(help="a name to show")] = None,
    provider: Annotated[str | None, typer.Option(help="else DEFAULT_PROVIDER")] = None,
    model: Annotated[str | None, typer.Option(help="else DEFAULT_MODEL, else the provider's own")] = None,
    script: Annotated[Path | None, typer.Option(help="for the scripted provider: a script file", exists=True)] = None,
) -> None:
    """Make an agent."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,99}", folder):
        fail(f"{folder!r} cannot be a folder: use small letters, digits, - and _", 2)

    async def command(desk: Desk) -> None:
        options = {"script": script.read_text()} if script is not None else {}
        chosen = provider or desk.settings.default_provider
        desk.registry.providers.get(chosen).check(options)
        if await desk.db.read(lambda conn: find_agent_group(conn, folder)) is not None:
            fail(f"there is already an agent {folder!r}")
        values = {"folder": folder, "name": name or folder, "provider": provider, "model": model}
        config = {"provider_options": options} if options else {}
        await desk.db.transact(lambda conn: conn.execute(insert(AgentGroup).values(config=config, **values)))
        out.print(f'made. Talk to it: [bold]longshore send {folder} "hello"[/bold]')

    run(command)


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
            }
            key = ["messaging_group_id", "agent_group_id"]
            await insert_or_update(conn, Wiring, key, **values)

        await desk.db.transact(work)
        out.print(f"{shown(agent)} listens on {shown(channel)} {shown(chat)}")

    run(command)


async def _all(conn: AsyncConnection, query: Any) -> list[Any]:
    return list((await conn.execute(query)).all())
