"""Who may come in over HTTP: making the person a token speaks for, tokens themselves, and links that sign a browser in.

The secret is made by whoever shows it, once; here it passes through, and only its hash is kept."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from models.audit import note
from models.groups import Wiring, ensure_messaging_group, find_place, wirings_of
from models.people import find_user, grant, remember_dm, remember_user
from models.sign_ins import put_link
from models.tokens import DEFAULT_SCOPES, SCOPES, Scope, put_token, revoke_token
from models.upsert import insert_ignoring
from models.web_chats import WEB
from workers.access import user_id_of
from workers.consent.strangers import let_in
from workers.house import Done
from workers.operations.agents import agent_named
from workers.operations.people import Role
from workers.refusals import RefusedError


async def add_token(
    conn: AsyncConnection,
    by: str,
    name: str,
    token: str,
    agent: str | None = None,
    role: Role = "member",
    scopes: Collection[Scope] = DEFAULT_SCOPES,
    expires_at: datetime | None = None,
) -> Done:
    """Whoever has it is `web:NAME`, whose direct chat is NAME. With an agent, they become what `role` says to it, and
    it answers in that chat; an owner is one of all agents, and so is an admin without one."""
    group_id = str((await agent_named(conn, agent)).id) if agent is not None else None
    user_id = await _person(conn, name)
    await put_token(conn, token, user_id, name, scopes, expires_at)
    await note(conn, by, "token.add", user_id, agent_group_id=group_id, role=role, scopes=sorted(scopes))
    if group_id is None and role == "member":
        return Done("they may talk to no agent yet")
    await grant(conn, user_id, role, None if role == "owner" else group_id, by)
    if group_id is not None and not await wirings_of(conn, WEB, name):
        place = await ensure_messaging_group(conn, WEB, name)
        await insert_ignoring(conn, Wiring, messaging_group_id=place, agent_group_id=group_id)
    return await let_in(conn, user_id, None if role == "owner" else group_id, by)


async def add_link(conn: AsyncConnection, by: str, name: str, secret: str) -> None:
    """A link that signs one browser in as the owner `web:NAME`, once. For whoever can reach the database anyway."""
    user_id = await _person(conn, name)
    await grant(conn, user_id, "owner", None, by)
    await put_link(conn, secret, user_id, SCOPES)
    await note(conn, by, "token.link", user_id)


async def revoke(conn: AsyncConnection, by: str, token_id: str, user_id: str) -> None:
    if not await revoke_token(conn, token_id):
        raise RefusedError("it was revoked before")
    await note(conn, by, "token.revoke", user_id, token=token_id)


async def _person(conn: AsyncConnection, name: str) -> str:
    user_id = user_id_of(WEB, name)
    if await find_place(conn, WEB, name) is not None and await find_user(conn, user_id) is None:
        # Whoever had that name could read all that was said there.
        raise RefusedError(
            f"there is a chat {name!r} of several people: choose another name. (A person's own chat is made with their "
            "token and wired by --agent, not beforehand by `longshore wire`.)"
        )
    await remember_user(conn, user_id, WEB, name)
    await remember_dm(conn, user_id, WEB, await ensure_messaging_group(conn, WEB, name))
    return user_id
