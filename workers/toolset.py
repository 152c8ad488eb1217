"""Which tools an agent has: those installed, less what its policy takes away and what needs a sandbox where none is;
and those of the MCP servers its policy names."""

import os
from collections.abc import Container
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adapters.policy import Policy
from adapters.registry import Registry
from adapters.sandbox.port import Sandbox
from adapters.tool_port import Tool

if TYPE_CHECKING:
    from adapters.tools.mcp_client import ExternalTools


def tools_of(registry: Registry, policy: Policy, *, sandboxed: bool) -> dict[str, Tool[Any]]:
    tools = (registry.tools.get(name) for name in registry.tools.names)
    return {
        tool.name: tool
        for tool in tools
        if tool.name not in policy.without and tool.offered(policy) and (sandboxed or not tool.needs_sandbox)
    }


async def start_servers(
    stack: AsyncExitStack, policy: Policy, sandbox: Sandbox | None, workspace: Path, known: Container[str]
) -> "ExternalTools":
    """Start the group's MCP servers; they run until `stack` is closed."""
    # Heavy, and most groups have no servers.
    from adapters.tools.mcp_client import ExternalTools, external_tools

    if sandbox is None:
        return ExternalTools(problems=dict.fromkeys(policy.mcp_servers, "there is no sandbox here to run it in"))
    started = external_tools(policy.mcp_servers, sandbox, workspace, os.environ, reserved=known)
    external = await stack.enter_async_context(started)
    external.tools = {name: tool for name, tool in external.tools.items() if name not in policy.without}
    return external
