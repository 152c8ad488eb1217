"""The door through which CLI agents reach the tools of their turn: MCP over HTTP, on this machine only.

One per process, on the process's own loop, opened when the first turn needs it. A turn binds its tool box and gets a
token; the token alone decides whose tools are seen, and dies with the turn. Tokens are never logged."""

import asyncio
import contextvars
import hmac
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.types import Receive, Scope, Send

from adapters.contracts import ToolBox
from adapters.local_server import HOST, LocalServer
from models.database import uninterrupted
from workers.tool_binding import Binding, digest_of, refuse

PATH: Final = "/mcp"
_BEARER: Final = re.compile(rb"bearer +(\S+)", re.IGNORECASE)


class ToolServer:
    """`async with server.bind(tools) as binding:` and hand `binding.url` (or, into a sandbox, `binding.socket`) and
    `binding.token` to the agent."""

    def __init__(self) -> None:
        self._bindings: dict[bytes, Binding] = {}
        self._server = LocalServer(self._answer, loopback=True)

    @asynccontextmanager
    async def bind(self, tools: ToolBox, *, seconds: float | None = None) -> AsyncIterator[Binding]:
        """The tools can be called while this is open, and for `seconds` at most."""
        server = self._server
        await server.open()
        binding = Binding(tools, f"http://{HOST}:{server.port}{PATH}", server.socket_path, seconds)
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
        self._bindings.clear()
        await self._server.close()

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


async def _end(binding: Binding, keeper: asyncio.Task[None]) -> None:
    await binding.end()
    await asyncio.gather(keeper, return_exceptions=True)
