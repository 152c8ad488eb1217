"""An HTTP server on the process's own loop, for programs on this machine: our tools, and the way to a model.

Opened when it is first needed. It listens on a unix socket (a sandbox without network has that mounted), and on
127.0.0.1 if somebody outside a sandbox needs it. Who is answered is the application's business."""

import asyncio
import contextvars
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HOST: Final = "127.0.0.1"
FOLDERS: Final = "longshore-door-"
SOCKET: Final = "http.sock"
CONNECTIONS: Final = 500  # at once, of all programs together


class LocalServer:
    """`socket_path` and `port` mean something once it is open."""

    def __init__(self, app: ASGIApp, *, loopback: bool = False) -> None:
        self._app = app
        self._loopback = loopback
        self._starting = asyncio.Lock()
        self._server: _Uvicorn | None = None
        self._serving: asyncio.Task[None] | None = None
        self._folder: Path | None = None
        self.port = 0

    @property
    def socket_path(self) -> Path:
        assert self._folder is not None
        return self._folder / SOCKET

    async def open(self) -> None:
        """Listen, if it does not yet."""
        async with self._starting:
            if self._serving is not None:
                return
            await asyncio.to_thread(_clear_away_dead)
            self._folder = Path(tempfile.mkdtemp(prefix=FOLDERS))
            sockets = [_listen_at(self.socket_path)]
            if self._loopback:
                sockets.append(listen_on(HOST, 0))
                self.port = sockets[1].getsockname()[1]
            config = uvicorn.Config(
                self._app,
                http=_Connection,
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

    async def close(self) -> None:
        async with self._starting:
            if self._server is None or self._serving is None or self._folder is None:
                return
            self._server.should_exit = True
            await asyncio.wait({self._serving})
            shutil.rmtree(self._folder, ignore_errors=True)
            self._server = self._serving = self._folder = None


class _Connection(H11Protocol):
    """Uvicorn's own limit would refuse everybody as soon as one program holds that many, asked for anything or not.
    Here room is made for who comes: whoever waits for nothing has to go, first who has been silent longest."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.heard = self.loop.time()
        held = [one for one in self.connections if isinstance(one, _Connection) and not one.transport.is_closing()]
        if len(held) > CONNECTIONS:  # this one is idle as well, so there always is one
            min((one for one in held if one.is_idle), key=lambda one: one.heard).transport.abort()

    def data_received(self, data: bytes) -> None:
        self.heard = self.loop.time()
        super().data_received(data)

    @property
    def is_idle(self) -> bool:
        """It has not asked yet, not to the end, or does not take its answer."""
        asking: RequestResponseCycle | None = self.cycle
        return asking is None or asking.response_complete or asking.more_body or self.flow.write_paused


class _Uvicorn(uvicorn.Server):
    """Uvicorn on somebody else's loop: the process's signals are not its business."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen_on(host: str, port: int) -> socket.socket:
    """OSError: the address is taken, or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    # Inherited by accepted connections; asyncio sets it only on sockets that it opened itself. Without it, the kernel
    # holds an answer's second piece until the client confirms the first, which takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def _listen_at(path: Path) -> socket.socket:
    """For every user, as a sandboxed agent may be another one: a token decides who is answered."""
    path.parent.chmod(0o711)  # to be entered, not to be looked into
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    unfinished = path.with_suffix(".new")
    try:
        listener.bind(str(unfinished))
        os.chmod(unfinished, 0o666)  # noqa: S103
        listener.listen()
        unfinished.rename(path)  # under its name only since it listens: what does not is dead
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _clear_away_dead() -> None:
    """The folders of processes that were killed: nobody listens there any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDERS}*"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
            try:
                visitor.settimeout(1)
                visitor.connect(str(folder / SOCKET))
            except ConnectionRefusedError:
                shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                continue  # not ours, or not ready yet
