"""A foreman's workflow comes to the same end wherever its processes are killed, and does nothing twice: two tasks that
conflict, checks that fail once, a reviewer who wants changes once, two approvals, a branch.

Turns, deliveries, sweeps, advances, git and the person who decides are all in the one process that is killed; the next
one finishes, or is killed at the next boundary. Boundaries are before and after each commit, each tool and each command
of git that writes, while that is at work, locks it leaves, files laid out by half. `make test-all` tries one of each
kind, all between stages, and few lives with many deaths; `make test` one life, with a third of these;
`LONGSHORE_CHAOS=full` tries all, far apart, on both databases."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.foreman_boundary_dock import ForemanDock, open_foreman_dock
from tests.support.foreman_boundary_ledger import Found
from tests.support.foreman_boundary_marks import (
    AFTER_GIT,
    BETWEEN,
    MOVE,
    apart,
    dealt,
    is_settled,
    is_sure,
    kinds_once,
)
from tests.support.foreman_boundary_story import prepare
from tests.support.servers import private_folder, wait_until
from tests.support.tool_boundary_dock import prepared_postgres, prepared_sqlite

FULL = os.environ.get("LONGSHORE_CHAOS") == "full"
LIVES = 24 if FULL else 2

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(3600 if FULL else 600),
    pytest.mark.xdist_group("foreman boundaries"),
    pytest.mark.spec("O1", "M7"),
]
Report = Callable[[str], None]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where the sandbox's user can come."""
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_sqlite(sqlite_template: Path, redis_url: str, folder: Path) -> AsyncIterator[ForemanDock]:
    make_database = await prepared_sqlite(sqlite_template, redis_url, folder, prepare)
    async with open_foreman_dock(redis_url, folder / "sqlite", make_database) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_postgres(
    postgres_url: str, postgres_template: str, redis_url: str, folder: Path
) -> AsyncIterator[ForemanDock]:
    async with (
        prepared_postgres(postgres_url, postgres_template, redis_url, folder, prepare) as make_database,
        open_foreman_dock(redis_url, folder / "postgres", make_database) as opened,
    ):
        yield opened


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    began = time.monotonic()

    def say(what: str) -> None:
        with capsys.disabled():
            print(f"\n{what} in {time.monotonic() - began:.0f} s")

    return say


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
async def test_a_workflow_comes_to_the_same_end_wherever_its_processes_die(
    on_sqlite: ForemanDock, report: Report, every: int
) -> None:
    boundaries = await _boundaries(on_sqlite)
    chosen = boundaries if FULL else apart(kinds_once(boundaries))[::every]
    lives = dealt(chosen, LIVES if every == 1 else 1)
    found = await _live(on_sqlite, lives)
    report(f"foreman: killed at {_deaths(found)} of {len(boundaries)} boundaries in {len(lives)} lives")
    _came_by(chosen, found)
    # Git on the host ends by itself, what is in a sandbox with its worker.
    wait_until(lambda: not on_sqlite.left_running(), 20, "what the dead have started to end")


@pytest.mark.long
async def test_on_postgresql_as_well(on_postgres: ForemanDock, on_sqlite: ForemanDock, report: Report) -> None:
    """The same story, so what it comes to on the other database is what it must come to here."""
    on_postgres.reference = await on_sqlite.unharmed()
    boundaries = await _boundaries(on_postgres if FULL else on_sqlite)
    lives = dealt(boundaries, LIVES) if FULL else dealt(apart(kinds_once(boundaries)), 8)[:1]
    found = await _live(on_postgres, lives)
    report(f"foreman on PostgreSQL: killed at {_deaths(found)} of {len(boundaries)} boundaries")
    _came_by([boundary for life in lives for boundary in life], found)


BROKEN = {
    "hasty": (f"publish 1{BETWEEN}after commit: Ending.park", "handed over before it was approved"),
    "forgetful": (f"publish 1{BETWEEN}{AFTER_GIT}{MOVE}", "workflows: [('failed'"),
    "repeating": (f"check one 0{BETWEEN}after effect: check_work", "the branch is another"),
}


@pytest.mark.parametrize("faults", [["hasty"], pytest.param(["forgetful", "repeating"], marks=pytest.mark.long)])
async def test_a_broken_foreman_is_found_out(on_sqlite: ForemanDock, faults: list[str]) -> None:
    """One that merges before it asks, one that does not see what it has handed over, one that commits what it has
    committed."""
    await on_sqlite.unharmed()
    lives = (on_sqlite.run(BROKEN[fault][0], broken=fault) for fault in faults)
    for found, fault in zip(await asyncio.gather(*lives), faults, strict=True):
        boundary, complaint = BROKEN[fault]
        assert [death.boundary for death in found.deaths] == [boundary], fault
        assert any(complaint in what for what in found.complaints()), (fault, found.complaints())


async def _boundaries(dock: ForemanDock) -> list[str]:
    unharmed = await dock.unharmed()
    assert unharmed.complaints() == []
    return [boundary for boundary in unharmed.last if is_sure(boundary)]


async def _live(dock: ForemanDock, lives: Sequence[Sequence[str]]) -> list[Found]:
    found = await asyncio.gather(*(dock.run(*deaths) for deaths in lives))
    complaints = [complaint for one in found for complaint in one.complaints()]
    if complaints:
        pytest.fail(f"{len(complaints)} complaints:\n" + "\n".join(complaints[:60]), pytrace=False)
    return found


def _deaths(found: Sequence[Found]) -> int:
    return sum(len(one.deaths) for one in found)


def _came_by(chosen: Sequence[str], found: Sequence[Found]) -> None:
    """Of two tasks at a time, one may get ahead of the other by a death, and an advance find another state."""
    missed = set(chosen) - {death.boundary for one in found for death in one.deaths}
    assert not {boundary for boundary in missed if is_settled(boundary)}, missed
    assert len(missed) < len(chosen) / 20, missed
