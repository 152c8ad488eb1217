"""Other people's tools: external MCP servers of a group, started in the sandbox with the turn and stopped with it.

Everything a server says is hostile text: names, descriptions, schemas, results and error lines are bounded and cleaned
before an agent or a model's API sees them. A server that fails costs its own tools and never the turn."""

import asyncio
import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Container, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, Final

import anyio
import mcp_types as types
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, ConfigDict, ValidationError

from adapters.errors import SandboxError, ToolError
from adapters.known_secrets import LEAST_CHARACTERS
from adapters.policy import McpServerPolicy, PolicyError
from adapters.redaction import Redactor
from adapters.redaction_stream import LABEL
from adapters.sandbox.port import Command, Sandbox, SandboxLimits, SandboxProcess
from adapters.tool_port import Tool, ToolContext
from adapters.tools.mcp_pins import check_pinned

log = structlog.get_logger()

START_SECONDS: Final = 30.0
CALL_SECONDS: Final = 60.0
MAX_LINE: Final = 4 << 20
# What is no message at all: banners are, a flood is not what a server prints by mistake.
MAX_GARBAGE: Final = 64 << 20
# All that a server sends in a turn. A request of its own counts for many: each is answered, and keeps room in memory
# until the server reads the answer.
MAX_MESSAGES: Final = 100_000
REQUEST_WEIGHT: Final = 100
MAX_TOOLS: Final = 100
MAX_PAGES: Final = 20
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1_000
MAX_SCHEMA: Final = 20_000
MAX_TEXT: Final = 50_000
MAX_REASON: Final = 500
STDERR_TAIL: Final = 8_192
_CHUNK: Final = 1 << 16
# What the model APIs take; one schema that they do not take would fail every call of the model.
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_COMBINED: Final = ("anyOf", "oneOf", "allOf", "$ref")


class ExternalArguments(BaseModel):
    """Whatever the server's own schema says; checking it is the server's business."""

    model_config = ConfigDict(extra="allow")


