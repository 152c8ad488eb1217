"""Who calls: a bearer token of `longshore tokens add`, and the chats of the `web` channel its user may look into."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from fastapi import HTTPException, Request
from sqlalchemy.ext.asyncio import AsyncConnection

from models.groups import find_agent_group, wirings_of
from models.people import find_user
from models.tokens import user_of_token
from models.web_chats import WEB
from workers.access import Act, may, user_id_of
from workers.front_desk import FOLDER as FRONT_DESK
from workers.house import House

_SCHEME: Final = "bearer "
NO_SUCH_CHAT: Final = "there is no such chat, or it is not one of yours"


@dataclass(frozen=True)
class Caller:
    user_id: str
    token: str

    @property
    def name(self) -> str:
        """As the `web` channel knows them; also the name of their direct chat."""
        return self.user_id.removeprefix(f"{WEB}:")


@dataclass(frozen=True)
class Room:
    """What of a chat somebody may see: everything in their own, else what these agents say."""

    chat: str
    agent_groups: frozenset[str] | None


def caller_of(house: House) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency of routes: who calls, or 401."""

    async def dependency(request: Request) -> Caller:
        given = request.headers.get("authorization", "")
        token = given[len(_SCHEME) :].strip() if given.lower().startswith(_SCHEME) else ""
        user_id = await house.db.read(lambda conn: user_of_token(conn, token)) if token else None
        if user_id is None:
            text = "a valid token is needed (Authorization: Bearer ...); make one: longshore tokens add NAME"
            raise HTTPException(401, text, {"WWW-Authenticate": "Bearer"})
        return Caller(user_id, token)

    return dependency


async def room_of(conn: AsyncConnection, caller: Caller, chat: str) -> Room | None:
    """None: there is no such chat, or nothing of it is for them."""
    if chat == caller.name:
        return Room(chat, None)
    if await is_somebody_elses(conn, caller, chat):
        return None
    wired = {row.agent_group_id for row in await wirings_of(conn, WEB, chat)}
    open_ones = {group for group in wired if await may(conn, caller.user_id, group, Act.TALK)}
    if not open_ones:
        return None
    desk = await find_agent_group(conn, FRONT_DESK)
    return Room(chat, frozenset(open_ones | ({desk.id} if desk else set())))


async def is_somebody_elses(conn: AsyncConnection, caller: Caller, chat: str) -> bool:
    """Whether it is the direct chat of another person."""
    return chat != caller.name and await find_user(conn, user_id_of(WEB, chat)) is not None
