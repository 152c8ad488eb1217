"""`longshore people`: who may do what, and one-time codes for those who are to become somebody.

A person is known as the platform knows them: telegram:123456."""

from typing import Annotated, Any

import typer
from rich.table import Table
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import BY, AsJson, Desk, check_name, data_of, fail, out, print_done, print_json, run, shown
from gateway.figures import ago
from models.people import dms_of, find_user, standings
from workers.access import MAX_ID
from workers.operations.people import Role, add_person, invite_person, remove_person

people = typer.Typer(help="People: owners, admins and members, by their ids on platforms.", no_args_is_help=True)


@people.command("list")
def list_people(
    as_json: AsJson = False,
) -> None:
    """List everybody who is somebody."""

    async def command(desk: Desk) -> None:
        rows = await desk.db.read(standings)
        if as_json:
            print_json([data_of(row._mapping) for row in rows])
        elif not rows:
            out.print("nobody is known yet. The first owner: [bold]longshore owners invite[/bold]")
        else:
            table = Table("person", "name", "is", "of", "since", "by", box=None, header_style="dim")
            for row in rows:
                of, name = shown(row.folder or "all agents"), shown(row.display_name or "-")
                table.add_row(shown(row.user_id), name, row.role, of, ago(row.since), shown(row.by or "-"))
            out.print(table)

    run(command)


@people.command("show")
def show(
    user: Annotated[str, typer.Argument(help="e.g. telegram:123456")],
    as_json: AsJson = False,
) -> None:
    """Show one person: roles, memberships, and where they are told things."""
    check_name("the person", user)

    async def command(desk: Desk) -> None:
        async def look(conn: AsyncConnection) -> tuple[Any, list[Any], list[Any]]:
            return await find_user(conn, user), await standings(conn, user), await dms_of(conn, user)

        found, roles, chats = await desk.db.read(look)
        if found is None:
            fail(f"{user} is not known; add them: longshore people add {user} --agent AGENT")
        if as_json:
            facts = {"roles": roles, "chats": chats}
            told = {name: [data_of(row._mapping) for row in rows] for name, rows in facts.items()}
            print_json(data_of(found._mapping) | told)
            return
        out.print(f"[bold]{shown(found.id)}[/bold] {shown(found.display_name or '')}")
        for row in roles:
            out.print(f"{row.role} of {shown(row.folder or 'all agents')}, for {ago(row.since)}")
        if not roles:
            out.print("a stranger to all agents")
        for chat in chats:
            out.print(f"is told things on {shown(chat.channel_type)} {shown(chat.platform_id)}")

    run(command)


@people.command("add")
def add(
    user: Annotated[str, typer.Argument(help="e.g. telegram:123456")],
    role: Annotated[Role, typer.Option(help="what they become")] = "member",
    agent: Annotated[str | None, typer.Option(help="of which agent; an admin without one is of all")] = None,
    as_json: AsJson = False,
) -> None:
    """Make somebody an owner, an admin or a member. What they wrote while they waited goes on."""
    _check(role, agent)

    async def command(desk: Desk) -> None:
        channel, _, sender = check_name("the person", user, MAX_ID).partition(":")
        if not sender.strip():
            fail(f"{user!r} is not a person: write the platform and the id, telegram:123456", 2)
        await add_person(desk, BY, channel, sender, role, agent)
        words = f"{user} is {_a(role)} of {agent or 'all agents'}"
        print_done(words, as_json, user_id=user, role=role, agent=agent)

    run(command)


@people.command("remove")
def remove(
    user: Annotated[str, typer.Argument(help="e.g. telegram:123456")],
    role: Annotated[Role | None, typer.Option(help="only this role")] = None,
    agent: Annotated[str | None, typer.Option(help="only for this agent")] = None,
    as_json: AsJson = False,
) -> None:
    """Take roles and memberships away: all of them, or some."""
    check_name("the person", user)

    async def command(desk: Desk) -> None:
        if not await remove_person(desk, BY, user, role, agent):
            fail(f"{user} is none of that; see: longshore people list")
        words = f"{user} is no longer {_a(role) if role else 'anything'} of {agent or 'any agent'}"
        print_done(words, as_json, user_id=user, role=role, agent=agent)

    run(command)


@people.command("invite")
def invite(
    role: Annotated[Role, typer.Option(help="what whoever writes the code becomes")],
    agent: Annotated[str | None, typer.Option(help="of which agent; an admin without one is of all")] = None,
    minutes: Annotated[int, typer.Option(min=1, max=10_080, help="how long the code is good")] = 60,
    as_json: AsJson = False,
) -> None:
    """Print a one-time code. Whoever writes it to the bot in a direct chat becomes what it says."""
    _check(role, agent)
    run(lambda desk: print_code(desk, role, agent, minutes, as_json=as_json))


async def print_code(desk: Desk, role: Role, agent: str | None, minutes: int, *, as_json: bool) -> None:
    code = await invite_person(desk, BY, role, agent, minutes)
    if as_json:
        print_json({"code": code, "role": role, "agent": agent, "minutes": minutes})
        return
    out.print(f"[bold]{code}[/bold]")
    who = f"{_a(role)} of {shown(agent or 'all agents')}"
    out.print(f"Whoever writes this to the bot in a direct chat within {minutes} min becomes {who}. Once.")
    out.print("It is not shown again: only its hash is kept.")


def _check(role: Role, agent: str | None) -> None:
    if role == "owner" and agent is not None:
        fail("owners are owners of everything: leave --agent out, or make an admin of that agent", 2)
    if role == "member" and agent is None:
        fail("a member is a member of one agent: name it with --agent", 2)


def _a(role: str) -> str:
    return f"a{'' if role == 'member' else 'n'} {role}"
