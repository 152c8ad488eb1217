"""The agent `longshore up` makes when there is a model to ask: `assistant`, on whatever provider is the default."""

from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncConnection

from models.groups import AgentGroup
from models.upsert import insert_ignoring

FOLDER = "assistant"
INSTRUCTIONS_FILE = "AGENTS.md"
_INSTRUCTIONS = """\
# Assistant

You are a helpful assistant in a chat. Answer briefly and plainly; say so when you do not know something.
Use your tools when they help. When only the person can decide, ask them with `ask_user_question`.

This file is your instructions: whoever runs you changes it, and the next turn goes by it.
"""


async def ensure_assistant(conn: AsyncConnection) -> None:
    """One that is there stays as it is."""
    await insert_ignoring(conn, AgentGroup, folder=FOLDER, name="Assistant", config={})


def ensure_instructions(workspace_root: Path) -> None:
    """Write its first instructions, never over somebody's own."""
    file = workspace_root / FOLDER / INSTRUCTIONS_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        file.write_text(_INSTRUCTIONS)
