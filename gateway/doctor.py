"""Is this fleet well? One check per thing that goes wrong in practice, each with what to do about it."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from shlex import quote
from typing import Literal

from redis.exceptions import AuthenticationError, RedisError
from sqlalchemy import select

from adapters.errors import AdapterError
from adapters.registry import Registry
from adapters.sandbox.choice import make_sandbox
from adapters.station import ProgramProvider
from models import schema
from models.base import AnyRow
from models.database import Database, database_clock, database_url, shown
from models.errors import StoreError
from models.fleet import living_processes
from models.groups import AgentGroup
from models.listeners import all_listeners
from models.overview import counts
from models.web_chats import WEB
from models.workflows import Workflow
from workers.bells import agent_queue
from workers.events import redis_client
from workers.provider_states import ask
from workers.queues import look, queue_names
from workers.settings import Settings
from workers.workflows.spec import CLERK

State = Literal["ok", "warning", "problem"]

MAX_SKEW_SECONDS = 2.0
_WITHIN = ("fake", "local")  # no platform


@dataclass(frozen=True)
class Check:
    name: str
    state: State
    detail: str
    remedy: str = ""


async def examine(settings: Settings, registry: Registry) -> AsyncIterator[Check]:
    """All checks, in an order in which the first problem explains the later ones."""
    database = await _database(settings)
    yield database
    if database.state != "problem":
        db = Database(settings.database_url, pool_size=2)
        try:
            yield await _clock(db)
            async for check in _providers(db, settings, registry):
                yield check
            async for check in _fleet(db, settings, registry):
                yield check
            async for check in _channels(db, settings, registry):
                yield check
            async for check in _rows(db):
                yield check
        finally:
            await db.close()
    async for check in _broker(settings, registry):
        yield check
    yield await examine_sandbox(settings)


async def examine_sandbox(settings: Settings) -> Check:
    """As on this machine; workers elsewhere try their own when they start."""
    sandbox = make_sandbox(
        settings.sandbox,
        image=settings.sandbox_image,
        uid=settings.sandbox_uid,
        workspace_root=settings.workspace_root.resolve(),
    )
    probe = await sandbox.probe()
    if not probe.ok:
        detail = f"{sandbox.name}: {probe.detail}; agents here have no run_command and no MCP servers"
        return Check("sandbox", "warning", detail, "" if probe.fix in detail else probe.fix)
    if settings.sandbox == "none":
        return Check("sandbox", "warning", "agents' programs run unconfined", "unset LONGSHORE_SANDBOX")
    return Check("sandbox", "ok", f"{sandbox.name} keeps agents' programs to their own folders")


async def _database(settings: Settings) -> Check:
    try:
        address = shown(database_url(settings.database_url))
        schema.check(settings.database_url)
    except StoreError as error:
        remedy = "" if "longshore migrate" in str(error) else "is DATABASE_URL right, and the server up?"
        return Check("database", "problem", str(error), remedy)
    return Check("database", "ok", f"{address} (schema {schema.head()})")


async def _clock(db: Database) -> Check:
    skew = time.time() - await db.read(database_clock)
    if abs(skew) > MAX_SKEW_SECONDS:
        return Check(
            "clock", "warning", f"this machine is {skew:+.1f} s off the database", "harmless to the fleet; run NTP"
        )
    return Check("clock", "ok", f"{skew:+.2f} s from the database's")


async def _providers(db: Database, settings: Settings, registry: Registry) -> AsyncIterator[Check]:
    wanted = await _used(db, settings)
    if settings.default_provider not in registry.providers.names:
        detail = f"DEFAULT_PROVIDER is {settings.default_provider!r}, which is not installed"
        yield Check("default provider", "warning", detail, f"set it to one of: {', '.join(registry.providers.names)}")
    names = sorted({*registry.providers.names, *wanted})
    # Programs take a while to say who they are.
    for one in await asyncio.gather(*(ask(registry, name) for name in names)):
        name, detection = one.name, one.detection
        if detection is None:
            why = "groups use it: install it, or set another provider"
            yield Check(f"provider {name}", "problem", one.error or "it says nothing", why)
        elif not detection.installed and name not in wanted:
            continue  # nobody misses it
        elif one.missing_key:
            yield Check(f"provider {name}", "warning", f"{one.missing_key} is not set", "set it where the workers run")
        elif not detection.installed:
            yield Check(f"provider {name}", "warning", detection.details, "install it where the workers run")
        else:
            yield Check(f"provider {name}", "ok", f"version {detection.version}, {detection.details}")


async def _used(db: Database, settings: Settings) -> set[str]:
    """Providers that agents run on."""
    rows = await db.read(lambda conn: conn.execute(select(AgentGroup.provider).distinct()))
    used = {provider or settings.default_provider for provider in rows.scalars()}
    workflows = await db.read(lambda conn: conn.execute(select(Workflow.id).limit(1)))
    return used | {CLERK} if workflows.first() is not None else used


async def _fleet(db: Database, settings: Settings, registry: Registry) -> AsyncIterator[Check]:
    alive = await db.read(lambda conn: living_processes(conn, settings.alive_seconds))
    workers = [process for process in alive if process.kind == "worker"]
    served = {queue for process in workers for queue in process.queues}
    wanted = await _used(db, settings)
    # A program's queue may be nobody's as long as no agent is one.
    programs = {name for name, one in registry.providers.working.items() if isinstance(one, ProgramProvider)} | {CLERK}
    agents = [name for name in registry.providers.names if name in wanted or name not in programs]
    for queue in ["messages", "delivery", "upkeep", *map(agent_queue, agents)]:
        if queue in served:
            names = ", ".join(process.name for process in workers if queue in process.queues)
            yield Check(f"queue {queue}", "ok", names)
        else:
            yield Check(f"queue {queue}", "problem", "no worker listens", "start one: see the Procfile, or `make up`")
    beats = [process.name for process in alive if process.kind == "beat"]
    if beats:
        yield Check("beat", "ok", ", ".join(beats))
    else:
        yield Check(
            "beat", "warning", "no sweep was rung lately", "retries and schedules wait: celery -A workers.app beat"
        )


async def _channels(db: Database, settings: Settings, registry: Registry) -> AsyncIterator[Check]:
    """Those that are configured here, with who hears them; the others in one line."""
    kinds = {process.kind for process in await db.read(lambda conn: living_processes(conn, settings.alive_seconds))}
    listeners = {row.name: row for row in await db.read(all_listeners)}
    off = []
    for name in registry.channels.names:
        if name in _WITHIN:
            continue
        try:
            channel = registry.channels.get(name)
        except AdapterError as error:
            yield Check(f"channel {name}", "problem", str(error), f"see docs/channels/{name}.md")
            continue
        listens = channel.listens()
        if listens is not None:
            yield _listener(name, listens, listeners.get(listens))
        elif not channel.receives and name != WEB:
            off.append(name)
        elif "gateway" in kinds:
            yield Check(f"channel {name}", "ok", "by way of the gateway")
        else:
            yield Check(f"channel {name}", "warning", "no gateway runs", "start one: longshore gateway")
    if off:
        yield Check("channels off", "ok", f"{', '.join(off)}: not configured (docs/channels)")


def _listener(name: str, listens: str, row: AnyRow | None) -> Check:
    if row is None or row.expires_at is None or row.expires_at < row.at:
        return Check(f"channel {name}", "warning", f"nobody listens to {listens}", "start it: longshore listen")
    heard = f"last heard {(row.at - row.heard_at).total_seconds():.0f} s ago" if row.heard_at else "nothing heard yet"
    return Check(f"channel {name}", "ok", f"{row.owner} listens to {listens}, {heard}")


async def _rows(db: Database) -> AsyncIterator[Check]:
    found = await db.read(counts)
    messages, replies = found["pending"], found["unsent"]
    words = f"{messages} message{'s' * (messages != 1)}, {replies} repl{'y' if replies == 1 else 'ies'}"
    yield Check("waiting", "ok", words)
    for name, command in (
        ("dead", "longshore dead"),
        ("undelivered", "longshore dead --undelivered"),
        ("rejected", "longshore dead --rejected"),
    ):
        if found[name]:
            yield Check(name, "warning", f"{found[name]} rows", f"see: {command}")


async def _broker(settings: Settings, registry: Registry) -> AsyncIterator[Check]:
    if not settings.redis_url:
        yield Check("broker", "problem", "REDIS_URL is not set", "set it, or run `make up` in this folder")
        return
    client = redis_client(settings.redis_url)
    try:
        info = await client.info()
        found = await look(client, queue_names(registry)) if settings.broker == settings.redis_url else []
    except AuthenticationError:
        yield Check("broker", "problem", "the password in REDIS_URL is refused", "correct it")
        return
    except (RedisError, OSError, ValueError) as error:
        yield Check(
            "broker", "problem", f"no answer ({type(error).__name__})", "is REDIS_URL right, and the server up?"
        )
        return
    finally:
        await client.aclose()
    yield Check(
        "broker", "ok", f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info.get('redis_version')}"
    )
    if info.get("maxmemory_policy") not in (None, "noeviction"):
        yield Check("eviction", "problem", f"maxmemory-policy is {info['maxmemory_policy']}", "set it to noeviction")
    if not info.get("aof_enabled"):
        detail = "no append-only file: a restart forgets queued producers' messages"
        yield Check("broker durability", "warning", detail, "set appendonly yes")
    for stray in found:
        if not stray.is_ours:
            detail = f"{stray.waiting} messages for this fleet lie in the list {stray.name!r}, which nobody reads"
            remedy = f"a producer names a wrong queue: correct it, then: longshore queues rescue {quote(stray.name)}"
            yield Check("stray queue", "warning", detail, remedy)
