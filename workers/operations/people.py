"""What people are: making somebody an owner, an admin or a member, taking that away, and codes that do the first.

What they wrote while they were strangers goes on."""

from typing import Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from models.audit import note
from models.groups import ensure_messaging_group
from models.people import grant, remember_dm, remember_user, withdraw
from workers.access import user_id_of
from workers.consent.strangers import let_in
from workers.house import Done, House, ring
from workers.intake.codes import invite, new_code
from workers.operations.agents import agent_named
from workers.operations.names import check_name

Role = Literal["owner", "admin", "member"]


async def add_person(
    house: House, by: str, channel: str, sender: str, role: Role, agent: str | None = None, chat: str | None = None
) -> Done:
    """Of one agent, or (None) of all. `sender`: their id on the platform. `chat`: where on it they are told things;
    None: that is found out when they write."""
    user_id = check_name("the person", user_id_of(channel, sender))
    house.registry.channels.get(channel)

    async def work(conn: AsyncConnection) -> Done:
        group_id = await _agent_id(conn, agent)
        await remember_user(conn, user_id, channel, None)
        await grant(conn, user_id, role, group_id, by)
        await note(conn, by, "person.grant", user_id, agent_group_id=group_id, role=role)
        if chat is not None:
            await remember_dm(conn, user_id, channel, await ensure_messaging_group(conn, channel, chat))
        return await let_in(conn, user_id, group_id, by)

    return ring(house, await house.db.transact(work))


async def remove_person(house: House, by: str, user_id: str, role: Role | None = None, agent: str | None = None) -> int:
    """Roles and memberships: all of them, or only some. Returns how many there were."""

    async def work(conn: AsyncConnection) -> int:
        group_id = await _agent_id(conn, agent)
        if count := await withdraw(conn, user_id, role, group_id):
            await note(conn, by, "person.withdraw", user_id, agent_group_id=group_id, role=role)
        return count

    return await house.db.transact(work)


async def invite_person(house: House, by: str, role: Role, agent: str | None, minutes: int) -> str:
    """A code that is good once, and kept only as a hash. Whoever writes it in a direct chat becomes what it says."""
    code = new_code()

    async def work(conn: AsyncConnection) -> None:
        group_id = await _agent_id(conn, agent)
        await invite(conn, code, role, group_id, minutes * 60.0)
        await note(conn, by, "person.invite", role, agent_group_id=group_id, minutes=minutes)

    await house.db.transact(work)
    return code


async def _agent_id(conn: AsyncConnection, handle: str | None) -> str | None:
    return None if handle is None else str((await agent_named(conn, handle)).id)
