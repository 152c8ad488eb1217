from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.command_line import cli
from tests.support.diarist_fleet import make_worker, worker
from tests.support.fixtures import fleet, make_fleet, make_postgres, spare_databases
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with

__all__ = ["cli", "fleet", "make_fleet", "make_postgres", "make_worker", "spare_databases", "worker"]


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Gateway]:
    fleet = await make_fleet(registry_with(tmp_path))
    async with gateway_to(fleet) as gateway:
        yield gateway
