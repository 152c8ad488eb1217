"""What is known of each provider when roles are given out: what it is, whether it works, how it has done lately.

Facts only; what they are worth is `fitness.py`'s. Programs are started to ask for their version, so it takes a while.
Keys and programs are looked for where this runs: the workers of another machine may have others."""

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from adapters.contracts import Capabilities
from adapters.errors import AdapterError, ErrorClass
from adapters.redaction import process_redactor
from adapters.registry import Registry
from adapters.station import Needs
from models.base import AnyRow
from models.fitness import TURNS, recent_turns
from workers.house import House
from workers.provider_states import Seen, look_at_providers

# A turn that failed so says nothing of its provider: people, budgets, tools and machines do that to any of them.
NOT_ITS_FAULT: Final = frozenset(
    {
        ErrorClass.TOOL,
        ErrorClass.OUTPUT_SENT,
        ErrorClass.CANCELLED,
        ErrorClass.WORKER_LOST,
        ErrorClass.BUDGET,
        ErrorClass.SCRIPT,
    }
)


@dataclass(frozen=True)
class Record:
    """How the latest turns of a provider ended. `faults`: those that failed by its own fault, or that it gave up and
    another went on with. `median_seconds`: of the completed ones, with all that they waited for."""

    completed: int = 0
    faults: int = 0
    median_seconds: float | None = None


@dataclass(frozen=True)
class Candidate:
    """`trouble`: why it cannot be used at all. `absent`: why its program is not to be had here. `missing_key`: the
    variable that is not set here. `wants_options`: what it says if it is given none. `workers`: how many listen."""

    name: str
    kind: Literal["api", "cli", "scripted"] = "api"
    vendor: str = ""
    capabilities: Capabilities = field(default_factory=Capabilities)
    trouble: str | None = None
    absent: str | None = None
    missing_key: str | None = None
    wants_options: str | None = None
    workers: int = 0
    health: Literal["ok", "limited", "down"] = "ok"
    record: Record = Record()

    @property
    def is_agent(self) -> bool:
        """Whether it thinks; else it only does what is written down for it."""
        return self.kind != "scripted"


async def candidates(house: House) -> list[Candidate]:
    """All that are installed, also those that cannot be used, by name."""
    seen = await look_at_providers(house, None)
    records = records_of(await house.db.read(recent_turns))
    found = [_candidate(house.registry, one, records.get(one.name, Record())) for one in seen]
    return sorted(found, key=lambda one: one.name)


def records_of(turns: Iterable[AnyRow]) -> dict[str, Record]:
    """By provider, of turns with the latest first."""
    ended: dict[str, list[AnyRow | None]] = defaultdict(list)  # None: handed over, because it could not
    for row in turns:
        ended[row.provider].append(row)
        for given_up in row.tried or ():
            ended[given_up].append(None)
    return {name: _record(rows[:TURNS]) for name, rows in ended.items()}


def _record(rows: list[AnyRow | None]) -> Record:
    completed = [row for row in rows if row is not None and row.status == "completed"]
    failed = [row for row in rows if row is None or row.status == "failed"]
    faults = [row for row in failed if row is None or row.error_class not in NOT_ITS_FAULT]
    seconds = [(row.ended_at - row.started_at).total_seconds() for row in completed if row.ended_at is not None]
    return Record(len(completed), len(faults), statistics.median(seconds) if seconds else None)


def _candidate(registry: Registry, one: Seen, record: Record) -> Candidate:
    if one.refused is not None:
        return Candidate(one.name, trouble=one.refused.reason, record=record)
    if one.manifest is None or one.detection is None:
        return Candidate(one.name, trouble=one.error or "it does not say what it is", record=record)
    absent = None if one.detection.installed else one.detection.details or "it is not installed"
    # Of several accounts, the one asked last: rows of keys that were taken away stay.
    latest = max(one.health, key=lambda health: health.checked_at, default=None)
    return Candidate(
        one.name,
        one.manifest.kind,
        one.manifest.vendor,
        one.manifest.capabilities,
        absent=absent,
        missing_key=one.missing_key,
        wants_options=_wanted_options(registry, one.name),
        workers=len(one.workers),
        health="ok" if latest is None else latest.state,
        record=record,
    )


def _wanted_options(registry: Registry, name: str) -> str | None:
    try:
        provider = registry.providers.get(name)
        provider.check({})
    except AdapterError as error:
        return process_redactor().text(str(error))
    except Exception as error:  # noqa: BLE001 - other people's code: the rest of the list is wanted all the same
        return f"it failed when its options were checked ({type(error).__name__})"
    needs = getattr(provider, "needs", None)
    names_none = isinstance(needs, Needs) and not needs.program
    return "which program it runs is for them to say" if names_none else None
