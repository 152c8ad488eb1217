from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.registry import Registry
from tests.support.fleet import Fleet, fleet_settings

MakeFleet = Callable[..., Awaitable[Fleet]]


@pytest.fixture
async def make_fleet(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[MakeFleet]:
    """Make a worker; several on the same database."""
    fleets: list[Fleet] = []

    async def make(registry: Registry | None = None, **changes: Any) -> Fleet:
        settings = fleet_settings(database_url, redis_url, tmp_path, **changes)
        fleets.append(Fleet(settings, registry, name=f"worker{len(fleets)}"))
        return fleets[-1]

    yield make
    for fleet in fleets:
        await fleet.close()


@pytest.fixture
async def fleet(make_fleet: MakeFleet) -> Fleet:
    return await make_fleet()
