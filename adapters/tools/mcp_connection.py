"""One MCP server of a group: its process in the sandbox, the session with it, its calls, and its end.

Whatever goes wrong becomes words for the agent, as a ToolError of a call or as the connection's `problem`. The process
is always seen gone, even if whoever keeps it is cancelled."""

import asyncio
from collections.abc import Awaitable, Mapping
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, Final

import mcp_types as types
import structlog
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from pydantic import ValidationError

from adapters.errors import SandboxError, ToolError
from adapters.policy import McpServerPolicy, PolicyError
from adapters.sandbox.port import Command, Sandbox, SandboxLimits, SandboxProcess
from adapters.tools.mcp_pins import check_pinned
from adapters.tools.mcp_pipes import MAX_LINE, Pipes, streams
from adapters.tools.mcp_words import MAX_TEXT, Cleaner, text_of
from adapters.uninterrupted import uninterrupted

log = structlog.get_logger()

CALL_SECONDS: Final = 60.0
MAX_TOOLS: Final = 100
MAX_PAGES: Final = 20
MAX_REASON: Final = 500


class Connection:
    """One server: its process, the conversation with it, and what is left to say when it has ended."""

    def __init__(self, name: str, server: McpServerPolicy) -> None:
        self.name = name
        self.title = f"the MCP server {name}"
        self.listed: list[dict[str, Any]] = []
        self.problem: str | None = None
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._server = server
        self._cleaner = Cleaner()
        self._dispatcher: JSONRPCDispatcher[Any] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._over = asyncio.Event()
        self._epitaph = ""

    async def keep(self, sandbox: Sandbox, workspace: Path, environ: Mapping[str, str]) -> None:
        """Start it, talk to it until one of both ends, and see it gone."""
        try:
            check_pinned(self.name, self._server)
            process = await sandbox.start(self._command(workspace, environ))
        except (PolicyError, SandboxError, ToolError) as error:
            self.problem = self.clean(f"{self.title} could not be started: {error}", MAX_REASON)
            self._end()
            return
        except BaseException:
            self.problem = f"{self.title} could not be started"
            self._end()
            raise
        pipes = Pipes(process, self._unreadable)
        listening = asyncio.create_task(pipes.listen_to_complaints())
        try:
            await self._converse(pipes)
        except Exception:  # a mistake of ours or of the library's costs this server, not the turn
            log.exception("mcp.conversation_failed", server=self.name)
        finally:
            await uninterrupted(self._bury(process, pipes, listening))

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Raises ToolError, in words for the agent, for everything that can go wrong."""
        if self._over.is_set() or self._dispatcher is None:
            raise ToolError(self._epitaph or f"{self.title} has been stopped")
        request = self._dispatcher.send_raw_request("tools/call", {"name": tool, "arguments": dict(arguments)})
        try:
            async with asyncio.timeout(CALL_SECONDS):
                result = await self._answer(request)
        except TimeoutError:
            raise ToolError(f"{self.title} did not answer within {CALL_SECONDS:g} s") from None
        except MCPError as error:
            if error.code != types.CONNECTION_CLOSED:
                raise ToolError(self.clean(f"{self.title} refused: {error.message}", MAX_REASON)) from None
            await self._over.wait()
            raise ToolError(self._epitaph) from None
        text = self.clean(text_of(result), MAX_TEXT)
        if result.get("isError"):
            raise ToolError(text or f"{tool} failed and did not say why")
        return text or "(it answered with nothing)"

    async def _answer(self, request: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Its answer; ToolError when it has answered something that cannot be read, and so will never answer."""
        unreadable = asyncio.get_running_loop().create_future()
        asking = asyncio.ensure_future(request)
        self._waiting.add(unreadable)
        try:
            await asyncio.wait({asking, unreadable}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise ToolError(f"{self.title} sent a message of more than {MAX_LINE >> 20} MB, which nobody reads")
            return asking.result()
        finally:
            self._waiting.discard(unreadable)
            unreadable.cancel()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    def _command(self, workspace: Path, environ: Mapping[str, str]) -> Command:
        env: dict[str, str] = {}
        secrets = set()
        for name, value in self._server.env.items():
            if value.startswith("$"):
                if not environ.get(value[1:]):
                    raise ToolError(f"its variable {name} needs {value[1:]}, which this worker does not have")
                value = environ[value[1:]]
                secrets.add(value)
            env[name] = value
        self._cleaner = Cleaner(secrets)
        return Command(
            argv=(self._server.command, *self._server.args),
            workspace=workspace,
            # Launchers and interpreters look around where they start, and the workspace is the agent's to write.
            folder=None,
            env=env,
            hosts=self._server.hosts,
            readable=_home_of(self._server.command),
            limits=SandboxLimits(),
        )

    async def _converse(self, pipes: Pipes) -> None:
        """Returns when the server has closed its output."""
        with streams() as (heard, incoming, outgoing, to_say):
            reading = asyncio.create_task(pipes.read(heard))
            writing = asyncio.create_task(pipes.write(to_say))
            self._dispatcher = JSONRPCDispatcher(incoming, outgoing)
            us = types.Implementation(name="longshore", version=version("longshore"))
            try:
                async with ClientSession(dispatcher=self._dispatcher, client_info=us) as session:
                    if await self._introduce(session):
                        _set(self.started)
                        await asyncio.wait({reading})
            finally:
                reading.cancel()
                writing.cancel()
                await asyncio.gather(reading, writing, return_exceptions=True)

    async def _introduce(self, session: ClientSession) -> bool:
        """Whether it is a server that can be used; if not, `problem` says why, or its end does."""
        try:
            await session.initialize()
            self.listed = await self._list()
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                return False
            self.problem = f"{self.title} refused to begin: {error.message}"
        except (RuntimeError, ValidationError):
            self.problem = f"{self.title} does not speak a version of MCP that is known here"
        return self.problem is None

    async def _list(self) -> list[dict[str, Any]]:
        """Raw, because one tool that is not described properly must not cost the others."""
        assert self._dispatcher is not None
        listed: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._dispatcher.send_raw_request("tools/list", {"cursor": cursor} if cursor else None)
            tools, cursor = page.get("tools"), page.get("nextCursor")
            listed += [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
            if len(listed) >= MAX_TOOLS or not cursor or not isinstance(cursor, str):
                break
        if len(listed) > MAX_TOOLS or cursor:
            log.warning("mcp.too_many_tools", server=self.name, taken=min(len(listed), MAX_TOOLS))
        return listed[:MAX_TOOLS]

    def _unreadable(self) -> None:
        """The line was the answer to one of the calls under way, and nobody knows to which."""
        for waiting in self._waiting:
            _set(waiting)

    async def _bury(self, process: SandboxProcess, pipes: Pipes, listening: asyncio.Task[None]) -> None:
        try:
            await process.stop()
            code = await process.wait()
            await asyncio.wait({listening}, timeout=1.0)  # a grandchild may hold it open
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        if process.passed is not None:
            self._epitaph = f"{self.title} was stopped: it used more {process.passed} than it may"
        elif pipes.excess:
            self._epitaph = f"{self.title} was stopped: {pipes.excess}"
        else:
            complaint = pipes.last_complaint(self._cleaner.longest_secret)
            said = "" if complaint is None else f": {self.clean(complaint, MAX_REASON)}"
            self._epitaph = f"{self.title} has ended (exit {code})" + said
        if not self.started.done() and self.problem is None:
            self.problem = self._epitaph
        if self.problem is not None:
            self.problem = self.clean(self.problem, MAX_REASON)
        if pipes.garbage["lines"]:
            log.info("mcp.garbage", server=self.name, lines=pipes.garbage["lines"], bytes=pipes.garbage["bytes"])
        self._end()

    def _end(self) -> None:
        self._over.set()
        _set(self.started)

    def clean(self, text: str, limit: int) -> str:
        """What may be shown of something it said."""
        return self._cleaner.clean(text, limit)


def _home_of(program: str) -> tuple[Path, ...]:
    """Where a program that is named by its path lives, so that the sandbox has it: never a whole top folder."""
    path = PurePosixPath(program)
    if not path.is_absolute() or ".." in path.parts or path.parts[1] in ("usr", "bin", "sbin", "lib"):
        return ()
    home = path.parent.parent if path.parent.name == "bin" else path.parent
    return (Path(home),) if len(home.parts) > 2 else ()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
