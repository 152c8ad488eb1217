"""Which tools an agent has: those installed, less what its policy takes away and what needs a sandbox where none is."""

from typing import Any

from adapters.policy import Policy
from adapters.registry import Registry
from adapters.tool_port import Tool


def tools_of(registry: Registry, policy: Policy, *, sandboxed: bool) -> dict[str, Tool[Any]]:
    tools = (registry.tools.get(name) for name in registry.tools.names)
    return {
        tool.name: tool
        for tool in tools
        if tool.name not in policy.without and tool.offered(policy) and (sandboxed or not tool.needs_sandbox)
    }
