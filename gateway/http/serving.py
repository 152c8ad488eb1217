"""Serving the gateway: one process, one loop; on SIGTERM it takes no more and finishes what it has begun."""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:  # the benchmark serves an app of its own, without these routes
    from gateway.http.app import Gateway

# What is being answered has so long when the process is told to stop; whoever waits for an agent is let go at once.
GRACE_SECONDS: Final = 10
CONNECTIONS: Final = 2000  # at once
HEAD_SECONDS: Final = 20.0  # for the head of a request, and for what is still coming after the answer
IDLE_SECONDS: Final = 5  # between two requests of one connection


async def serve(app: "Gateway", listener: socket.socket) -> None:
    """Until SIGTERM or SIGINT."""
    server = make_server(app)

    def stop() -> None:
        server.should_exit = True
        app.close()

    loop = asyncio.get_running_loop()
    for sig in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sig, stop)
    # What is here now stays. Going through all of it takes the collector a tenth of a second, in which everybody waits.
    gc.collect()
    gc.freeze()
    await server.serve([listener])


def make_server(app: ASGIApp) -> uvicorn.Server:
    return _Server(
        uvicorn.Config(
            app,
            http=_Hurried,
            ws="none",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            # Who a proxy says it speaks for is nothing we go by.
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )


class _Hurried(H11Protocol):
    """A connection on which nothing is being answered is ended when its next request does not come in time: enough that
    only dribble would otherwise keep everybody else out."""

    _hurry: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self._hurry = self.loop.call_later(HEAD_SECONDS, self._end_unless_answering)

    def _stop_waiting(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()

    def _end_unless_answering(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


class _Server(uvicorn.Server):
    """Signals are ours to hear: requests that wait for an agent must be told as well."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
