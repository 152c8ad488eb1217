"""What would become of a message from outside, and why, in words: the steps of the reception, without a write. Whether
it answers an open card is not looked at."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.registry import Registry
from models.groups import find_agent_group
from models.sessions import find_active_session
from workers.access import NEEDED, Act, Standing
from workers.consent import strangers
from workers.intake import codes, commands, routing, switchboard
from workers.intake.reception import command_of, would_be_asked_about
from workers.intake.registering import named_by_channel, registered_rules, registration_of
from workers.intake.switchboard import Found
from workers.intake.visits import Visit, standing_at
from workers.settings import Settings


async def explain(conn: AsyncConnection, registry: Registry, settings: Settings, visit: Visit) -> dict[str, Any]:
    """`outcome`: code, command, stored, waits or refused."""
    incoming = visit.incoming
    found = await switchboard.find(conn, incoming, from_outside=True)
    told: dict[str, Any] = {
        "place": f"{incoming.channel_type} {incoming.platform_id}",
        "policy": found.policy,
        "wirings": [{"agent": one.folder, "takes": one.takes, "reason": one.reason} for one in found.considered],
        "registers": None,
        "agent": None,
        "wakes": False,
        "session": None,
        "command": None,
        "outcome": "refused",
        "sender": visit.user_id or "nobody in particular",
        "admission": "whether they may speak depends on the agent",
    }
    if codes.codes_in(visit.typed):
        return told | {"outcome": "code", "command": "a one-time code: it would be looked at, and never stored"}
    if found.wired == 0:
        agent = await registration_of(conn, registry, visit)
        if agent is None:
            return told | {"admission": await _unwired(conn, registry, visit)}
        found, told["registers"] = _as_registered(visit, agent), agent.folder
    if found.route is None or found.agent is None:
        return told | {"admission": "no agent here listens to it, so it is refused"}
    route = found.route
    standing = await standing_at(conn, visit, route.agent_group_id)
    told |= {
        "agent": found.agent.folder,
        "wakes": route.wakes,
        "session": await find_active_session(conn, route.agent_group_id, route.messaging_group_id, route.thread_id),
    }
    told["outcome"], told["admission"] = await _admission(conn, visit, found, standing)
    command, _ = await command_of(conn, settings, visit, found, standing)
    if command is not None:
        told["command"] = _command(command, found.agent.folder, standing)
        if command.kind != "raw" or standing < NEEDED[command.act]:
            told["outcome"] = "command"
    return told


async def _unwired(conn: AsyncConnection, registry: Registry, visit: Visit) -> str:
    incoming = visit.incoming
    wire = f"nobody is wired: longshore wire AGENT {incoming.channel_type} {incoming.platform_id}"
    folder = named_by_channel(registry, visit, known=True)
    if folder is None:
        return wire
    if await find_agent_group(conn, folder) is None:
        return f"{wire} (the channel's settings name an agent {folder!r}, and there is none)"
    return f"{wire} (or let somebody write who is known to {folder}: that wires it)"


@dataclass(frozen=True)
class _Wired:
    """As the reception would wire it."""

    agent_group_id: str
    folder: str
    trigger_rules: dict[str, Any] = field(default_factory=dict)
    session_mode: str = "shared"
    response_scope: str = "all"
    follow_up: str = "enqueue"
    messaging_group_id: str = ""


def _as_registered(visit: Visit, agent: Any) -> Found:
    incoming = visit.incoming
    heard = routing.Heard(incoming.words, incoming.sender_id, incoming.thread_id, incoming.is_mention)
    decision = routing.choose([_Wired(agent.id, agent.folder, **registered_rules(visit))], heard)
    return Found(decision.route, agent, considered=decision.considered, wired=1)


def _command(command: commands.Command, folder: str, standing: Standing) -> str:
    if standing < NEEDED[command.act]:
        return commands.denial(command, folder, standing)
    match command.kind:
        case "filtered":
            return f"/{command.name} is dropped: {commands.FILTERED[command.name]}"
        case "raw":
            return f"/{command.name} is passed to the agent's program as it is"
        case _:
            return f"/{command.name} is done by the fleet, or by the agent's program if it has it; no model sees it"


async def _admission(conn: AsyncConnection, visit: Visit, found: Found, standing: Standing) -> tuple[str, str]:
    """The outcome, and why."""
    assert found.route is not None
    assert found.agent is not None
    folder = found.agent.folder
    if standing >= NEEDED[Act.TALK]:
        trusted = f"a service of yours, and passes as {standing.words} of {folder}"
        return "stored", f"{trusted if visit.trusted else f'{standing.words} of {folder}'}: let in"
    stranger = f"not known to {folder}"
    if found.policy == "public":
        return "stored", f"{stranger}, and heard: the place is public"
    if visit.user_id is None or not would_be_asked_about(visit, found):
        return "refused", f"{stranger}: refused"
    _, request = await strangers.request_of(conn, visit.user_id, found.route.agent_group_id)
    if request is None:
        return "waits", f"{stranger}: it would wait, and those who decide would be asked"
    if request.status == "denied":
        return "refused", f"{stranger}: refused, as was decided"
    return "waits", f"{stranger}: it would wait; they are asked"
