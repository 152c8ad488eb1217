"""The door through which CLI agents reach the tools of their turn: MCP over HTTP, on this machine only.

One per process, on the process's own loop, opened when the first turn needs it. A turn binds its tool box and gets a
token; the token alone decides whose tools are seen, and dies with the turn. Tokens are never logged."""

import asyncio
import contextvars
import hashlib
import hmac
import itertools
import json
import logging
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Message, Receive, Scope, Send

from adapters.contracts import ParkedError, ToolBox, ToolOutcome, ToolSpec
from adapters.tools.mcp_server import make_server
from models.database import uninterrupted

log = structlog.get_logger()

HOST: Final = "127.0.0.1"
PATH: Final = "/mcp"
MAX_BODY: Final = 4 << 20
# So long a request may go on sending its body after the turn it belongs to has ended.
LAST_WORDS_SECONDS: Final = 1.0
TURN_OVER: Final = "the turn is over: its tools cannot be used any more"
_BEARER: Final = re.compile(rb"bearer +(\S+)", re.IGNORECASE)

T = TypeVar("T")


class Binding:
    """The tools of one turn, as long as it lasts. Itself a ToolBox: it remembers what waits for a person, and ends
    the calls that outlast the turn."""

    def __init__(
        self, tools: ToolBox, url: str, hosts: list[str], socket_path: Path | None, seconds: float | None
    ) -> None:
        self._tools = tools
        self.url: Final = url
        self.socket: Final = socket_path
        self.token: Final = secrets.token_urlsafe(32)
        self.digest: Final = _digest(self.token.encode())
        self.parked: ParkedError | None = None
        self._expires = None if seconds is None else time.monotonic() + seconds
        self._open = True
        self._numbers = itertools.count(1)
        # Calls run as part of the turn (its job, its log context), not of the connection they came by.
        self._context = contextvars.copy_context()
        self._calls: set[asyncio.Task[Any]] = set()
        self._requests: set[asyncio.Task[Any]] = set()
        self._over = asyncio.Event()
        self._manager = StreamableHTTPSessionManager(
            make_server(self, name_call=lambda: f"mcp_{next(self._numbers)}"),
            json_response=True,
            stateless=True,
            security_settings=TransportSecuritySettings(allowed_hosts=hosts),
            max_request_body_size=MAX_BODY,
        )

    def __repr__(self) -> str:
        return f"<Binding {self.url}>"

    @property
    def is_valid(self) -> bool:
        return self._open and (self._expires is None or time.monotonic() < self._expires)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._tools.specs

    async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        if not self._open:
            return ToolOutcome(TURN_OVER, ok=False)
        with self._within(self._calls, self._run(call_id, name, arguments), self._context.copy()) as task:
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                if not task.cancelled():  # whoever asked has gone; nobody would hear the answer
                    raise
                return ToolOutcome(TURN_OVER, ok=False)

    async def _run(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        try:
            return await self._tools.call(call_id, name, arguments)
        except ParkedError as parked:  # also when nobody listens any more: the question has been put
            if self.parked is None or parked.seconds < self.parked.seconds:
                self.parked = parked
            raise

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that came with the token. In a task of its own, so that the turn's end can end it."""
        begun = False

        async def watched_send(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        with self._within(self._requests, self._manager.handle_request(scope, receive, watched_send)) as task:
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                if not task.cancelled():
                    raise
                if not begun:
                    await _refuse(send, 401, TURN_OVER)

    async def keep(self, ready: asyncio.Event) -> None:
        async with self._manager.run():
            ready.set()
            await self._over.wait()

    async def end(self) -> None:
        """No new calls; those under way are cancelled, and have ended when this returns."""
        self._open = False
        await _cancel(self._calls)
        if self._requests:
            await asyncio.wait(self._requests, timeout=LAST_WORDS_SECONDS)
        await _cancel(self._requests)
        self._over.set()

    @contextmanager
    def _within(
        self,
        tasks: set[asyncio.Task[Any]],
        work: Coroutine[Any, Any, T],
        context: contextvars.Context | None = None,
    ) -> Iterator[asyncio.Task[T]]:
        task = asyncio.create_task(work, context=context)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        try:
            yield task
        finally:
            task.cancel()


class ToolServer:
    """`async with server.bind(tools) as binding:` and hand `binding.url` and `binding.token` to the agent.

    `socket_path`: also listen there, for an agent in a sandbox without network that has the socket mounted."""

    def __init__(self, socket_path: Path | None = None) -> None:
        self._socket_path = socket_path
        self._bindings: dict[bytes, Binding] = {}
        self._starting = asyncio.Lock()
        self._server: _Uvicorn | None = None
        self._serving: asyncio.Task[None] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}{PATH}"

    @asynccontextmanager
    async def bind(self, tools: ToolBox, *, seconds: float | None = None) -> AsyncIterator[Binding]:
        """The tools can be called while this is open, and for `seconds` at most."""
        await self._start()
        hosts = [f"{HOST}:{self._port}", f"localhost:{self._port}"]
        if self._socket_path is not None:
            hosts.append("localhost")
        binding = Binding(tools, self.url, hosts, self._socket_path, seconds)
        ready = asyncio.Event()
        keeper = asyncio.create_task(binding.keep(ready), context=contextvars.Context())
        try:
            await ready.wait()
            self._bindings[binding.digest] = binding
            yield binding
        finally:
            self._bindings.pop(binding.digest, None)
            await uninterrupted(_end(binding, keeper))

    async def close(self) -> None:
        """Stop listening. Turns have ended by now; what is still bound cannot be reached any more."""
        async with self._starting:
            if self._server is None or self._serving is None:
                return
            self._bindings.clear()
            self._server.should_exit = True
            await self._serving
            self._server = self._serving = None
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)

    async def _start(self) -> None:
        async with self._starting:
            if self._serving is not None:
                return
            sockets = [_listen_on_loopback()]
            if self._socket_path is not None:
                sockets.append(_listen_at(self._socket_path))
            self._port = sockets[0].getsockname()[1]
            config = uvicorn.Config(
                self._answer,
                interface="asgi3",
                lifespan="off",
                ws="none",
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
            self._server = _Uvicorn(config)
            # A context of its own: the first turn's must not be that of everybody's requests.
            self._serving = asyncio.create_task(self._server.serve(sockets), context=contextvars.Context())
            log.debug("tool_server.started", port=self._port)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        binding = self._bound(scope)
        if isinstance(binding, str):
            await _refuse(send, 401, binding)
        elif scope["path"] != PATH:
            await _refuse(send, 404, f"there is only {PATH} here")
        elif scope["method"] != "POST":
            # Nothing is ever said without being asked, so there is no stream to open and no session to delete.
            await _refuse(send, 405, "only POST is answered", (b"allow", b"POST"))
        else:
            await binding.handle(scope, receive, send)

    def _bound(self, scope: Scope) -> Binding | str:
        """Whose request this is, by its token and nothing else; or why it is nobody's."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return "one header `Authorization: Bearer <token>` is needed"
        if (match := _BEARER.fullmatch(given[0].strip())) is None:
            return "the Authorization header is not `Bearer <token>`"
        # Found by a hash: how long that takes says nothing about a token.
        digest = _digest(match[1])
        binding = self._bindings.get(digest)
        if binding is None or not hmac.compare_digest(binding.digest, digest) or not binding.is_valid:
            return "the token is unknown or has expired"
        return binding


class _Uvicorn(uvicorn.Server):
    """Uvicorn on somebody else's loop: the process's signals are not its business."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _end(binding: Binding, keeper: asyncio.Task[None]) -> None:
    await binding.end()
    await asyncio.gather(keeper, return_exceptions=True)


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _listen_on_loopback() -> socket.socket:
    listener = socket.create_server((HOST, 0))
    listener.setblocking(False)
    return listener


def _listen_at(path: Path) -> socket.socket:
    """For every user, as a sandboxed agent may be another one: the folder decides who comes here, and the token who is
    answered. A socket that a killed worker left is replaced."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        os.chmod(path, 0o666)  # noqa: S103
        listener.listen()
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


async def _refuse(send: Send, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": reason}).encode()
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        own.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})
