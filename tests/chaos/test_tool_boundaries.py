"""What tools do outside of their turn is done once, wherever a process is killed: a file is sent, another agent asked
and its answer passed on, a task scheduled, a risky call approved and run, the conversation begun anew.

Boundaries are before and after each commit, each tool and each delivery, and half a copied file. `make test-all` tries
those of the tools and of what comes of them, and some of the others; `make test` every sixth of these;
`LONGSHORE_CHAOS=full` all."""

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.boundaries.databases import copies_of_file, copies_on_server
from tests.support.boundaries.ledger_tools import ToolEvidence
from tests.support.boundaries.marks import FLUSH
from tests.support.boundaries.plan_tools import AROUND_TOOLS, NEVER_LEFT_OUT
from tests.support.boundaries.runner import Runner, missed, open_runner
from tests.support.boundaries.scenario_tools import Tools

FULL = os.environ.get("LONGSHORE_CHAOS") == "full"
STEPS = (0, 1, 2, 3, 7)  # how far apart two deaths are, in boundaries around the tools

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(1800 if FULL else 300),
    pytest.mark.xdist_group("tool boundaries"),
    pytest.mark.spec("T2", "M14", "T3", "C6", "T4", "M7"),
]
ToolRunner = Runner[ToolEvidence]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_sqlite(
    sqlite_template: Path, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ToolRunner]:
    folder = tmp_path_factory.mktemp("sqlite")
    async with open_runner(Tools(), folder, copies_of_file(sqlite_template), redis_url) as runner:
        yield runner


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_postgres(
    make_postgres: Callable[[], Iterator[str]], redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ToolRunner]:
    folder = tmp_path_factory.mktemp("postgres")
    async with open_runner(Tools(), folder, copies_on_server(make_postgres), redis_url) as runner:
        yield runner


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.long)])
async def test_effects_of_tools_happen_once_wherever_a_process_dies(on_sqlite: ToolRunner, every: int) -> None:
    boundaries = await on_sqlite.find_boundaries()
    assert set(boundaries) >= NEVER_LEFT_OUT, NEVER_LEFT_OUT - set(boundaries)
    others = [boundary for boundary in boundaries if boundary not in NEVER_LEFT_OUT]
    chosen = [boundary for boundary in boundaries if boundary in {*NEVER_LEFT_OUT, *others[::8]}]
    await _kill_at_each(on_sqlite, boundaries if FULL else chosen[::every])


async def test_the_next_one_dies_too(on_sqlite: ToolRunner) -> None:
    """At the same boundary, or a few further on, if it comes by there."""
    tools = [boundary for boundary in await on_sqlite.find_boundaries() if boundary in AROUND_TOOLS]
    pairs = [pair for step in STEPS for pair in zip(tools, tools[step:], strict=False)]
    pairs = pairs if FULL else pairs[::23]
    found = await on_sqlite.kill_at(pairs)
    assert sum(len(one.deaths) == 2 for one in found) > len(pairs) / 3


@pytest.mark.long
async def test_on_postgresql_as_well(on_postgres: ToolRunner) -> None:
    await _kill_at_each(on_postgres, (await on_postgres.find_boundaries())[:: 1 if FULL else 16])


async def _kill_at_each(runner: ToolRunner, chosen: Sequence[str]) -> None:
    """Whether events are written on their own or with something else is a matter of milliseconds; all else is sure."""
    found = await runner.kill_at([[boundary] for boundary in chosen])
    assert not {boundary for boundary in missed(chosen, found) if FLUSH not in boundary}
