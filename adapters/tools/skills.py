"""`read_skill`: the whole text of one of the agent's skills, of which the system prompt names only the titles."""

import asyncio
import os
import re
import stat
from contextlib import ExitStack
from pathlib import Path

from pydantic import BaseModel, Field

from adapters.tool_port import Tool, ToolContext
from adapters.errors import ToolError

SKILLS = "skills"
SKILL_FILE = "SKILL.md"
SKILL_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
MAX_BYTES = 100_000


class ReadSkillArguments(BaseModel):
    name: str = Field(pattern=f"^{SKILL_NAME.pattern}$", description="as listed in your instructions")


def read_plain_file(folder: Path, *parts: str) -> str | None:
    """A small text file beneath a folder that others may write to; None if there is none. Links are not followed, so
    that nobody can make us read what lies elsewhere."""
    if any(part in (".", "..") or "/" in part for part in parts):
        return None
    with ExitStack() as opened:
        try:
            directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, directory)
            for part in parts[:-1]:
                directory = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
                opened.callback(os.close, directory)
            file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
            opened.callback(os.close, file)
        except OSError:
            return None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return os.read(file, MAX_BYTES).decode("utf-8", "replace")


async def _read_skill(arguments: ReadSkillArguments, context: ToolContext) -> str:
    text = await asyncio.to_thread(read_plain_file, context.workspace, SKILLS, arguments.name, SKILL_FILE)
    if text is None:
        raise ToolError(f"there is no skill {arguments.name!r}; your instructions list those there are")
    return text


READ_SKILL = Tool(
    "read_skill", "Reads one of your skills: instructions for a kind of work.", ReadSkillArguments, _read_skill, True
)
