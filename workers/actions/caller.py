"""Who asks for an action, as the fleet knows it: never what a model says about itself."""

from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.events import Envelope
from adapters.policy import Policy
from adapters.registry import Registry
from workers.access import NEEDED, Act, Standing, standing_of, user_id_of
from workers.agents import hops_of
from workers.house import Done
from workers.opening import OpenedTurn
from workers.replies import ReplyTo


@dataclass(frozen=True)
class Caller:
    """A turn that acts. `turn.messages` grows with what joins it, and so do those in whose name it acts."""

    turn: OpenedTurn
    policy: Policy
    registry: Registry
    default_provider: str  # of agents that name none

    @property
    def session_id(self) -> str:
        return self.turn.lease.session_id

    @property
    def reply_to(self) -> ReplyTo:
        return ReplyTo.to_last_of(self.session_id, self.turn.messages)

    @property
    def people(self) -> tuple[str | None, ...]:
        """All whose messages this turn answers, as user ids; None: one that nobody stands for."""
        senders = [
            user_id_of(row.channel_type, row.sender_id) if row.sender_id else None
            for row in self.turn.messages
            if row.kind != "system"
        ]
        return tuple(dict.fromkeys(senders))

    @property
    def hops(self) -> int:
        """Through how many agents what it was asked has come."""
        return max((hops_of(message) for message in self.turn.messages), default=0)

    def wrote_before(self, written: datetime) -> bool:
        """Whether what was written then, in this session, is an earlier attempt's of this turn."""
        return self.turn.facts.began <= written < self.turn.at

    async def is_admin(self, conn: AsyncConnection) -> bool:
        """Whether each of them is an admin of the agent. One who is not may have talked it into it."""
        return await self._all_are(conn, Standing.ADMIN, self.turn.agent_group_id)

    async def have_asked(self, conn: AsyncConnection, act: Act, agent_group_id: str | None = None) -> bool:
        """Whether all of them may do this with the agent (or with another one), and are there to ask for it. In a
        scheduled run nobody is: what it reads, and is talked into, may be anybody's."""
        if any(row.kind == "task" for row in self.turn.messages):
            return False
        return await self._all_are(conn, NEEDED[act], agent_group_id or self.turn.agent_group_id)

    async def _all_are(self, conn: AsyncConnection, standing: Standing, group: str) -> bool:
        people = self.people
        if not people:
            return False
        for person in people:
            if await standing_of(conn, person, group) < standing:
                return False
        return True


@dataclass
class Performed:
    """What the agent is told, and what to ring for after the commit: `wakes` are sessions and providers, `stopped`
    sessions that were taken from whoever ran them, and `events` are for those who watch."""

    text: str
    deliveries: list[str] = field(default_factory=list)
    wakes: list[tuple[str, str]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    events: list[Envelope] = field(default_factory=list)

    def include(self, done: Done, default_provider: str) -> None:
        """All that is to be rung for, besides."""
        self.deliveries += done.deliveries
        self.wakes += [(session_id, provider or default_provider) for session_id, provider in done.wakes]
        self.stopped += done.stopped
        self.events += done.events
