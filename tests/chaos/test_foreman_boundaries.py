"""A foreman's workflow comes to the same end wherever its processes are killed, and does nothing twice: two tasks that
conflict, checks that fail once, a reviewer who wants changes once, two approvals, a branch.

Boundaries are before and after each commit, each tool and each command of git that writes, while that is at work, locks
it leaves, files laid out by half. `make test-all` tries one of each kind, all between stages, in few lives with many
deaths; `make test` one life, with a sixth of these; `LONGSHORE_CHAOS=full` tries all, far apart, on both databases."""

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.boundaries.databases import MakeDatabase, copies_of_file, copies_on_server
from tests.support.boundaries.git_marks import AFTER_GIT, MOVE
from tests.support.boundaries.ledger_workflows import WorkflowEvidence
from tests.support.boundaries.marks import BETWEEN
from tests.support.boundaries.runner import WORKER, Runner, missed, open_runner
from tests.support.boundaries.scenario_workflows import Workflows, deal, is_settled, kinds_once, living_below
from tests.support.servers import private_folder, wait_until

FULL = os.environ.get("LONGSHORE_CHAOS") == "full"
LIVES = 24 if FULL else 2

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(3600 if FULL else 600),
    pytest.mark.xdist_group("foreman boundaries"),
    pytest.mark.spec("O1", "M7"),
]
WorkflowRunner = Runner[WorkflowEvidence]


@pytest.fixture(scope="module")
def scenario() -> Workflows:
    return Workflows()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_sqlite(scenario: Workflows, sqlite_template: Path, redis_url: str) -> AsyncIterator[WorkflowRunner]:
    async with _open(scenario, "sqlite", copies_of_file(sqlite_template), redis_url) as runner:
        scenario.unharmed = await runner.unharmed()
        yield runner


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_postgres(
    scenario: Workflows, make_postgres: Callable[[], Iterator[str]], redis_url: str
) -> AsyncIterator[WorkflowRunner]:
    async with _open(scenario, "postgres", copies_on_server(make_postgres), redis_url) as runner:
        yield runner


@asynccontextmanager
async def _open(
    scenario: Workflows, name: str, make_database: MakeDatabase, redis_url: str
) -> AsyncIterator[WorkflowRunner]:
    folder = private_folder()  # where the sandbox's user can come
    (folder / name).mkdir()
    async with open_runner(scenario, folder / name, make_database, redis_url, at_once=2) as runner:
        yield runner
    shutil.rmtree(folder)


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.long)])
async def test_a_workflow_comes_to_the_same_end_wherever_its_processes_die(
    on_sqlite: WorkflowRunner, every: int
) -> None:
    boundaries = await on_sqlite.find_boundaries()
    chosen = boundaries if FULL else kinds_once(boundaries)[::every]
    await _kill_in(on_sqlite, deal(chosen, LIVES if every == 1 else 1))

    def left_running() -> list[str]:
        return [command for command in living_below(on_sqlite.folder) if WORKER not in command]

    # Git on the host ends by itself, what is in a sandbox with its worker.
    wait_until(lambda: not left_running(), 20, "what the dead have started to end")


@pytest.mark.long
async def test_on_postgresql_as_well(on_postgres: WorkflowRunner, on_sqlite: WorkflowRunner) -> None:
    """The same story, so what it comes to on the other database is what it must come to here."""
    boundaries = await (on_postgres if FULL else on_sqlite).find_boundaries()
    await _kill_in(on_postgres, deal(boundaries, LIVES) if FULL else deal(kinds_once(boundaries), 8)[:1])


BROKEN = {
    "hasty": (f"publish 1{BETWEEN}after commit: Ending.park", "handed over before it was approved"),
    "forgetful": (f"publish 1{BETWEEN}{AFTER_GIT}{MOVE}", "workflows: [('failed'"),
    "repeating": (f"check one 0{BETWEEN}after effect: check_work", "the branch is another"),
}


@pytest.mark.parametrize(
    "fault", ["hasty", *(pytest.param(f, marks=pytest.mark.long) for f in ("forgetful", "repeating"))]
)
async def test_a_broken_foreman_is_found_out(on_sqlite: WorkflowRunner, fault: str) -> None:
    """One that merges before it asks, one that does not see what it has handed over, one that commits what it has
    committed."""
    boundary, complaint = BROKEN[fault]
    found = await on_sqlite.run(boundary, fault=fault)
    assert [death.boundary for death in found.deaths] == [boundary]
    assert any(complaint in what for what in found.complaints()), found.complaints()


async def _kill_in(runner: WorkflowRunner, lives: Sequence[Sequence[str]]) -> None:
    """Of two tasks at a time, one may get ahead of the other by a death, and an advance find another state."""
    chosen = [boundary for life in lives for boundary in life]
    left_out = missed(chosen, await runner.kill_at(lives))
    assert not {boundary for boundary in left_out if is_settled(boundary)}
    assert len(left_out) < len(chosen) / 20, left_out
