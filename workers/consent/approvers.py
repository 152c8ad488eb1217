"""Whom to ask for an approval, and where: the first of the agent's admins, the admins of all agents and the owners of
whom anybody can be reached; on the platform the request came from if somebody is there, all of them at once.

A direct chat that is not known yet is asked for at the platform, outside any transaction, and remembered."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import AdapterError
from adapters.registry import Registry
from models.approvers import Decider, deciders
from models.base import storable
from models.database import Database
from models.groups import ensure_messaging_group
from models.people import remember_dm

log = structlog.get_logger()

# A platform that does not answer must not hold up the turn: then others are asked, or the place the request came from.
OPEN_SECONDS: Final = 5.0
MAX_PLACE: Final = 255  # characters, as stored


@dataclass(frozen=True)
class Approver:
    """Somebody who decides, and the direct chat where they are asked."""

    user_id: str
    channel_type: str
    platform_id: str


async def resolve_approvers(
    db: Database, registry: Registry, agent_group_id: str, prefer: str | None, without: Collection[str] = ()
) -> list[Approver]:
    """Empty: nobody can be reached. `without`: users who are not to be asked."""
    for everybody in await db.read(lambda conn: deciders(conn, agent_group_id)):
        tier = [person for person in everybody if person.user_id not in without]
        found = [*_known(tier), *await _find(db, registry, [person for person in tier if not person.chats])]
        if chosen := _preferred(found, prefer):
            return chosen
    return []


def is_public(registry: Registry, channel_type: str) -> bool:
    """Whether anybody may read what is written on a platform."""
    try:
        return registry.channels.get(channel_type).capabilities.public
    except AdapterError:  # it is not installed here, and nothing can be said on it
        return False


def _known(tier: Iterable[Decider]) -> list[Approver]:
    return [Approver(person.user_id, channel, place) for person in tier for channel, place in person.chats.items()]


def _preferred(found: Sequence[Approver], prefer: str | None) -> list[Approver]:
    there = [approver for approver in found if approver.channel_type == prefer]
    return sorted(there or found, key=lambda approver: (approver.user_id, approver.channel_type))


async def _find(db: Database, registry: Registry, people: Sequence[Decider]) -> list[Approver]:
    opened = await asyncio.gather(*(_open(registry, person) for person in people))
    found = [approver for approver in opened if approver is not None]

    async def remember(conn: AsyncConnection) -> None:
        for approver in found:
            place = await ensure_messaging_group(conn, approver.channel_type, approver.platform_id)
            await remember_dm(conn, approver.user_id, approver.channel_type, place)

    if found:
        await db.transact(remember)
    return found


async def _open(registry: Registry, person: Decider) -> Approver | None:
    try:
        channel = registry.channels.get(person.kind)
        if not channel.capabilities.direct_messages:
            return None
        async with asyncio.timeout(OPEN_SECONDS):
            place = await channel.open_dm(person.user_id.removeprefix(f"{person.kind}:"))
    except Exception as error:  # whatever a platform does, somebody else may be reached  # noqa: BLE001
        log.warning("approver.not_reached", user=person.user_id, error=type(error).__name__)
        return None
    if not isinstance(place, str) or not 0 < len(place) <= MAX_PLACE or storable(place) != place:
        return None
    return Approver(person.user_id, person.kind, place)
