"""Everything known of each queue: rows that are due, messages in the broker, and which workers read it.

For the command line and the console. The rows are the truth; what lies in the broker is beside it, and may be away."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import redis.asyncio
from redis.exceptions import RedisError

from models.overview import Overview
from workers.queues import Look, look, waiting

PATIENCE_SECONDS: Final = 1.0
STRAY_SECONDS: Final = 30.0


@dataclass(frozen=True)
class QueueState:
    """`due`: rows that are to be worked on now, the first of them since `oldest`. `in_broker`: messages and bells that
    nobody has taken yet; None: the broker does not answer. `stray`: no queue of ours, so that nobody reads it."""

    queue: str
    in_broker: int | None
    due: int
    oldest: datetime | None
    workers: list[str]
    stray: bool

    @property
    def is_stuck(self) -> bool:
        return self.due > 0 and not self.workers


def queue_states(seen: Overview, lists: Sequence[Look] | None, names: Sequence[str]) -> list[QueueState]:
    """Our queues, those of rows that wait for a provider which is not installed, then the stray lists. `lists`: what
    lies in the broker, as `look` tells it; None: it does not answer. `names`: our queues."""
    due = {one.queue: one for one in seen.waiting}
    lying = {one.name: one.waiting for one in lists or () if one.is_ours}
    workers = [process for process in seen.processes if process.alive and process.kind == "worker"]
    states = []
    for name in dict.fromkeys([*names, *due]):
        one = due.get(name)
        states.append(
            QueueState(
                name,
                in_broker=None if lists is None else lying.get(name, 0),
                due=one.messages + one.tasks if one else 0,
                oldest=one.oldest if one else None,
                workers=[process.name for process in workers if name in process.queues],
                stray=False,
            )
        )
    strays = [one for one in lists or () if not one.is_ours]
    return states + [QueueState(one.name, one.waiting, 0, None, [], stray=True) for one in strays]


class Lists:
    """What lies in the broker, for pages that look every few seconds: stray lists, for which one walks over all keys,
    are looked for only now and then."""

    def __init__(self, client: redis.asyncio.Redis, names: Sequence[str]) -> None:
        self._client, self.names = client, names
        self._strays: list[Look] = []
        self._looked = float("-inf")

    async def look(self) -> list[Look] | None:
        """None: the broker does not answer."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                ours = await waiting(self._client, self.names)
        except (RedisError, OSError, TimeoutError):
            return None
        return [*ours, *await self._stray_ones()]

    async def _stray_ones(self) -> list[Look]:
        if time.monotonic() - self._looked > STRAY_SECONDS:
            self._looked = time.monotonic()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    self._strays = [one for one in await look(self._client, self.names) if not one.is_ours]
            except (RedisError, OSError, TimeoutError):
                self._strays = []
        return self._strays
