"""The door through which CLI agents reach the tools of their turn: MCP over HTTP, on this machine only.

One per process, on the process's own loop, opened when the first turn needs it. A turn binds its tool box and gets a
token; the token alone decides whose tools are seen, and dies with the turn. Tokens are never logged."""

import asyncio
import contextvars
import hmac
import logging
import os
import re
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import structlog
import uvicorn
from starlette.types import Receive, Scope, Send

from adapters.contracts import ToolBox
from models.database import uninterrupted
from workers.tool_binding import Binding, digest_of, refuse

log = structlog.get_logger()

HOST: Final = "127.0.0.1"
PATH: Final = "/mcp"
_BEARER: Final = re.compile(rb"bearer +(\S+)", re.IGNORECASE)


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
            await refuse(send, 401, binding)
        elif scope["path"] != PATH:
            await refuse(send, 404, f"there is only {PATH} here")
        elif scope["method"] != "POST":
            # Nothing is ever said without being asked, so there is no stream to open and no session to delete.
            await refuse(send, 405, "only POST is answered", (b"allow", b"POST"))
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
        digest = digest_of(match[1])
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
