"""The tools of a turn as MCP clients see them: the same over HTTP, over a unix socket and through `longshore mcp`."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.client import ConnectMode
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from adapters.contracts import ParkedError, ToolOutcome, ToolSpec
from workers.tool_binding import TURN_OVER, Binding
from workers.tool_server import ToolServer

pytestmark = pytest.mark.spec("T1")

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Box:
    """A tool box that does what the test says, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.specs = (ToolSpec("echo", "Says it again.", SCHEMA), ToolSpec("ask", "Ünïcode: 鍵 🔑", {"type": "object"}))
        self.held = asyncio.Event()
        self.reached = asyncio.Event()

    async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        self.calls.append((call_id, name, dict(arguments)))
        match name:
            case "echo":
                return ToolOutcome(str(arguments.get("text")))
            case "ask":
                raise ParkedError("Delete it? yes or no", 300.0)
            case "hold":
                self.reached.set()
                await self.held.wait()
                return ToolOutcome("let go")
            case "break":
                raise ValueError("a detail nobody needs")
        return ToolOutcome(f"there is no tool {name!r} here", ok=False)


Connect = Callable[[Binding], AbstractAsyncContextManager[Client]]


def http_client(token: str, socket_path: Path | None = None) -> httpx2.AsyncClient:
    transport = httpx2.AsyncHTTPTransport(uds=str(socket_path)) if socket_path else None
    return httpx2.AsyncClient(transport=transport, headers={"Authorization": f"Bearer {token}"}, trust_env=False)


