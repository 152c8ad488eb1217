"""A process that lets messages in and runs no turns: what it may use, made once on its loop, and its sign of life."""

import asyncio
import contextlib
import os
from typing import Final

import redis.asyncio
import structlog

from adapters.errors import AdapterError
from adapters.registry import Registry
from models.base import new_id
from models.database import Database
from models.errors import StoreError
from models.fleet import report_alive, report_gone
from workers.bells import Bells
from workers.events import redis_client
from workers.intake.doors import finish_telling
from workers.runtime import Node
from workers.settings import Settings

log = structlog.get_logger()

CLOSE_SECONDS: Final = 5.0


class Outpost:
    """`async with` around what the process does."""

    def __init__(self, settings: Settings, bells: Bells, registry: Registry, node: Node) -> None:
        self.settings: Final = settings
        self.bells: Final = bells
        self.registry: Final = registry
        self.node: Final = node
        # Unique per process life, as a worker's is.
        self.owner: Final = f"{node.name}:{os.getpid()}:{new_id()[-6:]}"
        self.db: Final = Database(
            settings.database_url, pool_size=settings.database_pool, prepare=settings.database_prepare
        )
        self.redis: Final[redis.asyncio.Redis] = redis_client(settings.redis_url)
        self._reporting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Outpost":
        channels = self.registry.channels
        for name in set(channels.names) - set(channels.working):
            log.warning("channel.not_usable", channel=name, reason=self._why(name))
        self._reporting = asyncio.create_task(self._report(), name="longshore-presence")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._reporting is not None
        self._reporting.cancel()
        await asyncio.gather(self._reporting, return_exceptions=True)
        await finish_telling()
        await asyncio.to_thread(self.bells.close)
        for name in self.registry.channels.made:
            with contextlib.suppress(Exception):  # one that cannot be closed must not keep the others open
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self.registry.channels.get(name).close()
        await self.redis.aclose()
        with contextlib.suppress(StoreError):
            await self.db.transact(lambda conn: report_gone(conn, self.node.name), patience=1)
        await self.db.close()

    async def _report(self) -> None:
        while True:
            try:
                await self.db.transact(
                    lambda conn: report_alive(conn, self.node.name, self.node.kind, pid=os.getpid()), patience=1
                )
            except StoreError as error:
                log.warning("presence.not_reported", error=str(error))
            await asyncio.sleep(self.settings.lease_seconds / 3)

    def _why(self, name: str) -> str:
        try:
            self.registry.channels.get(name)
        except AdapterError as error:
            return str(error)
        return ""
