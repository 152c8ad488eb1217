"""`longshore gateway` and `longshore listen`: the processes that let platforms in. `longshore tokens`: who may talk to
the gateway as whom."""

import asyncio
import re
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import structlog
import typer
from rich.table import Table
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.registry import Registry
from gateway.cli.desk import EX_UNAVAILABLE, Desk, fail, out, print_json, run, shown
from gateway.cli.figures import ago
from models import schema
from models.errors import DatabaseDownError, StoreError
from models.groups import Wiring, ensure_messaging_group, find_agent_group, find_place, wirings_of
from models.lookup import short
from models.people import AgentGroupMember, User, UserDm
from models.tokens import list_tokens, new_token, put_token, revoke_token
from models.upsert import insert_ignoring
from models.web_chats import WEB, is_user
from workers.intake.access import user_id_of
from workers.intake.listening import listen_to_all, listening_channels
from workers.intake.outpost import Outpost
from workers.intake.refusals import RefusedError
from workers.logs import configure_logs
from workers.runtime import Node
from workers.settings import SettingsError, load_settings, require_broker

log = structlog.get_logger()

PORT: Final = 8400
_NAME: Final = re.compile(r"[\w.@+-]{1,100}")

tokens = typer.Typer(help="Tokens: who may use the gateway's web chat and API, and as whom.", no_args_is_help=True)


def gateway(
    host: Annotated[str, typer.Option(help="where to listen; other machines come through a proxy that adds TLS")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free; the log says which")] = PORT,
    name: Annotated[
        str, typer.Option("--name", "-n", help="a second one on the same machine needs another")
    ] = "gateway",
) -> None:
    """Run the HTTP gateway: platforms' webhooks, web chat, and the API for approvals and questions."""
    # Imported here: most commands do without, and it takes a while.
    from gateway.http.app import make_app
    from gateway.http.channels import NOT_FOR_OUTSIDE
    from gateway.http.serving import listen_on, serve

    try:
        listener = listen_on(host, port)
    except OSError as error:
        fail(f"cannot listen on {host}:{port}: {error.strerror}", EX_UNAVAILABLE)

    async def work(outpost: Outpost) -> None:
        working = outpost.registry.channels.working.items()
        receiving = [channel for channel, driver in working if driver.receives and channel not in NOT_FOR_OUTSIDE]
        log.info("gateway.listens", host=host, port=listener.getsockname()[1], channels=receiving)
        await serve(make_app(outpost, outpost.redis), listener)

    with listener:
        _run_process(name, "gateway", work)


def listen(
    name: Annotated[
        str, typer.Option("--name", "-n", help="a second one on the same machine needs another")
    ] = "listen",
) -> None:
    """Listen to platforms that must be asked or held on to. Several do no harm: one is active, the others stand by."""

    async def work(outpost: Outpost) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sig, stop.set)
        if names := list(listening_channels(outpost)):
            log.info("listener.starts", names=names)
        else:
            log.info("listener.idle", meaning="no channel that must be listened to is configured", see="docs/channels")
        stopped = asyncio.create_task(stop.wait())
        listening = asyncio.create_task(listen_to_all(outpost))
        await asyncio.wait({stopped} | ({listening} if names else set()), return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, listening):
            task.cancel()
        await asyncio.gather(stopped, listening, return_exceptions=True)

    _run_process(name, "listen", work)


def _run_process(name: str, kind: str, work: Callable[[Outpost], Awaitable[None]]) -> None:
    """Like a worker: logs by the settings, a sentence and an exit code when it cannot start."""
    try:
        settings = load_settings()
        configure_logs(settings.log_level, as_json=settings.log_json)
        require_broker(settings)
        schema.check(settings.database_url)
    except DatabaseDownError as error:
        fail(str(error), EX_UNAVAILABLE)
    except (SettingsError, StoreError) as error:
        fail(str(error))
    # Imported here: making the Celery app takes a moment, and most commands do not ring.
    from workers.app import make_app
    from workers.bells import CeleryBells

    async def process() -> None:
        registry = Registry()
        bells = CeleryBells(make_app(settings, registry), settings.redis_url)
        async with Outpost(settings, bells, registry, Node(f"{name}@{socket.gethostname()}", kind)) as outpost:
            await work(outpost)

    asyncio.run(process())


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
        await desk.db.transact(lambda conn: add_token(conn, name, token, agent))
        if as_json:
            print_json({"user": user_id_of(WEB, name), "chat": name, "token": token})
            return
        out.print(f"[bold]{token}[/bold]\nkeep it: it is not shown again. Its bearer is web:{shown(name)}")
        if agent is None:
            out.print(
                f"they may talk to no agent yet: longshore tokens add {shown(name)} --agent AGENT, or grant a role"
            )

    run(command)


async def add_token(conn: AsyncConnection, name: str, token: str, agent: str | None) -> None:
    """Whoever has it is `web:NAME`, whose direct chat is NAME."""
    user_id = user_id_of(WEB, name)
    if await find_place(conn, WEB, name) is not None and not await is_user(conn, user_id):
        # Whoever had that name could read all that was said there.
        raise RefusedError(
            f"there is a chat {name!r} of several people: choose another name. (A person's own chat is made with their "
            "token and wired by --agent, not beforehand by `longshore wire`.)"
        )
    await insert_ignoring(conn, User, id=user_id, kind=WEB, display_name=name)
    place = await ensure_messaging_group(conn, WEB, name)
    await insert_ignoring(conn, UserDm, user_id=user_id, channel_type=WEB, messaging_group_id=place)
    await put_token(conn, token, user_id, name)
    if agent is None:
        return
    group = await find_agent_group(conn, agent)
    if group is None:
        raise RefusedError(f"there is no agent group {agent!r}; see: longshore groups list")
    await insert_ignoring(conn, AgentGroupMember, user_id=user_id, agent_group_id=group.id, added_by="cli")
    if not await wirings_of(conn, WEB, name):
        await insert_ignoring(conn, Wiring, messaging_group_id=place, agent_group_id=group.id)


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
