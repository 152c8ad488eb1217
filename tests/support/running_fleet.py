"""A fleet that works by itself on the test's own loop: bells are answered as they ring, many at once, and a sweep comes
round. For tests that watch it from outside, over HTTP or in a browser."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from adapters.events import Envelope
from adapters.registry import Registry
from scheduler.ringing import Pace
from scheduler.sweep import sweep
from tests.support.fleet import Fleet
from workers import delivery, turn
from workers.events import ALL, channel_of, redis_client
from workers.nudges import nudge_channel
from workers.runtime import Node, Runtime
from workers.settings import Settings
from workers.workflows.engine import advance

SWEEP_SECONDS = 0.2


class LivingBells:
    def __init__(self, redis_url: str) -> None:
        self.runtime: Runtime | None = None
        self._redis = redis_client(redis_url)
        self._tasks: set[asyncio.Task[Any]] = set()

    def wake(self, session_id: str, provider: str) -> None:
        assert self.runtime is not None
        self._go(turn.wake(self.runtime, session_id, provider))

    def deliver(self, message_out_id: str) -> None:
        assert self.runtime is not None
        self._go(delivery.send(self.runtime, message_out_id))

    def settle(self, message_out_id: str) -> None:
        assert self.runtime is not None
        self._go(delivery.settle_doubtful(self.runtime, message_out_id))

    def advance(self, workflow_id: str) -> None:
        assert self.runtime is not None
        self._go(advance(self.runtime, workflow_id))

    def nudge(self, session_id: str) -> None:
        self._go(self._redis.publish(nudge_channel(session_id), "look"))

    def tell(self, *envelopes: Envelope) -> None:
        for item in envelopes:
            for channel in (channel_of(item.session), ALL):
                self._go(self._redis.publish(channel, item.to_json()))

    def close(self) -> None:
        """`end` does it, on the loop."""

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._redis.aclose()

    def _go(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class LivingFleet(Fleet):
    def __init__(self, settings: Settings, registry: Registry | None = None) -> None:
        self.ringing = LivingBells(settings.redis_url)
        self.runtime = Runtime(settings, self.ringing, registry, Node("living"))
        self.ringing.runtime = self.runtime
        self.bells = self.ringing  # type: ignore[assignment]
        self.db = self.runtime.db


@asynccontextmanager
async def living(settings: Settings, registry: Registry | None = None) -> AsyncIterator[LivingFleet]:
    fleet = LivingFleet(settings, registry)

    pace = Pace(settings.repeat_seconds, settings.default_provider)

    async def go_round() -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            found = await sweep(fleet.db, pace)
            for wake in found.wakes:
                fleet.ringing.wake(wake.session_id, wake.provider)
            for message_out_id in found.deliveries:
                fleet.ringing.deliver(message_out_id)
            for workflow_id in found.workflows:
                fleet.ringing.advance(workflow_id)

    rounds = asyncio.create_task(go_round())
    try:
        yield fleet
    finally:
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)
        await fleet.ringing.end()
        await fleet.close()
