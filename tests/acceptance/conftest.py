from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Operator
from tests.support.servers import Valkey


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Valkey]:
    """A broker of the test's own: queues are names, and other tests use the same."""
    server = Valkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def operator(tmp_path: Path, postgres_database: str, broker: Valkey) -> Iterator[Operator]:
    operator = Operator(tmp_path, postgres_database, broker)
    yield operator
    operator.close()
