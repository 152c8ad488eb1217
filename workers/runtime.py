"""The composition root: what a process's tasks may use, made once on its event loop."""

import asyncio
import contextlib
import os
import socket
from dataclasses import dataclass
from typing import Final

import structlog

from adapters.contracts import Channel
from adapters.model_port import ModelProvider
from adapters.redaction import process_redactor
from adapters.registry import Registry
from adapters.sandbox.choice import make_sandbox
from adapters.sandbox.port import Sandbox
from adapters.web import Web
from adapters.workspace import Workspace
from models.base import new_id
from models.database import Database
from models.errors import StoreError
from models.fleet import report_alive, report_gone
from scheduler.backoff import Backoff
from workers.bells import Bells
from workers.breaker import Breaker
from workers.events import Publisher, redis_client
from workers.governor import Governor
from workers.leases import LeaseKeeper
from workers.nudges import Nudges
from workers.outbox import Outbox
from workers.settings import Settings
from workers.verdicts import Patience

log = structlog.get_logger()


@dataclass(frozen=True)
class Node:
    """How this process is known in the fleet."""

    name: str
    kind: str = "worker"
    queues: tuple[str, ...] = ()


class Runtime:
    """Made and closed on the process's loop. Nothing here outlives it."""

    def __init__(
        self, settings: Settings, bells: Bells, registry: Registry | None = None, node: Node | None = None
    ) -> None:
        self.settings: Final = settings
        self.node: Final = node or Node(f"process@{socket.gethostname()}")
        # Unique per process life: a restarted worker must not be taken for the one that died.
        self.owner: Final = f"{self.node.name}:{os.getpid()}:{new_id()[-6:]}"
        self.registry: Final = registry or Registry()
        self.backoff: Final = Backoff(settings.retry_base_seconds, settings.max_tries)
        self.patience: Final = Patience(self.backoff, settings.failover_seconds, settings.limit_seconds)
        self.db: Final = Database(
            settings.database_url, pool_size=settings.database_pool, prepare=settings.database_prepare
        )
        self.bells: Final = bells
        self._workspaces: set[str] = set()
        self._probed: asyncio.Future[Sandbox | None] | None = None
        self.outbox: Final = Outbox(settings.workspace_root)
        self.redactor: Final = process_redactor()
        self.web: Final = Web([host.strip() for host in settings.private_hosts.split(",") if host.strip()])
        self._redis = redis_client(settings.redis_url)
        self.publisher: Final = Publisher(self._redis)
        self.governor: Final = Governor(self._redis)
        self.breaker: Final = Breaker(self.db)
        # Leases are renewed on a connection of their own: not behind whoever else waits for one.
        self._lease_db = Database(settings.database_url, pool_size=1, prepare=settings.database_prepare)
        self.leases: Final = LeaseKeeper(self._lease_db, self.owner, settings.lease_seconds, self._report)
        self._nudges = Nudges(self._redis, self.leases.mail)

    async def workspace(self, folder: str) -> Workspace:
        """An agent's folder, there from the first time it is asked for."""
        path = self.settings.workspace_root / folder
        if folder not in self._workspaces:
            await asyncio.to_thread(path.mkdir, parents=True, exist_ok=True)
            self._workspaces.add(folder)
        return Workspace(path)

    async def sandbox(self) -> Sandbox | None:
        """Where agents' programs run, if it holds here; tried once. Without one, nothing is run."""
        if self._probed is None:
            self._probed = asyncio.ensure_future(self._probe())
        return await asyncio.shield(self._probed)

    async def _probe(self) -> Sandbox | None:
        settings = self.settings
        sandbox = make_sandbox(settings.sandbox, image=settings.sandbox_image, uid=settings.sandbox_uid)
        probe = await sandbox.probe()
        if settings.sandbox == "none":
            log.warning("sandbox.none", meaning="agents' programs run unconfined, with all this worker may do")
        if not probe.ok:
            log.warning("sandbox.unavailable", sandbox=sandbox.name, reason=probe.detail, fix=probe.fix)
        return sandbox if probe.ok else None

    async def close(self) -> None:
        await self._nudges.close()
        await self.leases.close()
        await self.publisher.close()
        await asyncio.to_thread(self.bells.close)
        await self._redis.aclose()
        await self.web.close()
        for driver in self._drivers():
            with contextlib.suppress(Exception):  # one that cannot be closed must not keep the others open
                await driver.close()
        with contextlib.suppress(StoreError):
            await self.db.transact(lambda conn: report_gone(conn, self.node.name), patience=1)
        await self._lease_db.close()
        await self.db.close()

    def _drivers(self) -> list[Channel | ModelProvider]:
        """Those that hold connections."""
        channels, providers = self.registry.channels, self.registry.providers
        models = (providers.get(name) for name in providers.made)
        return [*map(channels.get, channels.made), *(model for model in models if isinstance(model, ModelProvider))]

    async def _report(self, running: int) -> None:
        if self.node.queues:
            await self._lease_db.transact(
                lambda conn: report_alive(
                    conn,
                    self.node.name,
                    self.node.kind,
                    pid=os.getpid(),
                    queues=list(self.node.queues),
                    running=running,
                ),
                patience=1,
            )
