"""Tells requests that wait for an agent that something has happened in its session: one subscription for all of them.

Best effort. Whoever waits looks into the rows by itself as well, now and then; this only makes it quick."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import redis.asyncio
import structlog
from redis.exceptions import RedisError

from workers.events import ALL, LOOK_AGAIN_SECONDS, obey_cancellation

log = structlog.get_logger()

AGAIN_SECONDS: Final = 1.0


class Ear:
    """Hears of some sessions; `words` are looked for in the events of all others."""

    def __init__(self, words: bytes | None = None) -> None:
        self.sessions: set[str] = set()
        self._words = words
        self._event = asyncio.Event()
        self.closed = False

    def hear(self, raw: bytes) -> None:
        if any(session.encode() in raw for session in self.sessions) or (self._words and self._words in raw):
            self._event.set()

    def close(self) -> None:
        self.closed = True
        self._event.set()

    async def wait(self, seconds: float = LOOK_AGAIN_SECONDS) -> None:
        """Until something happened, or it is time to look anyway."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


class Stirrings:
    """Made and closed with the gateway. Subscribes when somebody waits for the first time."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._ears: set[Ear] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @contextlib.contextmanager
    def ear(self, words: bytes | None = None) -> Iterator[Ear]:
        """`closed` is set when the gateway stops: whoever waits is to make an end."""
        ear = Ear(words)
        if self._closed:
            ear.close()
        elif self._task is None:
            self._task = asyncio.create_task(self._run(), name="longshore-stirrings")
        self._ears.add(ear)
        try:
            yield ear
        finally:
            self._ears.discard(ear)

    def stir(self, raw: bytes) -> None:
        """Something has happened, here or elsewhere."""
        for ear in self._ears:
            ear.hear(raw)

    def close(self) -> None:
        """Everybody who waits stops waiting."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        for ear in self._ears:
            ear.close()

    async def _run(self) -> None:
        while True:
            obey_cancellation()
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                async with self._client.pubsub(ignore_subscribe_messages=True) as pubsub:
                    await pubsub.subscribe(ALL)
                    while True:
                        obey_cancellation()
                        message = await pubsub.get_message(timeout=LOOK_AGAIN_SECONDS)
                        if message is not None:
                            self.stir(message["data"])
            await asyncio.sleep(AGAIN_SECONDS)
