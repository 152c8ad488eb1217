"""Who calls: a bearer token of `longshore token add`, what it may be used for, and what its user may look at.

Two questions for every route: whether the token has the scope (`needs`), and whether its user has the standing with
the agent it is about (`reach`, `may`). What is nobody's business of the caller's does not exist for them."""

import time
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, HTTPException, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.http.trust import Trust
from models.groups import find_agent_group, wirings_of
from models.people import find_user
from models.tokens import SCOPES, Bearer, Scope, find_bearer
from models.web_chats import WEB
from workers.access import Act, Reach, may, reach_of, user_id_of
from workers.front_desk import FOLDER as FRONT_DESK
from workers.house import House

NO_SUCH_CHAT: Final = "there is no such chat, or it is not one of yours"
_BEARER: Final = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token of `longshore token add`. Scopes: " + "; ".join(f"`{k}`: {v}" for k, v in SCOPES.items()),
)


@dataclass(frozen=True)
class Caller:
    user_id: str
    token: str
    scopes: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """As the `web` channel knows them; also the name of their direct chat."""
        return self.user_id.removeprefix(f"{WEB}:")

    @property
    def may_decide(self) -> bool:
        return "decide" in self.scopes

    def check(self, scope: Scope) -> None:
        """For what needs more than its route does: 403."""
        if scope not in self.scopes:
            raise _lacks(scope)


def _lacks(scope: str) -> HTTPException:
    text = f"this token is not for that: it lacks the scope {scope!r}; make one: longshore token add NAME"
    return HTTPException(403, f"{text} --scope {scope}")


def needs(scope: Scope, *, often: bool = False) -> Any:
    """A dependency of routes, shown in the OpenAPI document: who calls, or 401; 403 if the token lacks the scope.
    `often`: a token is believed for a second, and so one that was revoked works for so long."""
    return Security(_frequent_caller if often else _caller, scopes=[scope])


_Given = Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]


async def _caller(request: Request, wanted: SecurityScopes, given: _Given) -> Caller:
    token = given.credentials.strip() if given is not None else ""
    return _let_in(request, wanted, token, await request.state.door.bearer_of(token))


async def _frequent_caller(request: Request, wanted: SecurityScopes, given: _Given) -> Caller:
    token = given.credentials.strip() if given is not None else ""
    return _let_in(request, wanted, token, await request.state.door.believed_bearer_of(token))


def _let_in(request: Request, wanted: SecurityScopes, token: str, bearer: Bearer | None) -> Caller:
    if bearer is None:
        text = "a valid token is needed (Authorization: Bearer ...); make one: longshore token add NAME"
        raise HTTPException(401, text, {"WWW-Authenticate": "Bearer"})
    request.state.is_known = True  # for `rates.py`
    if missing := [scope for scope in wanted.scopes if scope not in bearer.scopes]:
        raise _lacks(missing[0])
    return Caller(bearer.user_id, token, bearer.scopes)


class Doorkeeper:
    """Made once per gateway: looks up tokens, and what their users may look at."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._trust = Trust[Bearer]()

    async def bearer_of(self, token: str) -> Bearer | None:
        return await self._house.db.read(lambda conn: find_bearer(conn, token)) if token else None

    async def believed_bearer_of(self, token: str) -> Bearer | None:
        """As it was found within the last second."""
        bearer = self._trust.get(token)
        if bearer is None and token:
            asked = time.monotonic()
            bearer = await self.bearer_of(token)
            if bearer is None:
                self._trust.forget(token)
            else:
                self._trust.put(token, bearer, asked)
        return bearer

    async def reach(self, caller: Caller) -> Reach:
        """What they may look at."""
        return await self._house.db.read(lambda conn: reach_of(conn, caller.user_id))

    async def see_fleet(self, caller: Caller) -> None:
        """For what belongs to no agent."""
        if not (await self.reach(caller)).everything:
            raise HTTPException(403, "this is for owners and global admins")

    async def still(self, caller: Caller, agent_group_id: str | None, act: Act) -> bool:
        """Whether a stream may go on: the token is good, and its user may. `None`: the whole fleet."""
        return await self._house.db.read(lambda conn: _still(conn, caller, agent_group_id, act))


async def _still(conn: AsyncConnection, caller: Caller, agent_group_id: str | None, act: Act) -> bool:
    if await find_bearer(conn, caller.token) is None:
        return False
    if agent_group_id is None:
        return (await reach_of(conn, caller.user_id)).everything
    return await may(conn, caller.user_id, agent_group_id, act)


@dataclass(frozen=True)
class Room:
    """What of a chat somebody may see: everything in their own, else what these agents say."""

    chat: str
    agent_groups: frozenset[str] | None


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
