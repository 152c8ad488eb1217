"""`longshore token` and `longshore console`: who may use the API, the web chat and the console, and as whom."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer
from rich.table import Table

from gateway.cli.desk import BY, AsJson, Desk, fail, out, print_done, print_json, run, shown
from gateway.cli.gateway import PORT
from gateway.figures import ago, until
from models.lookup import short
from models.sign_ins import LINK_SECONDS, new_secret
from models.tokens import DEFAULT_SCOPES, SCOPES, Scope, list_tokens, new_token
from models.web_chats import WEB
from workers.access import user_id_of
from workers.house import ring_for
from workers.operations import tokens as operations
from workers.operations.people import Role
from workers.operations.sign_ins import send_out

_NAME: Final = re.compile(r"[\w.@+-]{1,100}")
OPERATOR: Final = "operator"  # who sits at this machine, in the console

token = typer.Typer(
    help="Tokens: who may use the API, the web chat and the console, and as whom.", no_args_is_help=True
)


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        fail("a name has 1 to 100 letters, digits and . _ - @ +", 2)


def _scopes(given: list[str]) -> tuple[Scope, ...]:
    if not given:
        return DEFAULT_SCOPES
    if "all" in given:
        return tuple(SCOPES)
    for name in given:
        if name not in SCOPES:
            known = "; ".join(f"{scope}: {meaning}" for scope, meaning in SCOPES.items())
            fail(f"there is no scope {name!r}. There are: {known}; or all", 2)
    return tuple(scope for scope in SCOPES if scope in given)


@token.command("add")
def add(
    name: Annotated[str, typer.Argument(help="the person or program; also the name of their direct chat")],
    agent: Annotated[str | None, typer.Option(help="the agent they have to do with; it answers in their chat")] = None,
    role: Annotated[
        Role, typer.Option(help="what they become: a member of the agent, its admin (of all without one), an owner")
    ] = "member",
    scope: Annotated[
        list[str] | None, typer.Option(help=f"what it is for: {', '.join(SCOPES)}, or all; give several")
    ] = None,
    days: Annotated[
        int | None, typer.Option(min=1, max=36_500, help="it is good for so long; else until revoked")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token, shown once. Its bearer is `web:NAME`; it may do what its scopes say, as far as they may."""
    _check(name)
    scopes, secret = _scopes(scope or []), new_token()
    expires_at = datetime.now(UTC) + timedelta(days=days) if days is not None else None

    async def command(desk: Desk) -> None:
        done = await desk.db.transact(
            lambda conn: operations.add_token(conn, BY, name, secret, agent, role, scopes, expires_at)
        )
        ring_for(desk, done.wakes, done.deliveries)
        if as_json:
            print_json({"user": user_id_of(WEB, name), "chat": name, "token": secret, "scopes": scopes})
            return
        out.print(f"[bold]{secret}[/bold]\nkeep it: it is not shown again. Its bearer is web:{shown(name)}")
        out.print(f"it is for: {', '.join(scopes)}" + (f", until {expires_at:%Y-%m-%d}" if expires_at else ""))
        if agent is None and role == "member":
            out.print(
                f"they may talk to no agent yet: longshore token add {shown(name)} --agent AGENT, or --role owner"
            )

    run(command)


@token.command("list")
def list_all(as_json: AsJson = False) -> None:
    """List all tokens there ever were; none can be shown again."""

    async def command(desk: Desk) -> None:
        rows = await desk.db.read(list_tokens)
        if as_json:
            print_json([dict(row._mapping) for row in rows])
        elif not rows:
            out.print("there are no tokens: [bold]longshore token add NAME[/bold]")
        else:
            table = Table("id", "bearer", "for", "made", "", box=None, header_style="dim")
            for row in rows:
                state = f"[red]revoked {ago(row.revoked_at)} ago[/red]" if row.revoked_at else _ends(row.expires_at)
                table.add_row(
                    short(row.id), shown(row.user_id), ", ".join(row.scopes), f"{ago(row.created_at)} ago", state
                )
            out.print(table)

    run(command)


def _ends(at: datetime | None) -> str:
    if at is None:
        return ""
    return f"good for {until(at)}" if at > datetime.now(UTC) else "[red]over[/red]"


@token.command("revoke")
def revoke(
    which: Annotated[str, typer.Argument(metavar="ID", help="the token's id (its end is enough)")],
    as_json: AsJson = False,
) -> None:
    """Make a token useless, at once; browsers that came in by it are out."""

    async def command(desk: Desk) -> None:
        found = [row for row in await desk.db.read(list_tokens) if row.id.endswith(which)]
        if len(found) != 1:
            fail(f"{'several ids end' if found else 'no id ends'} with {which!r}; see: longshore token list")
        [row] = found
        await desk.db.transact(lambda conn: operations.revoke(conn, BY, row.id, row.user_id))
        print_done(f"revoked: a token of {row.user_id}", as_json, id=row.id, user_id=row.user_id)

    run(command)


def console(
    name: Annotated[str, typer.Option(help="who you are in the console: the owner web:NAME")] = OPERATOR,
    url: Annotated[str | None, typer.Option(help="the gateway's address, if not of this machine")] = None,
    sign_out: Annotated[
        bool, typer.Option("--sign-out", help="instead: sign all browsers of NAME out, and make their links useless")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a link that opens the console in a browser, signed in as an owner. It works once."""
    _check(name)

    async def command(desk: Desk) -> None:
        if sign_out:
            user_id = user_id_of(WEB, name)
            browsers = await desk.db.transact(lambda conn: send_out(conn, BY, user_id))
            said = f"signed out: {browsers} browser{'s' * (browsers != 1)} of {user_id}"
            print_done(said, as_json, user_id=user_id, browsers=browsers)
            return
        address = (url or desk.settings.public_url or f"http://127.0.0.1:{PORT}").rstrip("/")
        link = await sign_in_link(desk, address, name)
        if as_json:
            print_json({"link": link, "seconds": LINK_SECONDS})
            return
        out.print(link, soft_wrap=True)
        out.print(f"[dim]works once, within {LINK_SECONDS / 60:.0f} minutes[/dim]")

    run(command)


async def sign_in_link(desk: Desk, address: str, name: str = OPERATOR) -> str:
    secret = new_secret()
    await desk.db.transact(lambda conn: operations.add_link(conn, BY, name, secret))
    return f"{address}/console/enter?code={secret}"
