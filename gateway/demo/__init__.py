"""A demo agent that needs no key: a script that streams, calls tools, asks back, waits for approval and fails on
request."""

from pathlib import Path

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.groups import AgentGroup, find_agent_group
from models.inbox import MessageIn

FOLDER = "demo"
PACE_SECONDS = 0.04
FIRST_MESSAGE = "This is your first message. Are you there?"


async def ensure_demo(conn: AsyncConnection) -> bool:
    """Make the demo agent if there is no agent yet. True if it has never been asked anything."""
    group = await find_agent_group(conn, FOLDER)
    if group is None:
        if (await conn.execute(select(func.count()).select_from(AgentGroup))).scalar_one():
            return False
        script = (Path(__file__).parent / "script.yaml").read_text()
        # It asks before it changes a file, so that there is an approval to see.
        config = {"provider_options": {"script": script, "pace": PACE_SECONDS}, "policy": {"approve": ["edit_file"]}}
        values = {"folder": FOLDER, "name": "Demo", "provider": "scripted", "config": config}
        await conn.execute(insert(AgentGroup).values(**values))
    asked = (await conn.execute(select(func.count()).select_from(MessageIn))).scalar_one()
    return asked == 0