@dataclass
class ExternalTools:
    """What the servers of a group offer. `problems`: why a server is not there, by its name; `dropped`: why one of a
    server's tools is not, by the name it would have had."""

    tools: dict[str, Tool[Any]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def external_tools(
    servers: Mapping[str, McpServerPolicy],
    sandbox: Sandbox,
    workspace: Path,
    environ: Mapping[str, str],
    *,
    reserved: Container[str] = frozenset(),
) -> AsyncIterator[ExternalTools]:
    """Start the servers, all at once; they are gone when this ends, however it ends. `environ` is where secrets named
    `$LONGSHORE_SECRET_...` are taken from; nothing else of it is handed on. `reserved` are names of our own tools."""
    connections = [_Connection(name, server) for name, server in servers.items()]
    keepers = [
        asyncio.create_task(connection.keep(sandbox, workspace, environ), name=f"mcp {connection.name}")
        for connection in connections
    ]
    try:
        if keepers:
            await asyncio.wait([connection.started for connection in connections], timeout=START_SECONDS)
        for connection, keeper in zip(connections, keepers, strict=True):
            if not connection.started.done():
                connection.problem = f"{connection.title} did not answer within {START_SECONDS:g} s"
                keeper.cancel()
        yield _offered(connections, reserved)
    finally:
        for keeper in keepers:
            keeper.cancel()
        if keepers:
            await _uninterrupted(asyncio.gather(*keepers, return_exceptions=True))


class _Connection:
    """One server: its process, the conversation with it, and what is left to say when it has ended."""

    def __init__(self, name: str, server: McpServerPolicy) -> None:
        self.name = name
        self.title = f"the MCP server {name}"
        self.listed: list[dict[str, Any]] = []
        self.problem: str | None = None
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._server = server
        self._redactor = Redactor()
        self._longest_secret = 0
        self._short_secrets: list[str] = []
        self._dispatcher: JSONRPCDispatcher[Any] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._over = asyncio.Event()
        self._epitaph = ""
        self._messages = 0
        self._garbage = Counter[str]()
        self._complaints = bytearray()

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
        listening = asyncio.create_task(self._listen_to_complaints(process))
        try:
            await self._converse(process)
        except Exception:  # a mistake of ours or of the library's costs this server, not the turn
            log.exception("mcp.conversation_failed", server=self.name)
        finally:
            await _uninterrupted(self._bury(process, listening))

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
        text = self.clean(_text_of(result), MAX_TEXT)
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
        self._redactor = Redactor(secrets)
        self._longest_secret = max(map(len, secrets), default=0)
        self._short_secrets = [secret for secret in secrets if 4 <= len(secret) < LEAST_CHARACTERS]
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

    async def _converse(self, process: SandboxProcess) -> None:
        """Returns when the server has closed its output."""
        with _streams() as (heard, incoming, outgoing, to_say):
            reading = asyncio.create_task(self._read(process, heard))
            writing = asyncio.create_task(_write(process, to_say))
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

    async def _read(self, process: SandboxProcess, heard: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Lines of JSON. What is none is counted and skipped: servers print banners where they should not."""
        with heard, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for line in self._lines(process):
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    self._garbage.update(lines=1, bytes=len(line))
                    continue
                self._messages += REQUEST_WEIGHT if isinstance(message, types.JSONRPCRequest) else 1
                if self._messages > MAX_MESSAGES:
                    self._epitaph = f"{self.title} was stopped: it sent messages without end"
                    return
                await heard.send(SessionMessage(message))

    async def _lines(self, process: SandboxProcess) -> AsyncIterator[bytes]:
        line = bytearray()
        too_long = False
        while chunk := await process.stdout.read(_CHUNK):
            if self._garbage["bytes"] > MAX_GARBAGE:
                self._epitaph = f"{self.title} was stopped: it printed without end what is not MCP"
                return
            *ended, rest = chunk.split(b"\n")
            for part in ended:
                if not too_long and len(line) + len(part) <= MAX_LINE:
                    line += part
                    if line.strip():
                        yield bytes(line)
                elif not too_long:
                    self._overlong()
                line.clear()
                too_long = False
            if too_long:
                self._garbage["bytes"] += len(rest)
            elif len(line) + len(rest) > MAX_LINE:
                self._overlong()
                line.clear()
                too_long = True
            else:
                line += rest

    def _overlong(self) -> None:
        """The line was the answer to one of the calls under way, and nobody knows to which."""
        self._garbage.update(lines=1, bytes=MAX_LINE)
        for waiting in self._waiting:
            _set(waiting)

    async def _listen_to_complaints(self, process: SandboxProcess) -> None:
        while chunk := await process.stderr.read(_CHUNK):
            self._complaints += chunk
            del self._complaints[:-STDERR_TAIL]

    async def _bury(self, process: SandboxProcess, listening: asyncio.Task[None]) -> None:
        try:
            await process.stop()
            code = await process.wait()
            await asyncio.wait({listening}, timeout=1.0)  # a grandchild may hold it open
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        if process.passed is not None:
            self._epitaph = f"{self.title} was stopped: it used more {process.passed} than it may"
        elif not self._epitaph:
            self._epitaph = f"{self.title} has ended (exit {code})" + self._last_complaint()
        if not self.started.done() and self.problem is None:
            self.problem = self._epitaph
        if self.problem is not None:
            self.problem = self.clean(self.problem, MAX_REASON)
        if self._garbage["lines"]:
            log.info("mcp.garbage", server=self.name, lines=self._garbage["lines"], bytes=self._garbage["bytes"])
        self._end()

    def _last_complaint(self) -> str:
        whole = len(self._complaints) < STDERR_TAIL
        lines = self._complaints.decode("utf-8", "replace").splitlines()
        last = next((number for number in reversed(range(len(lines))) if lines[number].strip()), None)
        if last is None:
            return ""
        # A line that was cut may begin in the middle of a secret, which nobody would recognise.
        line = lines[last] if whole or last > 0 else lines[last][self._longest_secret :]
        return f": {self.clean(line, MAX_REASON)}"

    def _end(self) -> None:
        self._over.set()
        _set(self.started)

    def clean(self, text: str, limit: int) -> str:
        """What may be shown of a text: no secrets, nothing invisible, and not without end. Most of a text that is much
        too long is not even looked at, as that would hold up everybody else in this process."""
        shown = self._redactor.text(text[: 2 * limit])
        for secret in self._short_secrets:
            shown = shown.replace(secret, LABEL)
        cut = len(text) > 2 * limit
        if cut:  # where it was cut, there may be half a secret, which nobody would recognise
            shown = shown[: -3 * self._longest_secret or None]
        shown = _printable(shown)
        if len(shown) <= limit and not cut:
            return shown
        note = f"\n[cut: {limit} of {len(text)} characters are shown]" if limit == MAX_TEXT else ""
        return shown[:limit] + note


@contextmanager
def _streams() -> Iterator[
    tuple[
        MemoryObjectSendStream[SessionMessage | Exception],
        MemoryObjectReceiveStream[SessionMessage | Exception],
        MemoryObjectSendStream[SessionMessage],
        MemoryObjectReceiveStream[SessionMessage],
    ]
]:
    """What a session talks through: from the server, and to it."""
    heard, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_say = anyio.create_memory_object_stream[SessionMessage](0)
    with heard, incoming, outgoing, to_say:
        yield heard, incoming, outgoing, to_say


async def _write(process: SandboxProcess, to_say: MemoryObjectReceiveStream[SessionMessage]) -> None:
    # Whoever does not listen any more has closed its output too, or is about to: that is where its end is seen.
    with to_say, suppress(OSError):
        async for said in to_say:
            line = said.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(line.encode() + b"\n")
            await process.stdin.drain()


# --- What a server says of its tools ------------------------------------------------------------------------------


def _offered(connections: list[_Connection], reserved: Container[str]) -> ExternalTools:
    offered = ExternalTools(problems={c.name: c.problem for c in connections if c.problem is not None})
    for name, problem in offered.problems.items():
        log.warning("mcp.not_started", server=name, reason=problem)
    found = [(c, tool) for c in connections if c.problem is None for tool in c.listed]
    plain = Counter(_plain_name(c.name, str(tool.get("name"))) for c, tool in found)
    for connection, tool in found:
        raw = tool.get("name")
        name = _plain_name(connection.name, str(raw))
        if plain[name] > 1 or len(name) > MAX_NAME:
            name = _numbered_name(name, connection.name, str(raw))
        reason = _why_not(tool)
        if reason is None and (name in offered.tools or name in reserved):
            reason = "there is one of that name already"
        if reason is not None:
            offered.dropped[name] = reason
            log.warning("mcp.tool_dropped", server=connection.name, tool=name, reason=reason)
            continue
        offered.tools[name] = _make_tool(connection, name, tool)
    return offered


def _make_tool(connection: _Connection, name: str, described: Mapping[str, Any]) -> Tool[ExternalArguments]:
    raw = described["name"]
    description = described.get("description")

    async def handler(arguments: ExternalArguments, context: ToolContext) -> str:
        return await connection.call(raw, arguments.model_extra or {})

    return Tool(
        name,
        connection.clean(description if isinstance(description, str) else "", MAX_DESCRIPTION) or name,
        ExternalArguments,
        handler,
        needs_sandbox=True,
        schema=_tidy(described["inputSchema"]),
    )


def _plain_name(server: str, tool: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", f"{server}__{tool}")


def _numbered_name(name: str, server: str, tool: str) -> str:
    """Short enough, and different for different tools, in every turn the same."""
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{digest}"


def _why_not(tool: Mapping[str, Any]) -> str | None:
    """Why a model's API or an agent could not do anything with it."""
    name, schema = tool.get("name"), tool.get("inputSchema")
    if not isinstance(name, str) or not name or len(name) > 500:
        return "it has no usable name"
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its schema is not that of an object"
    if len(json.dumps(schema)) > MAX_SCHEMA:
        return f"its schema is longer than {MAX_SCHEMA} characters"
    if any(key in schema for key in _COMBINED):
        return f"its schema is a combination ({', '.join(key for key in _COMBINED if key in schema)})"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(_PROPERTY.fullmatch(key) for key in properties):
        return "its arguments have names that cannot be used"
    if any(not reference.startswith("#") for reference in _references(schema)):
        return "its schema refers to something outside of it"
    return None


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield str(part["$ref"])
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _references(inner)


def _tidy(part: Any) -> Any:
    """A schema whose descriptions hold only what can be seen."""
    if isinstance(part, list):
        return [_tidy(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    return {
        key: _printable(value[:MAX_DESCRIPTION])
        if key in ("description", "title") and isinstance(value, str)
        else _tidy(value)
        for key, value in part.items()
    }


def _home_of(program: str) -> tuple[Path, ...]:
    """Where a program that is named by its path lives, so that the sandbox has it: never a whole top folder."""
    path = PurePosixPath(program)
    if not path.is_absolute() or ".." in path.parts or path.parts[1] in ("usr", "bin", "sbin", "lib"):
        return ()
    home = path.parent.parent if path.parent.name == "bin" else path.parent
    return (Path(home),) if len(home.parts) > 2 else ()


# --- What a server says --------------------------------------------------------------------------------------------


def _text_of(result: Mapping[str, Any]) -> str:
    """The texts of a result; what is no text is named."""
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if not blocks and result.get("structuredContent") is not None:
        return json.dumps(result["structuredContent"], ensure_ascii=False)
    return "\n".join(map(_shown, blocks))


def _shown(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return f"[{kind} {_word(block.get('mimeType'))}, {_decoded_size(block.get('data'))} bytes: not shown]"
        case "resource_link":
            return f"[resource {_word(block.get('uri'))} {_word(block.get('mimeType'))}: not shown]"
        case "resource":
            resource = block.get("resource")
            resource = resource if isinstance(resource, dict) else {}
            text, blob = resource.get("text"), resource.get("blob")
            size = len(text.encode("utf-8", "replace")) if isinstance(text, str) else _decoded_size(blob)
            return f"[resource {_word(resource.get('uri'))} {_word(resource.get('mimeType'))}, {size} bytes: not shown]"
        case kind:
            return f"[{_word(kind)}: not shown]"


def _word(value: Any) -> str:
    return re.sub(r"\s", " ", str(value))[:200] if value else "of unknown type"


def _decoded_size(data: Any) -> int:
    return len(data) * 3 // 4 - data[-2:].count("=") if isinstance(data, str) else 0


def _printable(text: str) -> str:
    """Without what cannot be seen: control characters, and those that turn or hide what stands beside them."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else " " for c in text)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _uninterrupted(work: Awaitable[Any]) -> None:
    """Stopping a program goes on to its end, even if whoever stops it is stopped."""
    task = asyncio.ensure_future(work)
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancelled:
            interrupted = cancelled
    task.result()
    if interrupted is not None:
        raise interrupted