@asynccontextmanager
async def over_http(binding: Binding, mode: ConnectMode = "auto") -> AsyncIterator[Client]:
    async with (
        http_client(binding.token) as http,
        Client(streamable_http_client(binding.url, http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def over_http_as_before_2026(binding: Binding) -> AsyncIterator[Client]:
    """The handshake that all of today's CLI agents use."""
    async with over_http(binding, mode="legacy") as client:
        yield client


@asynccontextmanager
async def over_socket(binding: Binding) -> AsyncIterator[Client]:
    async with (
        http_client(binding.token, binding.socket) as http,
        Client(streamable_http_client("http://localhost/mcp", http_client=http)) as client,
    ):
        yield client


def bridge(url: str, token: str) -> StdioServerParameters:
    env = {"LONGSHORE_MCP_URL": url, "LONGSHORE_MCP_TOKEN": token}
    # Variables of this process that the client's library would hand on are set to nothing of use.
    env |= {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "HTTP_PROXY": "http://127.0.0.1:9", "TERM": "dumb"}
    return StdioServerParameters(command=sys.executable, args=["-m", "gateway.cli.mcp"], env=env, cwd=ROOT)


@asynccontextmanager
async def through_the_bridge(binding: Binding) -> AsyncIterator[Client]:
    async with Client(stdio_client(bridge(binding.url, binding.token))) as client:
        yield client


@asynccontextmanager
async def through_the_bridge_and_the_socket(binding: Binding) -> AsyncIterator[Client]:
    async with Client(stdio_client(bridge(f"unix:{binding.socket}", binding.token)), mode="legacy") as client:
        yield client


WAYS: list[Connect] = [
    over_http,
    over_http_as_before_2026,
    over_socket,
    through_the_bridge,
    through_the_bridge_and_the_socket,
]


@pytest.fixture
async def server() -> AsyncIterator[ToolServer]:
    server = ToolServer()
    yield server
    await server.close()


def said(result: types.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@pytest.mark.parametrize("connect", WAYS)
async def test_the_same_whichever_way_they_come(server: ToolServer, connect: Connect) -> None:
    box = Box()
    async with server.bind(box) as binding, connect(binding) as client:
        listed = (await client.list_tools()).tools
        assert [(tool.name, tool.description, tool.input_schema) for tool in listed] == [
            (spec.name, spec.description, spec.schema) for spec in box.specs
        ]

        result = await client.call_tool("echo", {"text": "hello"})
        assert (said(result), result.is_error) == ("hello", False)

        result = await client.call_tool("missing", {})
        assert (said(result), result.is_error) == ("there is no tool 'missing' here", True)

        # What the arguments must be is for the tool box to say.
        result = await client.call_tool("echo", {"wrong": [1, {"a": None}]})
        assert (said(result), result.is_error) == ("None", False)

        result = await client.call_tool("echo", {"text": "🔑 für Zoë\u2028\x00\n鍵"})
        assert said(result) == "🔑 für Zoë\u2028\x00\n鍵"

        long = "ab🔑" * 500_000
        result = await client.call_tool("echo", {"text": long})
        assert said(result) == long

        result = await client.call_tool("break", {})
        assert (said(result), result.is_error) == ("the call could not be made (ValueError)", True)

        result = await client.call_tool("ask", {})
        assert not result.is_error
        assert "Delete it? yes or no" in said(result)
        assert "end your turn now" in said(result)
        assert binding.parked is not None
        assert (binding.parked.reason, binding.parked.seconds) == ("Delete it? yes or no", 300.0)

        # Those that come together are told apart.
        together = await asyncio.gather(*(client.call_tool("echo", {"text": str(n)}) for n in range(20)))
        assert [said(result) for result in together] == [str(n) for n in range(20)]

    assert [call_id for call_id, _, _ in box.calls] == [f"mcp_{n}" for n in range(1, len(box.calls) + 1)]


async def test_each_turn_counts_its_calls_from_one(server: ToolServer) -> None:
    boxes = Box(), Box()
    for box in boxes:
        async with server.bind(box) as binding, over_http(binding) as client:
            await client.call_tool("echo", {"text": "x"})
            assert binding.parked is None
    assert [box.calls[0][0] for box in boxes] == ["mcp_1", "mcp_1"]


async def test_half_a_character_is_not_the_end_of_a_call(server: ToolServer) -> None:
    class Torn(Box):
        async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
            return ToolOutcome("torn \ud83d")

    async with server.bind(Torn()) as binding, over_http(binding) as client:
        assert said(await client.call_tool("echo", {})) == "torn ?"


async def test_several_questions_wait_for_the_first_that_runs_out(server: ToolServer) -> None:
    class Asking(Box):
        async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
            raise ParkedError(name, float(arguments["seconds"]))

    async with server.bind(Asking()) as binding, over_http(binding) as client:
        for name, seconds in (("a", 50), ("b", 20), ("c", 70)):
            await client.call_tool(name, {"seconds": seconds})
        assert binding.parked is not None
        assert binding.parked.reason == "b"


async def test_the_end_of_the_turn_ends_calls_under_way(server: ToolServer) -> None:
    box = Box()
    async with AsyncExitStack() as after:
        async with server.bind(box) as binding:
            client = await after.enter_async_context(over_http(binding))
            call = asyncio.create_task(client.call_tool("hold", {}))
            await box.reached.wait()
        result = await call
        assert (result.is_error, said(result)) == (True, TURN_OVER)


async def test_a_turn_that_is_stopped_leaves_nothing_behind(server: ToolServer) -> None:
    box = Box()
    calling = asyncio.Event()

    async def turn() -> None:
        async with server.bind(box) as binding, over_http(binding) as client:
            calling.set()
            await client.call_tool("hold", {})

    running = asyncio.create_task(turn())
    await box.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not [task for task in asyncio.all_tasks() if "Box.call" in repr(task)]


async def test_a_client_that_goes_away_does_not_stop_the_others(server: ToolServer) -> None:
    box = Box()
    async with server.bind(box) as binding:
        async with over_http(binding) as client:
            leaving = asyncio.create_task(client.call_tool("hold", {}))
            await box.reached.wait()
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
        async with over_http(binding) as client:
            assert said(await client.call_tool("echo", {"text": "still here"})) == "still here"


async def test_it_can_be_closed_twice_and_without_having_been_used() -> None:
    server = ToolServer()
    await server.close()
    async with server.bind(Box()) as binding:
        url, token = binding.url, binding.token
    await server.close()
    await server.close()
    async with http_client(token) as http:
        with pytest.raises(httpx2.ConnectError):
            await http.post(url)


async def test_its_socket_goes_with_it() -> None:
    server = ToolServer()
    async with server.bind(Box()) as binding:
        assert binding.socket.is_socket()
    await server.close()
    assert not binding.socket.parent.exists()


class TestTheBridge:
    def run(self, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gateway.cli.mcp"], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def test_says_which_variable_is_missing(self) -> None:
        done = self.run(LONGSHORE_MCP_URL="http://127.0.0.1:9/mcp")
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("longshore mcp: LONGSHORE_MCP_TOKEN must be set")
        assert done.stderr.count("\n") == 1

    def test_says_that_nobody_is_there(self) -> None:
        done = self.run(LONGSHORE_MCP_URL="http://127.0.0.1:9/mcp", LONGSHORE_MCP_TOKEN="secret-token")
        assert done.returncode == 1
        assert done.stderr == "longshore mcp: the tool server at http://127.0.0.1:9/mcp is gone (ConnectError)\n"

    async def test_says_that_it_was_refused(self, server: ToolServer) -> None:
        async with server.bind(Box()) as binding:
            done = await asyncio.to_thread(self.run, LONGSHORE_MCP_URL=binding.url, LONGSHORE_MCP_TOKEN="secret-token")
        assert done.returncode == 1
        assert done.stderr.startswith(f"longshore mcp: the tool server at {binding.url} refused the token")
        assert "secret-token" not in done.stderr
        assert done.stderr.count("\n") == 1

    async def test_ends_when_the_turn_does(self, server: ToolServer) -> None:
        """Its agent still holds its input open; the next call shows that there is nothing left to relay."""
        async with server.bind(Box()) as binding:
            parameters = bridge(binding.url, binding.token)
            process = await asyncio.create_subprocess_exec(
                parameters.command, *parameters.args, env=parameters.env, cwd=ROOT, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write(INITIALIZE)
            assert b'"longshore"' in await process.stdout.readline()
        process.stdin.write(b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n')
        assert b"the turn it was made for is over" in await process.stderr.readline()
        assert await process.wait() == 1

    async def test_ends_well_when_its_agent_does(self, server: ToolServer) -> None:
        async with server.bind(Box()) as binding:
            done = await asyncio.to_thread(self.run, LONGSHORE_MCP_URL=binding.url, LONGSHORE_MCP_TOKEN=binding.token)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    b'"clientInfo":{"name":"t","version":"1"}}}\n'
)
