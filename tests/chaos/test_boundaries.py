"""A worker is killed at every step boundary of a turn of ten tools, and another goes on: nothing that was finished is
done again, and one answer is given.

A boundary is before and after each commit and each effect of a tool, and four moments of each model call. Which there
are is found by running the turn once unharmed. `make test` tries one of each kind over one wire, `make test-all` each
over one of the three wires; `LONGSHORE_CHAOS=full` tries all over all."""

import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import pytest
import pytest_asyncio

from tests.support.boundaries.databases import copies_on_server
from tests.support.boundaries.ledger_turns import TurnEvidence
from tests.support.boundaries.marks import (
    AFTER_COMMIT,
    AFTER_EFFECT,
    BEFORE_COMMIT,
    BEFORE_EFFECT,
    BEGIN,
    COMPLETE,
    END,
    FIRST_PIECE,
    FLUSH,
    HEARD,
    RECORD,
)
from tests.support.boundaries.plan_turns import ALONE, TOOLS, ten_tools
from tests.support.boundaries.runner import Runner, missed, open_runner
from tests.support.boundaries.scenario_turns import WIRES, Turns
from tests.support.model_api import ModelApi

FULL = os.environ.get("LONGSHORE_CHAOS") == "full"

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(1800 if FULL else 600),
    pytest.mark.xdist_group("boundaries"),
]
TurnRunner = Runner[TurnEvidence]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner(
    make_postgres: Callable[[], Iterator[str]], redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TurnRunner]:
    folder = tmp_path_factory.mktemp("postgres")
    async with (
        ModelApi(ten_tools()) as api,
        open_runner(Turns(api), folder, copies_on_server(make_postgres), redis_url) as runner,
    ):
        yield runner


@pytest.mark.spec("M7", "M8", "M10")
async def test_killed_at_one_boundary_of_each_kind(runner: TurnRunner) -> None:
    await _prove(runner, "anthropic", _kinds_once(await runner.find_boundaries(wire="anthropic")))


@pytest.mark.long
@pytest.mark.spec("M7", "M8", "M10")
@pytest.mark.parametrize("wire", WIRES)
async def test_killed_at_every_boundary(runner: TurnRunner, wire: str) -> None:
    """Flushes are no fixed number and belong to every wire's part; the other names are the same over each wire."""
    boundaries = await runner.find_boundaries(wire=wire)
    flushes = [boundary for boundary in boundaries if FLUSH in boundary]
    part = sorted(set(boundaries) - set(flushes))[list(WIRES).index(wire) :: len(WIRES)] + flushes
    await _prove(runner, wire, boundaries if FULL else part)


async def _prove(runner: TurnRunner, wire: str, chosen: Sequence[str]) -> None:
    for one in await _kill_at_each(runner, chosen, wire=wire):
        died_at = one.first.boundary
        for tool in ALONE:
            window = {AFTER_EFFECT + tool.name, f"{BEFORE_COMMIT}{END} {tool.name}"}
            open_call = {f"{AFTER_COMMIT}{BEGIN} {tool.name}", BEFORE_EFFECT + tool.name} | window
            twice, unknown = one.effects.count(tool.name) == 2, tool.name in one.unknown()
            assert twice == (tool.idempotent and died_at in window), (died_at, tool.name)
            assert unknown == (not tool.idempotent and died_at in open_call), (died_at, tool.name)


@pytest.mark.spec("M7", "M8", "P20")
async def test_another_provider_goes_on(runner: TurnRunner) -> None:
    """The session's provider is changed while its worker lies dead."""
    boundaries = [
        f"{AFTER_COMMIT}wake", f"{FIRST_PIECE}1", f"{HEARD}2", f"{AFTER_COMMIT}{RECORD} #3", AFTER_EFFECT + "t04",
        f"{BEFORE_COMMIT}{END} t06", AFTER_EFFECT + "t09", f"{AFTER_COMMIT}{END} t10", f"{BEFORE_COMMIT}{COMPLETE}",
    ]  # fmt: skip
    for number, (wire, then) in enumerate([("anthropic", "openai"), ("responses", "anthropic")]):
        chosen = boundaries if FULL else boundaries[number::2]
        for one in await _kill_at_each(runner, chosen, wire=wire, then=then):
            assert {row.provider for row in one.turns} == {then}, one.deaths
            assert then in {row.provider for row in one.usage}, one.deaths


BROKEN = {
    "forgetful": (f"{AFTER_COMMIT}{END} t02", "runs of t02 (finished at the kill, 1 before): 2, not 1"),
    "late": (AFTER_EFFECT + "t01", "runs of t01 before its intent was on record: 1, not 0"),
    "reckless": (AFTER_EFFECT + "t01", "runs of t01 (started at the kill, 1 before): 2, not 1"),
}


@pytest.mark.spec("M7")
@pytest.mark.parametrize(
    "fault", ["reckless", *(pytest.param(f, marks=pytest.mark.long) for f in ("forgetful", "late"))]
)
async def test_a_broken_tool_box_is_found_out(runner: TurnRunner, fault: str) -> None:
    """A journal that forgets, one that writes too late and one that repeats what it may not."""
    boundary, complaint = BROKEN[fault]
    found = await runner.run(boundary, fault=fault, wire="anthropic")
    assert any(complaint in what for what in found.complaints()), found.complaints()


def _kinds_once(boundaries: Sequence[str]) -> list[str]:
    """The first boundary of each kind: what is done there, whichever tool or model call it is done for. Of tools, one
    that may run twice and one that may not."""
    may_repeat = {tool.name: tool.idempotent for tool in TOOLS}
    first: dict[tuple[str, bool], str] = {}
    for boundary in boundaries:
        what, _, name = boundary.rpartition(" ")
        first.setdefault((re.sub(r"\W*\d*$", "", what), may_repeat.get(name, False)), boundary)
    return list(first.values())


async def _kill_at_each(runner: TurnRunner, chosen: Sequence[str], **options: str) -> list[TurnEvidence]:
    """Whether events are written on their own or with something else is a matter of milliseconds; all else is sure."""
    found = await runner.kill_at([[boundary] for boundary in chosen], **options)
    assert not {boundary for boundary in missed(chosen, found) if FLUSH not in boundary}
    return found
