"""A fleet as in the integration tests, one whose agents have a sandbox, and one with a gateway before it."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.registry import Drivers
from adapters.tool_port import Tool
from tests.support.cards import Launcher
from tests.support.fixtures import fleet, make_fleet, make_postgres, spare_databases
from tests.support.fleet import Fleet, MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with
from tests.support.servers import private_folder

__all__ = ["fleet", "make_fleet", "make_postgres", "spare_databases"]


@pytest.fixture
async def sandboxed_fleet(make_fleet: MakeFleet) -> AsyncIterator[Fleet]:
    """Its workspaces lie where the sandbox's user can come, also if the tests are root's."""
    root = private_folder()
    fleet = await make_fleet(workspace_root=root / "workspaces")
    assert await fleet.runtime.sandbox() is not None, "these tests need a sandbox"
    try:
        yield fleet
    finally:
        shutil.rmtree(root)


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Gateway]:
    """Its agents have a risky tool, `launch`, for somebody to approve."""
    registry = registry_with(tmp_path)
    registry.tools = Drivers("tool", Drivers[Tool[Any]]("tool").working | {"launch": Launcher().tool()})
    async with gateway_to(await make_fleet(registry)) as gateway:
        yield gateway
