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

HOST: Final = "127.0.0.1"
FOLDERS: Final = "longshore-door-"
SOCKET: Final = "http.sock"
CONNECTIONS: Final = 1000  # at once, of all programs together


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
                sockets.append(_listen_on_loopback())
                self.port = sockets[1].getsockname()[1]
            config = uvicorn.Config(
                self._app,
                interface="asgi3",
                lifespan="off",
                ws="none",
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=CONNECTIONS,
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


class _Uvicorn(uvicorn.Server):
    """Uvicorn on somebody else's loop: the process's signals are not its business."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen_on_loopback() -> socket.socket:
    listener = socket.create_server((HOST, 0))
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
