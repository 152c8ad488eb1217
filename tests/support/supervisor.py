"""`boss`, an agent that may look into others' sessions."""

from typing import Any

from sqlalchemy import update

from models import AgentGroup
from tests.support.fleet import Fleet
from tests.support.tool_calls import make_calls


async def let_boss_read(fleet: Fleet, **oversees: str) -> None:
    """The agent `boss` may read so much of these agents' sessions (`all`: of everybody's)."""
    policy = {"oversees": {"*" if folder == "all" else folder: scope for folder, scope in oversees.items()}}
    if "boss" not in [row.folder for row in await fleet.rows(AgentGroup)]:
        await fleet.add_group("boss")
    await fleet.execute(update(AgentGroup).where(AgentGroup.folder == "boss").values(config={"policy": policy}))


def ask_boss(fleet: Fleet, name: str, **arguments: Any) -> Any:
    return make_calls(fleet, (name, arguments), agent_group="boss", platform_id="office")
