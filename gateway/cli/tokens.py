"""`longshore tokens`: who may use the gateway's web chat and API, and as whom."""

import re
from typing import Annotated, Final

import typer
from rich.table import Table
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import BY, Desk, agent_id, fail, out, print_json, run, shown
from gateway.cli.figures import ago
from models.groups import Wiring, ensure_messaging_group, find_place, wirings_of
from models.lookup import short
from models.people import find_user, grant, remember_dm, remember_user
from models.tokens import list_tokens, new_token, put_token, revoke_token
from models.upsert import insert_ignoring
from models.web_chats import WEB
from workers.access import user_id_of
from workers.consent.strangers import let_in
from workers.house import Done, ring_for
from workers.refusals import RefusedError

_NAME: Final = re.compile(r"[\w.@+-]{1,100}")

tokens = typer.Typer(help="Tokens: who may use the gateway's web chat and API, and as whom.", no_args_is_help=True)


@tokens.command("add")
def add(
    name: Annotated[str, typer.Argument(help="the person or program; also the name of their direct chat")],
    agent: Annotated[
        str | None, typer.Option(help="make them a member of this agent, which answers in their direct chat")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Make a token, shown once. Its bearer is `web:NAME`, as which roles and memberships are given."""
    if not _NAME.fullmatch(name):
        fail("a name has 1 to 100 letters, digits and . _ - @ +", 2)
    token = new_token()

    async def command(desk: Desk) -> None:
        done = await desk.db.transact(lambda conn: add_token(conn, name, token, agent))
        if done is not None:
            ring_for(desk, done.wakes, done.deliveries)
        if as_json:
            print_json({"user": user_id_of(WEB, name), "chat": name, "token": token})
            return
        out.print(f"[bold]{token}[/bold]\nkeep it: it is not shown again. Its bearer is web:{shown(name)}")
        if agent is None:
            out.print(
                f"they may talk to no agent yet: longshore tokens add {shown(name)} --agent AGENT, or grant a role"
            )

    run(command)


async def add_token(conn: AsyncConnection, name: str, token: str, agent: str | None) -> Done | None:
    """Whoever has it is `web:NAME`, whose direct chat is NAME. Returns what to ring for, if an agent lets them in."""
    user_id = user_id_of(WEB, name)
    if await find_place(conn, WEB, name) is not None and await find_user(conn, user_id) is None:
        # Whoever had that name could read all that was said there.
        raise RefusedError(
            f"there is a chat {name!r} of several people: choose another name. (A person's own chat is made with their "
            "token and wired by --agent, not beforehand by `longshore wire`.)"
        )
    group_id = await agent_id(conn, agent) if agent is not None else None
    await remember_user(conn, user_id, WEB, name)
    place = await ensure_messaging_group(conn, WEB, name)
    await remember_dm(conn, user_id, WEB, place)
    await put_token(conn, token, user_id, name)
    if group_id is None:
        return None
    await grant(conn, user_id, "member", group_id, BY)
    if not await wirings_of(conn, WEB, name):
        await insert_ignoring(conn, Wiring, messaging_group_id=place, agent_group_id=group_id)
    return await let_in(conn, user_id, group_id, BY)


@tokens.command("list")
def list_all(as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """List all tokens there ever were; none can be shown again."""

    async def command(desk: Desk) -> None:
        rows = await desk.db.read(list_tokens)
        if as_json:
            print_json([dict(row._mapping) for row in rows])
        elif not rows:
            out.print("there are no tokens: [bold]longshore tokens add NAME[/bold]")
        else:
            table = Table("id", "bearer", "made", "", box=None, header_style="dim")
            for row in rows:
                state = f"[red]revoked {ago(row.revoked_at)}[/red]" if row.revoked_at else ""
                table.add_row(short(row.id), shown(row.user_id), ago(row.created_at), state)
            out.print(table)

    run(command)


@tokens.command("revoke")
def revoke(token: Annotated[str, typer.Argument(help="the token's id (its end is enough)")]) -> None:
    """Make a token useless, at once."""

    async def command(desk: Desk) -> None:
        found = [row for row in await desk.db.read(list_tokens) if row.id.endswith(token)]
        if len(found) != 1:
            fail(f"{'several ids end' if found else 'no id ends'} with {token!r}; see: longshore tokens list")
        if not await desk.db.transact(lambda conn: revoke_token(conn, found[0].id)):
            fail("it was revoked before")
        out.print(f"revoked: a token of {shown(found[0].user_id)}")

    run(command)
