"""A turn's tool box as an MCP server, for agents that are programs of their own (CLI agents).

It offers exactly the tools of the box it is given: whose they are was decided when the box was made, so nothing that
a client sends (ids, headers, `_meta`, arguments) can change it. Checking arguments is the box's business. How the
messages travel is the business of whoever serves it (`workers/tool_server.py`)."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import mcp_types as types
import structlog
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from adapters.contracts import ParkedError, ToolBox

log = structlog.get_logger()

NAME = "longshore"


def make_server(tools: ToolBox, *, name_call: Callable[[], str]) -> Server[Any]:
    """`name_call` gives each call an id of ours. A client's own ids may repeat, and one that was seen before would be
    answered from the journal instead of being run."""

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        offered = [
            types.Tool(name=spec.name, description=spec.description, input_schema=spec.schema) for spec in tools.specs
        ]
        return types.ListToolsResult(tools=offered)

    async def call_tool(_: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            outcome = await tools.call(name_call(), params.name, params.arguments or {})
        except ParkedError as parked:
            return _said(waiting_text(parked))
        except Exception as error:  # an error would reach the agent as "internal error" and nothing else
            log.exception("mcp.call_failed", tool=params.name[:100])
            return _said(f"the call could not be made ({type(error).__name__})", is_error=True)
        return _said(outcome.text, is_error=not outcome.ok)

    return Server(
        NAME,
        version=version("longshore"),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        # No argument of ours travels in a header, so there is no schema to compare headers with.
        get_tool_input_schema=lambda _: None,
    )


def waiting_text(parked: ParkedError) -> str:
    """What an agent is told whose call waits for a person. CLI agents give up on a call after a minute or less, so
    they are answered at once, and the turn is put away when they have ended it."""
    return (
        f"This now waits for a person: {parked.reason}\n"
        "It has been passed on, and was neither refused nor done. The answer will come to you as a message. "
        "Do not call the tool again and do not wait for it: end your turn now."
    )


def _said(text: str, *, is_error: bool = False) -> types.CallToolResult:
    # Half of a surrogate pair, which a program's output may hold, cannot be sent as JSON.
    text = text.encode("utf-8", "replace").decode()
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=is_error)
