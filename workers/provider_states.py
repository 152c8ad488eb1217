"""Everything known of each provider: what it says about itself, its health, its workers and its limits.

For the command line, the API and the console. Programs are started to ask for their version, so it takes a while.
What other people's code says of itself may quote what it was given: secrets are taken out here, for all who show it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Final, Literal

import redis.asyncio
from redis.exceptions import RedisError
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.contracts import Capabilities, Detection, Manifest
from adapters.errors import AdapterError
from adapters.model_port import AnyProvider
from adapters.packages.trust import Origin
from adapters.providers.keys import missing_key
from adapters.redaction import process_redactor
from adapters.registry import Refused, Registry
from models.base import AnyRow
from models.fleet import all_health, living_processes
from workers.bells import agent_queue
from workers.governor import BucketState, RedisBuckets
from workers.house import House

LIMITS_SECONDS: Final = 3.0
DETECT_SECONDS: Final = 20.0
KEEP_SECONDS: Final = 15.0
_CAPABILITIES: Final = {
    "streaming": "streams",
    "tools": "tools",
    "resume": "resumes",
    "push": "follow-ups",
    "images": "images",
    "pdfs": "PDFs",
    "mcp": "MCP",
    "approvals": "approvals",
    "replays_steps": "replays",
    "plain_texts": "plain texts",
}
_EDITS: Final = {"diff": "diffs", "file_events": "file events"}


@dataclass(frozen=True)
class Health:
    """How calls with one account went. `state`: what was noted, unless its time is over. `failures`: in a row."""

    account: str
    state: Literal["ok", "limited", "down"]
    detail: str | None
    failures: int
    until: datetime | None
    checked_at: datetime

    @classmethod
    def of_row(cls, row: AnyRow) -> "Health":
        over = row.state == "limited" and row.until is not None and row.until <= datetime.now(UTC)
        detail = None if row.detail is None else _clean(row.detail)
        return cls(row.account, "ok" if over else row.state, detail, row.failures, row.until, row.checked_at)


@dataclass
class Seen:
    """Everything known of one provider. `error` is set instead of the rest if it does not load, `refused` if it is
    not let in. `program` is the one it leads, if that is always the same."""

    name: str
    workers: list[str] = field(default_factory=list)
    origin: Origin | None = None
    refused: Refused | None = None
    manifest: Manifest | None = None
    detection: Detection | None = None
    program: str = ""
    missing_key: str | None = None
    default_model: str | None = None
    is_default: bool = False
    error: str | None = None
    health: list[Health] = field(default_factory=list)
    limits: list[BucketState] = field(default_factory=list)

    @property
    def state(self) -> Literal["ok", "warning", "problem", "absent", "refused"]:
        if self.refused is not None:
            return "refused"
        if self.error is not None or self.detection is None:
            return "problem"
        if not self.detection.installed:
            return "problem" if self.is_default else "absent"
        well = not self.missing_key and self.workers and all(one.state == "ok" for one in self.health)
        return "ok" if well else "warning"


class Lookout:
    """Made once per gateway. Remembers what was seen for a few seconds; who asks meanwhile waits for the same look.
    `at`: when that was."""

    def __init__(self, house: House, client: redis.asyncio.Redis) -> None:
        self._house, self._client = house, client
        self._lock = asyncio.Lock()
        self._seen: list[Seen] = []
        self._looked = float("-inf")
        self.at: datetime | None = None

    async def look(self, *, again: bool = False) -> list[Seen]:
        """`again`: not from memory, unless somebody has looked since this was asked for."""
        asked = time.monotonic()
        async with self._lock:
            if asked - self._looked > (0 if again else KEEP_SECONDS):
                self._seen = await look_at_providers(self._house, self._client)
                self._looked, self.at = time.monotonic(), datetime.now(UTC)
            return self._seen


async def look_at_providers(house: House, client: redis.asyncio.Redis | None) -> list[Seen]:
    """Those that are installed, and those that were refused. `client`: where limits are kept, if there is one."""

    async def rows(conn: AsyncConnection) -> tuple[list[AnyRow], list[AnyRow]]:
        return await all_health(conn), await living_processes(conn, house.settings.alive_seconds)

    health, alive = await house.db.read(rows)
    limits = await _limits(client) if client is not None else []
    # All at once: those that are programs take a second each.
    found = await asyncio.gather(*(ask(house.registry, name) for name in house.registry.providers.names))
    for one in found:
        _add_known(house, one, health, alive, limits)
    refused = [replace(one, reason=_clean(one.reason)) for one in house.registry.providers.refused]
    return found + [Seen(one.name, refused=one) for one in refused]


def _add_known(
    house: House, one: Seen, health: Sequence[AnyRow], alive: Sequence[AnyRow], limits: Sequence[BucketState]
) -> None:
    one.workers = [process.name for process in alive if agent_queue(one.name) in process.queues]
    one.origin = house.registry.providers.origin(one.name)
    one.is_default = one.name == house.settings.default_provider
    one.health = [Health.of_row(row) for row in health if row.provider == one.name]
    one.limits = [state for state in limits if state.key.provider == one.name]


async def ask(registry: Registry, name: str) -> Seen:
    """What a provider says about itself, and only that."""
    one = Seen(name)
    try:
        provider: AnyProvider = registry.providers.get(name)
        async with asyncio.timeout(DETECT_SECONDS):
            detection = await provider.detect()
        version = None if detection.version is None else _clean(detection.version)
        one.manifest = provider.manifest
        one.detection = replace(detection, version=version, details=_clean(detection.details))
    except AdapterError as error:
        one.error = _clean(str(error))
    except TimeoutError:
        one.error = f"it did not say within {DETECT_SECONDS:g} s whether it is installed"
    except Exception as error:  # noqa: BLE001 - other people's code: the rest of the list is wanted all the same
        one.error = _clean(f"it failed when it was asked about itself: {type(error).__name__}: {error}")
    else:
        one.default_model = getattr(provider, "default_model", None)
        one.missing_key = missing_key(one.name)
        one.program = getattr(getattr(provider, "needs", None), "program", "")
    return one


async def _limits(client: redis.asyncio.Redis) -> list[BucketState]:
    """Nice to know, so nothing fails for want of it."""
    try:
        async with asyncio.timeout(LIMITS_SECONDS):
            return await RedisBuckets(client).show()
    except (RedisError, OSError, TimeoutError, ValueError):
        return []


def _clean(text: str) -> str:
    return process_redactor().text(text)


def capability_words(capabilities: Capabilities) -> list[str]:
    words = [_CAPABILITIES[part.name] for part in fields(capabilities) if getattr(capabilities, part.name) is True]
    words += [_EDITS[capabilities.structured_edits]] if capabilities.structured_edits in _EDITS else []
    return words or ["nothing special"]
