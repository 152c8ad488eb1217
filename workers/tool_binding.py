"""The tools of one turn, as the tool server offers them: what a token opens, and closes when the turn ends.

Calls belong to the turn and not to the connection they came by; none outlasts it, and a question that was put to a
person is remembered even if whoever asked has gone."""

import asyncio
import contextvars
import hashlib
import itertools
import json
import secrets
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Message, Receive, Scope, Send

from adapters.contracts import ParkedError, ToolBox, ToolOutcome, ToolSpec
from adapters.tools.mcp_server import make_server

MAX_BODY: Final = 4 << 20
# Whatever the port is where the caller is; a page in somebody's browser would come under its own name.
HOSTS: Final = ["127.0.0.1:*", "localhost:*", "localhost"]
# So long a request may go on sending its body after the turn it belongs to has ended.
LAST_WORDS_SECONDS: Final = 1.0
TURN_OVER: Final = "the turn is over: its tools cannot be used any more"

T = TypeVar("T")


class Binding:
    """The tools of one turn, as long as it lasts. Itself a ToolBox: it remembers what waits for a person, and ends
    the calls that outlast the turn."""

    def __init__(self, tools: ToolBox, url: str, socket_path: Path, seconds: float | None) -> None:
        self._tools = tools
        self.url: Final = url
        self.socket: Final = socket_path
        self.token: Final = secrets.token_urlsafe(32)
        self.digest: Final = digest_of(self.token.encode())
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
            security_settings=TransportSecuritySettings(allowed_hosts=HOSTS),
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
                    await refuse(send, 401, TURN_OVER)

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


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


def digest_of(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


async def refuse(send: Send, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": reason}).encode()
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        own.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})
