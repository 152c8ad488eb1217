"""The agent that an operator names."""

from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow
from models.groups import find_agent_group, is_ours
from workers.refusals import RefusedError


async def agent_named(conn: AsyncConnection, handle: str) -> AnyRow:
    """By folder or id. The fleet's own ones are nobody's to set up. RefusedError: there is none."""
    group = await find_agent_group(conn, handle)
    if group is None or is_ours(group.folder):
        raise RefusedError(f"there is no agent {handle!r}; see: longshore groups list", kind="nobody")
    return group
