"""The listener for nudges ends when it is told to, whatever the Redis client makes of that."""

import asyncio
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from workers import nudges
from workers.nudges import Nudges


class Connecting:
    """A client that is stopped while it connects, and reports that as a broken connection."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def pubsub(self, **_: Any) -> "Connecting":
        return self

    async def __aenter__(self) -> "Connecting":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def psubscribe(self, *_: str) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RedisConnectionError("connecting failed") from None


@pytest.mark.spec("M6")
async def test_it_ends_when_it_is_stopped_while_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nudges, "AGAIN_SECONDS", 0.001)
    client = Connecting()
    listener = Nudges(client, lambda _: None, lambda *_: None)  # type: ignore[arg-type]
    await client.begun.wait()
    async with asyncio.timeout(2):
        await listener.close()
