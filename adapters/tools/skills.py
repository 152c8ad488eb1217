"""`read_skill`: the whole text of one of the agent's skills, of which the system prompt names only the titles."""

import asyncio
import re

from pydantic import Field

from adapters.errors import ToolError
from adapters.tool_port import Tool, ToolArguments, ToolContext

SKILLS = "skills"
SKILL_FILE = "SKILL.md"
SKILL_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
MAX_BYTES = 100_000


class ReadSkillArguments(ToolArguments):
    name: str = Field(pattern=f"^{SKILL_NAME.pattern}$", description="as listed in your instructions")


async def _read_skill(arguments: ReadSkillArguments, context: ToolContext) -> str:
    path = f"{SKILLS}/{arguments.name}/{SKILL_FILE}"
    text = await asyncio.to_thread(context.workspace.text, path, limit=MAX_BYTES)
    if text is None:
        raise ToolError(f"there is no skill {arguments.name!r}; your instructions list those there are")
    return text


READ_SKILL = Tool(
    "read_skill", "Reads one of your skills: instructions for a kind of work.", ReadSkillArguments, _read_skill, True
)
