"""A message from outside, how it came, and what its sender is to an agent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from workers.access import Standing, standing_of, user_id_of
from workers.consent.approvers import Approver
from workers.front_desk import key_of
from workers.intake.incoming import Incoming


@dataclass(frozen=True)
class Visit:
    """A message from outside and how it came. `trusted`: it is from a service of the operator's own. `key`: the same
    for every copy of the message. `deciders`: by agent, those who can be reached to decide about a stranger, where that
    was found out. `may_decide` False: what they came in with is good for talking, and for no answers or decisions."""

    incoming: Incoming
    is_direct: bool
    trusted: bool
    key: str
    deciders: Mapping[str, Sequence[Approver]] = field(default_factory=dict)
    may_decide: bool = True

    @property
    def typed(self) -> str:
        """What the sender wrote themselves: the words on a button are the agent's, and command nothing."""
        return "" if "card" in (self.incoming.content or {}) else self.incoming.words

    @property
    def user_id(self) -> str | None:
        sender = self.incoming.sender_id
        return None if sender is None else user_id_of(self.incoming.channel_type, sender)


async def standing_at(conn: AsyncConnection, visit: Visit, agent_group_id: str) -> Standing:
    """What the sender is to an agent. Services of the operator's own pass as members."""
    standing = await standing_of(conn, visit.user_id, agent_group_id)
    return max(standing, Standing.MEMBER) if visit.trusted else standing


def visit_key(incoming: Incoming, row_id: str) -> str:
    return key_of("heard", incoming.channel_type, incoming.platform_id, incoming.message_id or row_id)
