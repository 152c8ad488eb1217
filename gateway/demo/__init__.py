"""Demo agents that need no key: scripts that stream, call tools, write to each other, ask back, wait for approval and
fail on request. The first one talks with whoever opens the console."""

from pathlib import Path
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.groups import AgentGroup, Wiring, ensure_messaging_group, find_agent_group
from models.inbox import MessageIn
from models.upsert import insert_ignoring
from models.web_chats import WEB

FOLDER = "demo"
PILOT = "pilot"
PACE_SECONDS = 0.04
FIRST_MESSAGE = "This is your first message. Are you there?"
# What the demo is to do a little later, by itself.
REPORT = "The harbour report is due."
REPORT_SECONDS = 12


async def ensure_demo(conn: AsyncConnection, chat: str) -> bool:
    """Make the demo agents if there is no agent yet, the first one listening in this web chat. True if it has never
    been asked anything."""
    group = await find_agent_group(conn, FOLDER)
    if group is None:
        if (await conn.execute(select(func.count()).select_from(AgentGroup))).scalar_one():
            return False
        # It asks before it changes a file, so that there is an approval to see.
        demo = await _add(conn, FOLDER, "Demo", "script.yaml", {"approve": ["edit_file"], "agents": [PILOT]})
        await _add(conn, PILOT, "Pilot", "pilot.yaml", {})
        place = await ensure_messaging_group(conn, WEB, chat)
        await insert_ignoring(conn, Wiring, messaging_group_id=place, agent_group_id=demo)
    asked = (await conn.execute(select(func.count()).select_from(MessageIn))).scalar_one()
    return asked == 0


async def _add(conn: AsyncConnection, folder: str, name: str, file: str, policy: dict[str, Any]) -> str:
    script = (Path(__file__).parent / file).read_text()
    config = {"provider_options": {"script": script, "pace": PACE_SECONDS}, "policy": policy}
    values = {"folder": folder, "name": name, "provider": "scripted", "config": config}
    return str((await conn.execute(insert(AgentGroup).values(**values).returning(AgentGroup.id))).scalar_one())
