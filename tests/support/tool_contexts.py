"""Tools called by hand, in a workspace and without a turn."""

from pathlib import Path
from typing import Any

from adapters.policy import Policy
from adapters.tool_port import Tool, ToolContext
from adapters.web import Web
from adapters.workspace import Workspace


def make_tool_context(root: Path) -> ToolContext:
    return ToolContext(
        session_id="s",
        turn_id="t",
        call="c",
        agent_group="demo",
        sender_id=None,
        workspace=Workspace(root),
        outbox=root.parent / "outbox",
        policy=Policy(),
        web=Web(),
    )


async def use_tool(tool: Tool[Any], root: Path, **arguments: Any) -> str:
    result = await tool.handler(tool.arguments.model_validate(arguments), make_tool_context(root))
    assert isinstance(result, str)
    return result
