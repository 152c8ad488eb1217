"""Telling a provider that hangs from one that works: silence counts, but not while one of our tools runs for it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
SLACK = 1.02


class SilenceError(Exception):
    """Nothing was said for too long."""


class Watchdog:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._busy = 0
        self._timeout: asyncio.Timeout | None = None

    async def watch(self, events: AsyncIterator[T]) -> AsyncIterator[T]:
        """The same events; SilenceError when none comes for too long."""
        while True:
            try:
                async with asyncio.timeout(None if self._busy else self._seconds) as self._timeout:
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if self._timeout is not None and self._timeout.expired():
                    raise SilenceError from None
                raise  # the provider's own
            finally:
                self._timeout = None
            yield event

    def alive(self) -> None:
        """A sign of life that is no event. They come by the hundred per second and stream: the timer is only moved when
        it has run down a little, and then as much further, so that it is never early."""
        due = self._timeout.when() if self._timeout is not None else None
        now = asyncio.get_running_loop().time()
        if due is not None and due < now + self._seconds:
            self._reschedule(now + self._seconds * SLACK)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Within this, silence is not the provider's."""
        self._busy += 1
        self._reschedule(None)
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._reschedule(asyncio.get_running_loop().time() + self._seconds)

    def _reschedule(self, when: float | None) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(when)
