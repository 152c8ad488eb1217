"""Work that goes on to its end, even if whoever waits for it is stopped: ending a program, putting files away."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def uninterrupted(work: Awaitable[T]) -> T:
    """Returns when it is over, however often this is cancelled meanwhile. A cancellation takes effect after it.
    (`asyncio.shield` lets go at the first one, and what it has left behind goes on alone.)"""
    task = asyncio.ensure_future(work)
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancelled:
            interrupted = cancelled
    if interrupted is not None:
        if not task.cancelled():
            task.exception()  # has been seen
        raise interrupted
    return task.result()
