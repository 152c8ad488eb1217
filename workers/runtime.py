"""The composition root: what a process's tasks may use, made once on its event loop."""

import asyncio
import contextlib
import math
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from adapters.channel_port import Channel
from adapters.errors import SandboxError
from adapters.model_port import ModelProvider
from adapters.redaction import process_redactor
from adapters.registry import Registry
from adapters.sandbox.choice import make_sandbox
from adapters.sandbox.launch import first_closed
from adapters.sandbox.port import Probe, Sandbox
from adapters.station import ProgramProvider
from adapters.web import Web
from adapters.workspace import Workspace
from models.base import new_id
from models.database import Database
from models.errors import StoreError
from models.fleet import report_alive, report_gone
from scheduler.backoff import Backoff
from workers.admission import Admission
from workers.bells import Bells
from workers.breaker import Breaker
from workers.events import Publisher, redis_client
from workers.governor import Governor
from workers.homes import Homes
from workers.leases import LeaseKeeper
from workers.nudges import Nudges
from workers.outbox import Outbox
from workers.rates import Rates
from workers.scratch import make_scratch
from workers.settings import Settings
from workers.verdicts import Patience

if TYPE_CHECKING:
    from workers.tool_server import ToolServer

log = structlog.get_logger()

# Each may take some 40 MB while it is fetched and written.
ATTACHMENTS_AT_ONCE: Final = 4
# Scripts before tasks: many have the same date, and each has 30 seconds of a machine that must not be everybody's.
SCRIPTS_AT_ONCE: Final = 8
# A sandbox that did not hold is tried again after so many seconds: somebody may have mended the machine.
PROBE_AGAIN_SECONDS: Final = 60.0
# What a machine can do does not change while a process lives, and finding out takes a tenth of a second.
_PROBES: Final[dict[tuple[str, str, int, Path | None], Probe]] = {}


@dataclass(frozen=True)
class Node:
    """How this process is known in the fleet."""

    name: str
    kind: str = "worker"
    queues: tuple[str, ...] = ()
    slots: int | None = None  # how many tasks it runs at a time


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
        self._tool_server: ToolServer | None = None
        self._probe_again = math.inf
        self._probed: asyncio.Future[Sandbox | None] | None = None
        self.fetching: Final = asyncio.Semaphore(ATTACHMENTS_AT_ONCE)
        self.scripts: Final = asyncio.Semaphore(SCRIPTS_AT_ONCE)
        self.outbox: Final = Outbox(settings.workspace_root)
        self.homes: Final = Homes(settings.workspace_root, settings.sandbox_uid)
        self.admission: Final = Admission()
        self.redactor: Final = process_redactor()
        self.web: Final = Web([host.strip() for host in settings.private_hosts.split(",") if host.strip()])
        self._redis = redis_client(settings.redis_url)
        self.publisher: Final = Publisher(self._redis)
        self.governor: Final = Governor(self._redis)
        self.rates: Final = Rates(self._redis)
        self.breaker: Final = Breaker(self.db)
        # Leases are renewed on a connection of their own: not behind whoever else waits for one.
        self._lease_db = Database(settings.database_url, pool_size=1, prepare=settings.database_prepare)
        self.leases: Final = LeaseKeeper(self._lease_db, self.owner, settings.lease_seconds, self._report)
        self._nudges = Nudges(self._redis, self.leases.mail, self.leases.control)

    async def workspace(self, folder: str, scratch: str | None = None) -> Workspace:
        """An agent's folder, there from the first time it is asked for. `scratch`: a copy of it for that replay."""
        root = self.settings.workspace_root.absolute()
        if folder not in self._workspaces:
            await asyncio.to_thread(self._make_workspace, root / folder)
            self._workspaces.add(folder)
        if scratch is not None:
            return Workspace(await asyncio.to_thread(make_scratch, root, folder, scratch))
        return Workspace(root / folder)

    def _make_workspace(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0 and path.stat().st_uid == 0:
            # Sandboxed programs run as another user then; what file tools write belongs to the folder's owner.
            os.chown(path, self.settings.sandbox_uid, self.settings.sandbox_uid)

    async def sandbox(self) -> Sandbox | None:
        """Where agents' programs run, if it holds here. Without one, nothing is run."""
        now = asyncio.get_running_loop().time()
        if self._probed is None or (self._probed.done() and now > self._probe_again):
            self._probed = asyncio.ensure_future(self._probe())
        return await asyncio.shield(self._probed)

    async def _probe(self) -> Sandbox | None:
        settings, root = self.settings, self.settings.workspace_root.resolve()
        await asyncio.to_thread(root.mkdir, parents=True, exist_ok=True)
        closed = first_closed(root, settings.sandbox_uid) if os.geteuid() == 0 else None
        kind = (settings.sandbox, settings.sandbox_image, settings.sandbox_uid, closed)
        try:
            sandbox = make_sandbox(
                settings.sandbox, image=settings.sandbox_image, uid=settings.sandbox_uid, workspace_root=root
            )
            probe = _PROBES.get(kind) or await sandbox.probe()
        except (SandboxError, OSError) as error:
            probe = Probe(False, str(error))
        if settings.sandbox == "none":
            log.warning("sandbox.none", meaning="agents' programs run unconfined, with all this worker may do")
        if not probe.ok:
            log.warning("sandbox.unavailable", sandbox=settings.sandbox, reason=probe.detail, fix=probe.fix)
            self._probe_again = asyncio.get_running_loop().time() + PROBE_AGAIN_SECONDS
            return None
        _PROBES[kind] = probe
        self._probe_again = math.inf
        return sandbox

    @property
    def tool_server(self) -> "ToolServer":
        """Our tools for CLI agents, over MCP; there from the first time it is asked for. Its libraries are heavy, and
        most processes never need them."""
        if self._tool_server is None:
            from workers.tool_server import ToolServer

            self._tool_server = ToolServer()
        return self._tool_server

    async def close(self) -> None:
        await self._nudges.close()
        await self.leases.close()
        await self.publisher.close()
        await asyncio.to_thread(self.bells.close)
        await self._redis.aclose()
        if self._tool_server is not None:
            await self._tool_server.close()
        await self.web.close()
        for driver in self._drivers():
            with contextlib.suppress(Exception):  # one that cannot be closed must not keep the others open
                await driver.close()
        with contextlib.suppress(StoreError):
            await self.db.transact(lambda conn: report_gone(conn, self.node.name), patience=1)
        await self._lease_db.close()
        await self.db.close()

    def _drivers(self) -> list[Channel | ModelProvider | ProgramProvider]:
        """Those that hold connections."""
        channels, providers = self.registry.channels, self.registry.providers
        made = (providers.get(name) for name in providers.made)
        holding = [one for one in made if isinstance(one, ModelProvider | ProgramProvider)]
        return [*map(channels.get, channels.made), *holding]

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
                    slots=self.node.slots,
                ),
                patience=1,
            )
