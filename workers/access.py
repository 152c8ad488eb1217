"""Who may do what: one table, asked before every privileged act, by the identity the platform vouches for.

People at the command line are not in it: whoever can reach the database there can do everything anyway."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from sqlalchemy import ColumnElement, select, true
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import InstrumentedAttribute

from models.base import given, values
from models.people import AgentGroupMember, UserRole

MAX_ID: Final = 255


class Standing(IntEnum):
    """What somebody is to an agent; each may do all that those before it may."""

    STRANGER = 0
    MEMBER = 1
    ADMIN = 2  # of this agent
    GLOBAL_ADMIN = 3
    OWNER = 4

    @property
    def words(self) -> str:
        """For whoever is told why not."""
        return _WORDS[self]


_WORDS: Final[Mapping[Standing, str]] = {
    Standing.STRANGER: "not known to it",
    Standing.MEMBER: "a member",
    Standing.ADMIN: "an admin",
    Standing.GLOBAL_ADMIN: "a global admin",
    Standing.OWNER: "an owner",
}


class Act(StrEnum):
    TALK = "talk to it"
    ANSWER = "answer its questions"
    STATUS = "ask what it is doing"
    CLEAR = "/clear"
    COMPACT = "/compact"
    REMOTE_CONTROL = "/remote-control"
    APPROVE = "decide what it may do"
    RAISE_BUDGET = "raise its budget"
    ADMIT = "let a stranger in"
    SET_SCRIPT = "give a task a script"
    LOOSEN_TASK = "loosen a task's limits"
    REGISTER_AGENT = "make another agent"
    PRODUCE = "hand in messages for it"
    OVERSEE = "look at what it does"
    OPERATE = "cancel, reset, replay and try again"
    CONFIGURE = "set it up"


NEEDED: Final[Mapping[Act, Standing]] = {
    Act.TALK: Standing.MEMBER,
    Act.ANSWER: Standing.MEMBER,
    Act.STATUS: Standing.MEMBER,
    Act.CLEAR: Standing.ADMIN,
    Act.COMPACT: Standing.ADMIN,
    Act.REMOTE_CONTROL: Standing.ADMIN,
    Act.APPROVE: Standing.ADMIN,
    Act.RAISE_BUDGET: Standing.ADMIN,
    Act.ADMIT: Standing.ADMIN,
    Act.SET_SCRIPT: Standing.ADMIN,
    Act.LOOSEN_TASK: Standing.ADMIN,
    Act.REGISTER_AGENT: Standing.GLOBAL_ADMIN,
    Act.PRODUCE: Standing.ADMIN,
    Act.OVERSEE: Standing.ADMIN,
    Act.OPERATE: Standing.ADMIN,
    # Who may change what an agent is allowed to could give it everything.
    Act.CONFIGURE: Standing.GLOBAL_ADMIN,
}


def user_id_of(channel_type: str, sender_id: str) -> str:
    """How a person of a platform is known in all tables. One that is too long for them ends in a hash of it all: cut
    off, it could be somebody else's."""
    whole = f"{channel_type}:{sender_id}"
    if len(whole) <= MAX_ID:
        return whole
    return whole[: MAX_ID - 64] + hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()


_ROLES: Final = select(UserRole.role, UserRole.agent_group_id).where(UserRole.user_id == given("user"))


async def standing_of(conn: AsyncConnection, user_id: str | None, agent_group_id: str) -> Standing:
    if user_id is None:
        return Standing.STRANGER
    found = Standing.STRANGER
    for role in (await conn.execute(_ROLES, values(user=user_id))).all():
        if role.role == "owner":
            return Standing.OWNER
        if role.agent_group_id is None:
            found = Standing.GLOBAL_ADMIN
        elif role.agent_group_id == agent_group_id:
            found = max(found, Standing.ADMIN)
    if found > Standing.STRANGER:
        return found
    member = select(AgentGroupMember.user_id).where(
        AgentGroupMember.user_id == user_id, AgentGroupMember.agent_group_id == agent_group_id
    )
    return Standing.MEMBER if (await conn.execute(member)).first() is not None else Standing.STRANGER


async def may(conn: AsyncConnection, user_id: str | None, agent_group_id: str, act: Act) -> bool:
    return await standing_of(conn, user_id, agent_group_id) >= NEEDED[act]


@dataclass(frozen=True)
class Reach:
    """What somebody may look at: `everything` (the fleet as such included), or what these agents do."""

    everything: bool
    agent_groups: frozenset[str] = frozenset()

    def includes(self, agent_group_id: str) -> bool:
        return self.everything or agent_group_id in self.agent_groups

    def where(self, column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
        """For queries over many agents' rows; the column holds the agent's id."""
        return true() if self.everything else column.in_(self.agent_groups)


async def reach_of(conn: AsyncConnection, user_id: str) -> Reach:
    """Of an owner and a global admin, everything; of an admin, the agents they are admin of (`Act.OVERSEE`)."""
    found = (await conn.execute(_ROLES, values(user=user_id))).all()
    if any(role.agent_group_id is None for role in found):
        return Reach(everything=True)
    return Reach(False, frozenset(role.agent_group_id for role in found))
