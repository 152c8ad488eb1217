"""A fleet as in the integration tests, and one whose agents have a sandbox."""

import shutil
from collections.abc import AsyncIterator

import pytest

from tests.integration.conftest import MakeFleet, fleet, make_fleet, make_postgres, spare_databases
from tests.support.fleet import Fleet
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
