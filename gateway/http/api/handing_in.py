"""Who may hand in what for whom: asked in the transaction in which a message of the API's is stored.

Inside the door a message is believed what it says: who sent it, and where the answer goes. So an admin of one agent may
neither speak for those who may do more than they, nor send the agent to places it has no business in."""

import time
from dataclasses import dataclass, replace
from typing import Final

from fastapi import HTTPException
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.http.trust import Trust
from models.audit import note
from models.groups import wirings_of
from models.sessions import find_active_session
from workers.access import NEEDED, Act, Standing, reach_of, standing_of, user_id_of
from workers.front_desk import key_of
from workers.intake import switchboard
from workers.intake.incoming import Incoming
from workers.intake.ingest import Accepted, Besides, find_inside
from workers.intake.routing import Route
from workers.intake.switchboard import Found
from workers.operations.tasks import noting_added

HOME: Final = "local"  # what is said there stays in the house


@dataclass(frozen=True)
class Known:
    """An agent that somebody may hand in messages for, in a place that is there, and what they are to it."""

    found: Found
    standing: Standing
    at: float  # by this process's clock


class Producer:
    """One who hands in one message. `find` and `besides` are for `accept`; `remember` for when it is stored: before,
    the place may be gone again. `trust`: for those who hand in many."""

    def __init__(self, user_id: str, trust: Trust[Known] | None = None) -> None:
        self._user_id = user_id
        self._trust = trust
        self._new: tuple[tuple[str, ...], Known] | None = None
        self._agent_group_id = ""

    async def find(self, conn: AsyncConnection, incoming: Incoming) -> Found:
        """HTTPException: they may not."""
        found = await self._find(conn, incoming)
        assert found.route is not None
        self._agent_group_id = found.route.agent_group_id
        return found

    def besides(self, incoming: Incoming) -> Besides | None:
        """What is to be noted about it: that it is a task, and in whose name it speaks, if not in their own."""
        claimed = user_id_of(incoming.channel_type, incoming.sender_id) if incoming.sender_id is not None else None
        if incoming.kind != "task" and claimed in (None, self._user_id):
            return None

        async def noted(conn: AsyncConnection, stored: Accepted) -> None:
            group = self._agent_group_id
            if incoming.kind == "task":
                await noting_added(self._user_id, group)(conn, stored)
            if claimed in (None, self._user_id):
                return
            # In the house a name is the producer's own word, unless it is somebody's whom the agent knows.
            if incoming.channel_type != HOME or await standing_of(conn, claimed, group) > Standing.STRANGER:
                about = {"agent_group_id": group, "sender": claimed}
                await note(conn, self._user_id, "message.send", stored.message_id, **about)

        return noted

    async def _find(self, conn: AsyncConnection, incoming: Incoming) -> Found:
        self._new = None
        handle = incoming.agent_group
        if handle is None:
            if not (await reach_of(conn, self._user_id)).everything:
                text = "agent_group is missing: to leave the agent to the wirings is for owners and global admins"
                raise HTTPException(403, text)
            return await find_inside(conn, incoming)
        key = (self._user_id, handle, incoming.channel_type, incoming.platform_id)
        known = self._trust.get(key) if self._trust is not None else None
        if known is None:
            known = await self._ask(conn, incoming, handle)
            self._new = (key, known)
        route, agent = known.found.route, known.found.agent
        assert route is not None
        assert agent is not None
        route = replace(route, thread_id=incoming.thread_id or "")
        if known.standing < Standing.GLOBAL_ADMIN:
            await _check_claims(conn, incoming, route, agent.folder, known.standing)
        return replace(known.found, route=route)

    def remember(self) -> None:
        if self._trust is not None and self._new is not None:
            key, known = self._new
            self._trust.put(key, known, known.at)

    async def _ask(self, conn: AsyncConnection, incoming: Incoming, handle: str) -> Known:
        at = time.monotonic()
        found = await switchboard.find(conn, incoming)
        route, agent = found.route, found.agent
        standing = Standing.STRANGER
        if route is not None:
            standing = await standing_of(conn, self._user_id, route.agent_group_id)
        if agent is None or standing is Standing.STRANGER:
            raise HTTPException(404, f"agent_group: there is no agent {handle!r}, or it is none of yours")
        if standing < NEEDED[Act.PRODUCE]:
            text = f"to {Act.PRODUCE.value} is for the admins of {agent.folder}; talk to it in your web chat instead"
            raise HTTPException(403, text)
        return Known(found, standing, at)


def own_message_id(user_id: str, message_id: str) -> str:
    """By its id a platform's message is known again, whichever agent it was for: one that somebody else gives must not
    be taken for it, or what the platform says would be passed over."""
    return key_of("handed in", user_id, message_id)


async def _check_claims(
    conn: AsyncConnection, incoming: Incoming, route: Route, folder: str, standing: Standing
) -> None:
    if incoming.sender_id is not None:
        sender = user_id_of(incoming.channel_type, incoming.sender_id)
        if await standing_of(conn, sender, route.agent_group_id) > standing:
            raise HTTPException(403, f"sender_id: {sender} may do more than you: you cannot speak for them")
    if incoming.channel_type != HOME and not await _belongs_there(conn, incoming, route):
        place = f"{incoming.channel_type} {incoming.platform_id}"
        text = f"platform_id: {folder} is not wired to {place!r}; an owner can do it: longshore wire {folder} {place}"
        raise HTTPException(403, text)


async def _belongs_there(conn: AsyncConnection, incoming: Incoming, route: Route) -> bool:
    """Whether an agent listens in a place, or is in that conversation already."""
    wirings = await wirings_of(conn, incoming.channel_type, incoming.platform_id)
    if any(row.agent_group_id == route.agent_group_id for row in wirings):
        return True
    key = (route.agent_group_id, route.messaging_group_id, route.thread_id)
    return await find_active_session(conn, *key) is not None
