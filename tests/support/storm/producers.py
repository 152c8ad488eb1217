"""How messages come in: by the function behind the gateway, and by a plain Celery producer of another service.

Both do as callers should. The gateway's caller repeats what was not accepted. The producer repeats, under
the same `message_id`, what has no row after a while: until then the broker has the only copy, and it may be flushed."""

import asyncio
import time
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from adapters.registry import Registry
from models import MessageIn
from models.errors import DatabaseDownError
from tests.support.storm.installation import StormFleet
from tests.support.storm.ledger import Planned
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.settings import Settings

MISSED_AFTER_SECONDS = 4.0


class Producers:
    def __init__(self, fleet: StormFleet) -> None:
        self._fleet = fleet
        self._registry = Registry()
        self._settings = Settings(
            database_url=fleet.database_url,
            redis_url=fleet.valkey.url,
            default_provider="scripted",
            repeat_seconds=1,
        )
        # Nothing of ours: what any other service would write.
        self._producer = Celery("elsewhere", broker=fleet.valkey.url)
        self._producer.conf.broker_transport_options = {"socket_timeout": 5, "socket_connect_timeout": 2}
        self._sent: dict[str, tuple[Planned, float]] = {}
        self._wakes: set[asyncio.Task[bool]] = set()
        self._rows: dict[str, str] = {}
        self.doubled: list[str] = []
        self.down = 0
        self.resent = 0
        self.duplicates = 0

    async def send(self, message: Planned) -> None:
        for _ in range(2 if message.twice else 1):
            if message.via == "accept":
                await self._accept(message)
            else:
                self._sent[message.word] = (message, time.monotonic())
                await self._publish(message)

    async def repeat_missed(self) -> bool:
        """Send again what the broker seems to have lost. True when nothing is missing."""
        try:
            known = {row.platform_message_id for row in await self._fleet.rows(MessageIn)}
        except DatabaseDownError:
            return False
        missing = [entry for word, entry in self._sent.items() if word not in known]
        for message, at in missing:
            if time.monotonic() - at > MISSED_AFTER_SECONDS:
                self._sent[message.word] = (message, time.monotonic())
                self.resent += 1
                await self._publish(message)
        return not missing

    async def wake(self, session_id: str) -> None:
        await self._ring("agent.wake", [session_id], None, "agent.scripted")

    async def close(self) -> None:
        await asyncio.gather(*self._wakes)
        await asyncio.to_thread(self._producer.close)
        self._producer.pool.force_close_all()

    async def _accept(self, message: Planned) -> None:
        """As the gateway does, for a caller that repeats on 503."""
        incoming = parse_incoming(_fields(message))
        while True:
            try:
                accepted: Accepted = await accept(self._fleet.db, self._registry, self._settings, incoming)
                break
            except DatabaseDownError:
                self.down += 1
                await asyncio.sleep(0.3)
        self.duplicates += accepted.duplicate
        if self._rows.setdefault(message.word, accepted.message_id) != accepted.message_id:
            self.doubled.append(message.word)
        if accepted.wake_provider is not None:
            # Not waited for: with the broker away the message is accepted all the same.
            ring = asyncio.create_task(self._ring("agent.wake", [accepted.session_id], None, "agent.scripted"))
            self._wakes.add(ring)
            ring.add_done_callback(self._wakes.discard)

    async def _publish(self, message: Planned) -> None:
        await self._ring("messages.ingest", None, _fields(message), "messages")

    async def _ring(self, task: str, args: Any, kwargs: Any, queue: str) -> bool:
        def send() -> bool:
            try:
                self._producer.send_task(task, args=args, kwargs=kwargs, queue=queue, retry=False, ignore_result=True)
            except (OperationalError, RedisError, OSError):
                return False
            return True

        return await asyncio.to_thread(send)


def _fields(message: Planned) -> dict[str, Any]:
    return {
        "agent_group": message.place.group,
        "channel_type": "webhook",
        "platform_id": message.place.endpoint,
        "thread_id": message.place.thread,
        "message_id": message.word,
        "sender_id": "storm",
        "text": message.text,
    }
