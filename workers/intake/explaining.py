"""What would become of a message from outside, and why, in words: the steps of the reception, without a write."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.registry import Registry
from models.sessions import find_active_session
from workers.intake import admitting, commands, pairing, switchboard
from workers.intake.access import NEEDED, Act, Standing, standing_of
from workers.intake.reception import Visit, provider_of, registration_of
from workers.intake.switchboard import Found
from workers.settings import Settings


async def explain(conn: AsyncConnection, registry: Registry, settings: Settings, visit: Visit) -> dict[str, Any]:
    incoming = visit.incoming
    found = await switchboard.find(conn, incoming)
    told: dict[str, Any] = {
        "place": f"{incoming.channel_type} {incoming.platform_id}",
        "policy": found.policy,
        "wirings": [{"agent": one.folder, "takes": one.takes, "reason": one.reason} for one in found.considered],
        "registers": None,
        "agent": None,
        "wakes": False,
        "session": None,
        "command": None,
        "sender": visit.user_id or "nobody in particular",
        "admission": "whether they may speak depends on the agent",
    }
    if pairing.code_in(incoming.words) is not None:
        return told | {"command": "a one-time code: it would be looked at, and never stored"}
    if found.wired == 0 and (agent := await registration_of(conn, registry, visit)) is not None:
        return told | {"registers": agent.folder, "agent": agent.folder, "wakes": True, "admission": "known: let in"}
    if found.route is None or found.agent is None:
        return told | {"admission": "nobody takes it, so it is refused"}
    route = found.route
    standing = await standing_of(conn, visit.user_id, route.agent_group_id)
    told |= {
        "agent": found.agent.folder,
        "wakes": route.wakes,
        "session": await find_active_session(conn, route.agent_group_id, route.messaging_group_id, route.thread_id),
        "admission": await _admission(conn, visit, found, standing),
    }
    provider = await provider_of(conn, found, settings)
    command = commands.command_in(incoming.words, provider, found.agent.config) if route.wakes else None
    if command is not None:
        told["command"] = _command(command, found.agent.folder, standing)
    return told


def _command(command: commands.Command, folder: str, standing: Standing) -> str:
    if standing < NEEDED[command.act]:
        return commands.denial(command, folder, standing)
    match command.kind:
        case "filtered":
            return f"/{command.name} is dropped: {commands.FILTERED[command.name]}"
        case "raw":
            return f"/{command.name} is passed to the agent's program as it is"
        case _:
            return f"/{command.name} is done by the fleet; the agent does not see it"


async def _admission(conn: AsyncConnection, visit: Visit, found: Found, standing: Standing) -> str:
    assert found.route is not None
    assert found.agent is not None
    folder = found.agent.folder
    if standing >= NEEDED[Act.TALK]:
        return f"{standing.words} of {folder}: let in"
    stranger = f"not known to {folder}"
    if found.policy == "public":
        return f"{stranger}, and heard: the place is public"
    if found.policy != "request_approval" or visit.user_id is None or not found.route.wakes:
        return f"{stranger}: refused"
    _, request = await admitting.request_of(conn, visit.user_id, found.route.agent_group_id)
    if request is None:
        return f"{stranger}: it would wait, and those who decide would be asked"
    return f"{stranger}: {'refused, as was decided' if request.status == 'denied' else 'it would wait; they are asked'}"
