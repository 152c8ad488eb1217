"""Finding the agent for a message: by name, or by the wirings of the place it was said in. Writes nothing but the place
of a message that names its agent."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow
from models.engagements import followers
from models.groups import ensure_messaging_group, find_agent_group, find_place, wirings_of
from workers.intake import routing
from workers.intake.incoming import Incoming

STRICT = "strict"


@dataclass(frozen=True)
class Found:
    """`agent` (folder, provider, config) and `route` are there together. `policy`: what the place does with strangers.
    `wired`: how many agents listen there."""

    route: routing.Route | None = None
    agent: AnyRow | None = None
    policy: str = STRICT
    considered: tuple[routing.Considered, ...] = ()
    wired: int = 0


async def find(conn: AsyncConnection, incoming: Incoming, *, from_outside: bool = False) -> Found:
    """`from_outside`: whom an agent does not hear in a place, it does not hear there by name either."""
    if incoming.agent_group is not None:
        return await _addressed(conn, incoming, incoming.agent_group, from_outside)
    wirings = await wirings_of(conn, incoming.channel_type, incoming.platform_id)
    if not wirings:
        return Found()
    heard = routing.Heard(
        text=incoming.words,
        sender_id=incoming.sender_id,
        thread_id=incoming.thread_id,
        is_mention=incoming.is_mention,
        followed=await _followed(conn, wirings, incoming.thread_id),
    )
    decision = routing.choose(wirings, heard)
    chosen = decision.route.agent_group_id if decision.route is not None else None
    agent = next((row for row in wirings if row.agent_group_id == chosen), None)
    policy = wirings[0].unknown_sender_policy
    return Found(decision.route, agent, policy, decision.considered, len(wirings))


async def _addressed(conn: AsyncConnection, incoming: Incoming, handle: str, from_outside: bool) -> Found:
    agent = await find_agent_group(conn, handle)
    if agent is None or agent.folder.startswith("."):
        return Found()
    if from_outside:
        wirings = await wirings_of(conn, incoming.channel_type, incoming.platform_id)
        mine = [row for row in wirings if row.agent_group_id == agent.id]
        if mine and not routing.hears(mine[0], incoming.sender_id):
            return Found(wired=len(wirings))
    place = await find_place(conn, incoming.channel_type, incoming.platform_id)
    place_id = place.id if place else await ensure_messaging_group(conn, incoming.channel_type, incoming.platform_id)
    route = routing.Route(agent.id, place_id, incoming.thread_id or "", True, "addressed")
    return Found(route, agent, place.unknown_sender_policy if place else STRICT)


async def _followed(conn: AsyncConnection, wirings: list[AnyRow], thread_id: str | None) -> frozenset[str]:
    """Looked up only where it can matter."""
    sticky = [row.agent_group_id for row in wirings if (row.trigger_rules or {}).get("sticky")]
    if thread_id is None or not sticky:
        return frozenset()
    return await followers(conn, sticky, wirings[0].messaging_group_id, thread_id)
