"""`longshore owners`: who is told when something is given up, and where."""

from typing import Annotated

import typer
from rich.table import Table
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import BY, AsJson, Desk, check_name, out, print_done, print_json, run, shown
from gateway.cli.people import print_code
from models.groups import MessagingGroup
from models.people import UserDm, UserRole
from workers.operations.people import add_person

owners = typer.Typer(
    help="Owners: who may do everything, and is told when a message is given up.", no_args_is_help=True
)


@owners.command("invite")
def invite(
    minutes: Annotated[int, typer.Option(min=1, max=10_080, help="how long the code is good")] = 60,
    as_json: AsJson = False,
) -> None:
    """Print a one-time code that makes an owner of whoever writes it to the bot in a direct chat."""
    run(lambda desk: print_code(desk, "owner", None, minutes, as_json=as_json))


@owners.command("add")
def add(
    channel: Annotated[str, typer.Argument(help="the platform, e.g. webhook")],
    user: Annotated[str, typer.Argument(help="the person's id on it")],
    chat: Annotated[
        str,
        typer.Argument(
            help="the place on it where they read: a direct chat, an endpoint; "
            "if it begins with a dash, put -- before the names"
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Make somebody an owner, and say where to tell them things."""
    for what, name in (("the platform", channel), ("the person", f"{channel}:{user}"), ("the place", chat)):
        check_name(what, name)
    check_name("the person's id", user)

    async def command(desk: Desk) -> None:
        await add_person(desk, BY, channel, user, "owner", chat=chat)
        place = {"channel_type": channel, "platform_id": chat}
        words = f"{user} is an owner, and is told on {channel} {chat}"
        print_done(words, as_json, user_id=f"{channel}:{user}", **place)

    run(command)


@owners.command("list")
def list_owners(
    as_json: AsJson = False,
) -> None:
    """List owners and where they are told things."""

    async def command(desk: Desk) -> None:
        query = (
            select(UserRole.user_id, MessagingGroup.channel_type, MessagingGroup.platform_id)
            .outerjoin(UserDm, UserDm.user_id == UserRole.user_id)
            .outerjoin(MessagingGroup, MessagingGroup.id == UserDm.messaging_group_id)
            .where(UserRole.role == "owner")
            .order_by(UserRole.user_id)
        )

        async def work(conn: AsyncConnection) -> list[dict[str, str | None]]:
            return [dict(row._mapping) for row in (await conn.execute(query)).all()]

        rows = await desk.db.read(work)
        if as_json:
            print_json(rows)
        elif not rows:
            out.print("nobody is told when a message is given up: [bold]longshore owners add CHANNEL USER CHAT[/bold]")
        else:
            table = Table("owner", "told on", box=None, header_style="dim")
            for row in rows:
                told = f"{row['channel_type']} {row['platform_id']}" if row["channel_type"] else "no chat yet"
                table.add_row(shown(row["user_id"]), shown(told))
            out.print(table)

    run(command)
