"""What tools do outside of their turn is done once, wherever a process is killed: a file is sent, another agent asked
and its answer passed on, a task scheduled, a risky call approved and run, the conversation begun anew.

Doors, turns, deliveries and sweeps run in the one process that is killed; a second one finishes. Boundaries are before
and after each commit, each tool and each delivery, and half a copied file. `make test-all` tries those of the tools
and of what comes of them, and some of the others; `make test` every third of these; `LONGSHORE_CHAOS=full` all."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.boundary_marks import FLUSH
from tests.support.tool_boundary_dock import StoryDock, open_story_dock, prepared_postgres, prepared_sqlite
from tests.support.tool_boundary_ledger import Found
from tests.support.tool_boundary_marks import OVER, around_tools, never_left_out

FULL = os.environ.get("LONGSHORE_CHAOS") == "full"
STEPS = (1, 2, 3, 7)  # how far apart two deaths are, in boundaries around the tools

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(1800 if FULL else 300),
    pytest.mark.xdist_group("tool boundaries"),
]
Report = Callable[[str], None]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_sqlite(
    sqlite_template: Path, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[StoryDock]:
    folder = tmp_path_factory.mktemp("tool_boundaries")
    make_database = await prepared_sqlite(sqlite_template, redis_url, folder)
    async with open_story_dock(redis_url, folder, make_database) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_postgres(
    postgres_url: str, postgres_template: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[StoryDock]:
    folder = tmp_path_factory.mktemp("tool_boundaries")
    async with (
        prepared_postgres(postgres_url, postgres_template, redis_url, folder) as make_database,
        open_story_dock(redis_url, folder, make_database) as opened,
    ):
        yield opened


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    began = time.monotonic()

    def say(what: str) -> None:
        with capsys.disabled():
            print(f"\n{what} in {time.monotonic() - began:.0f} s")

    return say


@pytest.mark.spec("T2", "M14", "T3", "C6", "T4", "M7")
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
async def test_effects_of_tools_happen_once_wherever_a_process_dies(
    on_sqlite: StoryDock, report: Report, every: int
) -> None:
    boundaries = await _boundaries(on_sqlite)
    chosen = boundaries if FULL else _those_and_some(boundaries, every=8)[::every]
    found = await _kill_at(on_sqlite, [(boundary,) for boundary in chosen])
    report(f"tools: killed at {len(found)} of {len(boundaries)} boundaries")
    _came_by(chosen, found)


@pytest.mark.spec("T2", "M14", "T3", "C6", "T4", "M7")
async def test_the_next_one_dies_too(on_sqlite: StoryDock, report: Report) -> None:
    """At the same boundary, or a few further on, if it comes by there."""
    tools = [boundary for boundary in await _boundaries(on_sqlite) if boundary in around_tools()]
    pairs = [pair for step in (0, *STEPS) for pair in zip(tools, tools[step:], strict=False)]
    pairs = pairs if FULL else pairs[::23]
    found = await _kill_at(on_sqlite, pairs)
    twice = sum(len(one.deaths) == 2 for one in found)
    report(f"tools: killed at {len(pairs)} pairs of boundaries, {twice} times at both")
    assert twice > len(pairs) / 3


@pytest.mark.long
@pytest.mark.spec("T2", "M14", "T3", "C6", "T4", "M7")
async def test_on_postgresql_as_well(on_postgres: StoryDock, report: Report) -> None:
    boundaries = await _boundaries(on_postgres)
    chosen = boundaries if FULL else boundaries[::16]
    found = await _kill_at(on_postgres, [(boundary,) for boundary in chosen])
    report(f"tools on PostgreSQL: killed at {len(found)} of {len(boundaries)} boundaries")
    _came_by(chosen, found)


async def _boundaries(dock: StoryDock) -> list[str]:
    unharmed = await dock.run()
    assert unharmed.complaints() == []
    *boundaries, last = unharmed.last
    assert last == OVER
    assert never_left_out() <= set(boundaries), never_left_out() - set(boundaries)
    return boundaries


def _those_and_some(boundaries: Sequence[str], every: int) -> list[str]:
    others = [boundary for boundary in boundaries if boundary not in never_left_out()]
    chosen = {*never_left_out(), *others[::every]}
    return [boundary for boundary in boundaries if boundary in chosen]


async def _kill_at(dock: StoryDock, deaths: Sequence[tuple[str, ...]]) -> list[Found]:
    found = await asyncio.gather(*(dock.run(*boundaries) for boundaries in deaths))
    complaints = [complaint for one in found for complaint in one.complaints()]
    if complaints:
        pytest.fail(f"{len(complaints)} complaints:\n" + "\n".join(complaints[:60]), pytrace=False)
    return found


def _came_by(chosen: Sequence[str], found: Sequence[Found]) -> None:
    """Whether events are written on their own or with something else is a matter of milliseconds; all else is sure."""
    missed = set(chosen) - {death.boundary for one in found for death in one.deaths}
    assert not {boundary for boundary in missed if FLUSH not in boundary}, missed
