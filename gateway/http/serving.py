"""Serving the gateway: one process, one loop; on SIGTERM it takes no more and finishes what it has begun."""

import asyncio
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from fastapi import FastAPI

# What is being answered has so long when the process is told to stop; whoever waits for an agent is let go at once.
GRACE_SECONDS: Final = 10
CONNECTIONS: Final = 2000  # at once


async def serve(app: FastAPI, listener: socket.socket) -> None:
    """Until SIGTERM or SIGINT."""
    server = make_server(app)

    def stop() -> None:
        server.should_exit = True
        app.state.stirrings.close()

    loop = asyncio.get_running_loop()
    for sig in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sig, stop)
    await server.serve([listener])


def make_server(app: FastAPI) -> uvicorn.Server:
    return _Server(
        uvicorn.Config(
            app,
            ws="none",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            # Who a proxy says it speaks for is nothing we go by.
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )


class _Server(uvicorn.Server):
    """Signals are ours to hear: requests that wait for an agent must be told as well."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen_on(host: str, port: int) -> socket.socket:
    """OSError: the address is taken, or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    listener.setblocking(False)
    return listener
