"""Making an agent on an agent's word: everything is checked before the first write, and the unique name of its folder
decides between two who make it at once."""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import RegisterAgentGroup
from adapters.errors import AdapterError, ToolError
from models.base import new_id
from models.groups import AgentGroup, Wiring, ensure_messaging_group, find_agent_group, wirings_of
from models.upsert import insert_ignoring
from workers.access import Act
from workers.actions.caller import Caller, Performed
from workers.intake.patterns import find_fault
from workers.system_prompt import GLOBAL_FOLDER, MAIN_FOLDER

# What lies in the first is told to all agents, and the second is not told it: an agent that may write there would
# instruct others, or escape their instructions.
RESERVED: Final = (GLOBAL_FOLDER, MAIN_FOLDER)


async def register(
    conn: AsyncConnection, caller: Caller, action: RegisterAgentGroup, step_id: str, number: int
) -> Performed:
    await _check_people(conn, caller)
    _check_drivers(caller, action)
    pattern = action.trigger_rules.get("pattern")
    if pattern is not None and (fault := find_fault(pattern)) is not None:
        raise ToolError(f"the pattern {pattern!r} {fault}")
    if action.folder in RESERVED:
        raise ToolError(f"the folder {action.folder!r} has a meaning of its own; choose another")
    if await find_agent_group(conn, action.folder) is not None:
        raise ToolError(_taken(action.folder))
    others = [row.folder for row in await wirings_of(conn, action.place.channel_type, action.place.platform_id)]
    group_id = new_id()
    made = await insert_ignoring(
        conn,
        AgentGroup,
        id=group_id,
        name=action.name,
        folder=action.folder,
        provider=action.provider,
        model=action.model,
    )
    if not made:  # by somebody else, meanwhile
        raise ToolError(_taken(action.folder))
    await insert_ignoring(
        conn,
        Wiring,
        messaging_group_id=await ensure_messaging_group(conn, action.place.channel_type, action.place.platform_id),
        agent_group_id=group_id,
        trigger_rules=action.trigger_rules,
        session_mode=action.session_mode,
    )
    said = f"made agent {action.folder}; it listens on {action.place.channel_type} {action.place.platform_id}"
    asked_first = f". Asked before it there: {', '.join(others)}" if others else ""
    return Performed(said + asked_first)


def _taken(folder: str) -> str:
    return f"there is already an agent {folder!r}; nothing was made. Choose another folder"


async def _check_people(conn: AsyncConnection, caller: Caller) -> None:
    """An admin of one agent decides about that one. A new agent is a matter of those who decide about all."""
    if not await caller.have_asked(conn, Act.REGISTER_AGENT):
        raise ToolError(
            "only owners and global admins may make agents, and not everybody you are answering is one, or nobody is "
            "there to ask: a scheduled run makes none. Nothing was made"
        )


def _check_drivers(caller: Caller, action: RegisterAgentGroup) -> None:
    """The same as when an operator makes one: a mistake is refused now, not when the agent is used."""
    channels, providers = caller.registry.channels, caller.registry.providers
    if action.place.channel_type not in channels.names:
        raise ToolError(channels.missing(action.place.channel_type))
    if action.provider is None:
        return
    if action.provider not in providers.names:
        raise ToolError(providers.missing(action.provider))
    try:
        providers.get(action.provider).check({})
    except AdapterError as error:
        raise ToolError(f"the provider {action.provider!r} cannot be used like this: {error}") from None
