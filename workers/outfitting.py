"""The tool box of a turn: its tools, who calls them, where they work, and whose approval they need."""

from contextlib import AsyncExitStack

from adapters.events import Progress
from adapters.model_port import AnyProvider
from adapters.policy import Policy
from adapters.station import ProgramProvider
from adapters.tool_port import Beside
from adapters.workspace import Workspace
from workers.actions.caller import Caller
from workers.consent.risky_calls import Consent
from workers.journal import Journal
from workers.opening import OpenedTurn
from workers.programs import OWN_TOOLS
from workers.runtime import Runtime
from workers.toolbox import Equipment, JournaledToolBox
from workers.toolset import start_servers, tools_of
from workers.watchdog import Watchdog
from workers.workflows.spec import CLERK
from workers.workflows.toolset import tools_for


async def outfit(
    runtime: Runtime,
    turn: OpenedTurn,
    journal: Journal,
    watchdog: Watchdog,
    provider: AnyProvider,
    policy: Policy,
    workspace: Workspace,
    beside: Beside,
    servers: AsyncExitStack,
    key_prefix: str,
) -> JournaledToolBox:
    """Others' MCP servers, if the group has any, run until `servers` is closed."""
    caller = Caller(turn, policy, runtime.registry, runtime.settings.default_provider)
    sandbox = await runtime.sandbox()
    is_program = isinstance(provider, ProgramProvider)
    tools = tools_of(runtime.registry, policy, sandboxed=sandbox is not None)
    if is_program:
        tools = {name: tool for name, tool in tools.items() if name not in OWN_TOOLS}
    if turn.assignment is not None:
        tools = tools_for(turn.assignment, tools, runtime)
    elif turn.provider == CLERK:
        tools = {}  # it would call whatever somebody writes to it
    if policy.mcp_servers:
        external = await start_servers(servers, policy, sandbox, workspace.root, tools)
        tools |= external.tools
        for name, why in external.problems.items():
            journal.add(Progress(text=why if name in why else f"the MCP server {name} is not there: {why}"))
    return JournaledToolBox(
        runtime.db,
        runtime.bells,
        tools,
        journal,
        watchdog,
        caller,
        Equipment(workspace, runtime.outbox.root, runtime.web, runtime.redactor, sandbox, beside),
        Consent(runtime.db, runtime.bells, journal, caller, runtime.settings.approval_seconds),
        key_prefix=key_prefix,
        reports=not is_program,
    )
