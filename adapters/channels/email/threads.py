"""Calling the blocking mail libraries from asyncio. The threads are daemons and nobody waits for them once they are
given up: a server that does not answer must not keep a process from ending."""

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T], hang_up: Callable[[], None], seconds: float) -> T:
    """What `work` returns or raises; TimeoutError after `seconds`. When it is given up, `hang_up` ends it from outside,
    before this returns."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            report = partial(settle, work(), None)
        except Exception as error:  # is raised where it is waited for  # noqa: BLE001
            report = partial(settle, None, error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(report)

    threading.Thread(target=run, name="longshore-email", daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            return await outcome
    except (TimeoutError, asyncio.CancelledError):
        hang_up()
        raise


def cut_off(connection: socket.socket | None) -> None:
    """End a connection that another thread may be reading or writing: it finds it closed. Not by TLS's own `shutdown`,
    after which that thread would go on in the clear."""
    if connection is not None:
        with suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)
