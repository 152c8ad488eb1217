"""Nudges: telling the worker that runs a session that somebody has said something meanwhile, has given its turn up, or
sits at its terminal. Best effort: the first two the lease's renewal notices as well, only later."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import redis.asyncio
import structlog
from redis.exceptions import RedisError

from workers.events import obey_cancellation

log = structlog.get_logger()

_PREFIX: Final = "nudge:"
_CONTROL: Final = "control:"
AGAIN_SECONDS: Final = 1.0


def nudge_channel(session_id: str) -> str:
    return f"{_PREFIX}{session_id}"


def control_channel(session_id: str) -> str:
    return f"{_CONTROL}{session_id}"


class Nudges:
    """Listens for all sessions with one connection: a nudge is rare, a subscription per turn would not be."""

    def __init__(
        self, client: redis.asyncio.Redis, heard: Callable[[str], None], controlled: Callable[[str, bytes], None]
    ) -> None:
        self._client = client
        self._heard = heard
        self._controlled = controlled
        self._task = asyncio.create_task(self._run(), name="longshore-nudges")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            obey_cancellation()
            with suppress(RedisError, OSError, TimeoutError):
                async with self._client.pubsub(ignore_subscribe_messages=True) as pubsub:
                    await pubsub.psubscribe(f"{_PREFIX}*", f"{_CONTROL}*")
                    while True:
                        obey_cancellation()
                        message = await pubsub.get_message(timeout=30.0)
                        if message is not None:
                            self._take(message)
            await asyncio.sleep(AGAIN_SECONDS)

    def _take(self, message: dict[str, bytes]) -> None:
        try:
            channel = message["channel"].decode()
            if channel.startswith(_CONTROL):
                self._controlled(channel.removeprefix(_CONTROL), message["data"])
            else:
                self._heard(channel.removeprefix(_PREFIX))
        except Exception:  # noqa: BLE001 - whatever somebody has sent: the next one is still to be heard
            log.warning("nudge.not_understood")
