"""`longshore mcp`: the tools of a turn on stdin and stdout, for CLI agents that know MCP only that way.

It knows neither database nor fleet: it relays between its agent and the worker's tool server, with the token it was
started with. Started by an agent at the beginning of every turn, so nothing heavy is imported before it is needed.

LONGSHORE_MCP_URL is the server's address, or `unix:/path` for its socket; LONGSHORE_MCP_TOKEN the turn's token.
Exit codes: 0 the agent closed our input, 1 the server refused us or is gone, 2 a variable is missing."""

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import httpx2
    from mcp.client.session import ClientSession
    from mcp.server.lowlevel import Server

URL = "LONGSHORE_MCP_URL"
TOKEN = "LONGSHORE_MCP_TOKEN"  # noqa: S105  # a variable's name
SOCKET_PREFIX = "unix:"
SOCKET_URL = "http://localhost/mcp"
CONNECT_SECONDS = 10.0


def mcp() -> None:
    """Serve the tools of a running turn over stdio, for CLI agents (they start this themselves)."""
    url, token = os.environ.get(URL, ""), os.environ.get(TOKEN, "")
    missing = [name for name, value in ((URL, url), (TOKEN, token)) if not value]
    if missing:
        _say(f"{' and '.join(missing)} must be set: this is started by an agent during its turn, not by hand")
        raise SystemExit(2)
    asyncio.run(_relay(url, token))


async def _relay(url: str, token: str) -> None:
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.stdio import stdio_server

    async with _http(url, token) as http:
        endpoint = SOCKET_URL if url.startswith(SOCKET_PREFIX) else url
        transport = streamable_http_client(endpoint, http_client=http)
        async with Client(transport) as client, stdio_server() as (incoming, outgoing):
            server = _make_relay(client.session)
            await server.run(incoming, outgoing, server.create_initialization_options())


def _make_relay(session: "ClientSession") -> "Server[Any]":
    import mcp_types as types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    async def list_tools(
        _: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        cursor = params.cursor if params is not None else None
        return await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))

    async def call_tool(_: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        wanted = types.CallToolRequestParams(name=params.name, arguments=params.arguments)
        # Not `session.call_tool`, which looks at what comes back: the agent's own client does that.
        return await session.send_request(types.CallToolRequest(params=wanted), types.CallToolResult)

    return Server("longshore", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=lambda _: None)


def _http(url: str, token: str) -> "httpx2.AsyncClient":
    import httpx2

    class Watched(httpx2.AsyncHTTPTransport):
        """Every request passes here: the first that shows that the turn is over ends this process."""

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            try:
                response = await super().handle_async_request(request)
            except httpx2.TransportError as error:
                _give_up(f"the tool server at {url} is gone ({type(error).__name__})")
            if response.status_code == 401:
                _give_up(f"the tool server at {url} refused the token: the turn it was made for is over")
            return response

    path = url.removeprefix(SOCKET_PREFIX) if url.startswith(SOCKET_PREFIX) else None
    return httpx2.AsyncClient(
        transport=Watched(uds=path),
        headers={"Authorization": f"Bearer {token}"},
        # A tool may take as long as it takes: the worker and the agent have time limits, a relay needs none.
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        # A proxy named in the environment must not get to see the token.
        trust_env=False,
    )


def _give_up(reason: str) -> NoReturn:
    """End at once: a thread that waits for our input cannot be ended in any other way, and there is nothing to tidy
    up but what has been written already."""
    _say(reason)
    os._exit(1)


def _say(text: str) -> None:
    sys.stderr.write(f"longshore mcp: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    mcp()
