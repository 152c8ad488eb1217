"""A worker is killed at every step boundary of a turn of ten tools, and another goes on: nothing that was finished is
done again, and one answer is given.

A boundary is before and after each commit and each effect of a tool, and four moments of each model call. Which there
are is found by running the turn once unharmed. `make test` tries one of each kind over one wire, `make test-all` each
over one of the three wires; `LONGSHORE_CHAOS=full` tries all over all."""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace

import psycopg
import pytest
import pytest_asyncio
from sqlalchemy import make_url

from models.base import new_id
from tests.support.boundaries import ANTHROPIC, CHAT, RESPONSES, Dock, Wire, open_dock
from tests.support.boundary_ledger import Evidence
from tests.support.boundary_marks import (
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
from tests.support.boundary_plan import ALONE, TOOLS, ten_tools
from tests.support.model_api import ModelApi

FULL = os.environ.get("LONGSHORE_CHAOS") == "full"
WIRES = {"anthropic": ANTHROPIC, "responses": RESPONSES, "chat": CHAT}
SECONDS = 1800 if FULL else 600
OUTCOME = "outcome: completed"


pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(SECONDS),
    pytest.mark.xdist_group("boundaries"),
]


@pytest.fixture(scope="module")
def database(postgres_url: str, postgres_template: str) -> Iterator[str]:
    """One for all: turns of different sessions do not see each other."""
    name = f"test_{new_id()[-12:]}"
    with psycopg.connect(postgres_url, autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{name}" TEMPLATE "{postgres_template}"'.encode())
        yield make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
        conn.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dock(database: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dock]:
    folder = tmp_path_factory.mktemp("boundaries")
    async with ModelApi(ten_tools()) as api, open_dock(database, redis_url, folder, api) as opened:
        yield opened


@pytest.mark.spec("M7", "M8", "M10")
async def test_killed_at_one_boundary_of_each_kind(dock: Dock, capsys: pytest.CaptureFixture[str]) -> None:
    boundaries = await _boundaries(dock, ANTHROPIC)
    await _prove(dock, "anthropic", boundaries, _kinds_once(boundaries), capsys)


@pytest.mark.long
@pytest.mark.spec("M7", "M8", "M10")
@pytest.mark.parametrize("name", WIRES)
async def test_killed_at_every_boundary(dock: Dock, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    boundaries = await _boundaries(dock, WIRES[name])
    chosen = boundaries if FULL else _share(boundaries, list(WIRES).index(name))
    await _prove(dock, name, boundaries, chosen, capsys)


async def _prove(
    dock: Dock, name: str, boundaries: Sequence[str], chosen: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    wire = WIRES[name]
    began = time.monotonic()
    found = await _kill_at(dock, wire, chosen)
    with capsys.disabled():
        seconds = time.monotonic() - began
        print(f"\n{name}: killed at {len(chosen)} of {len(boundaries)} boundaries in {seconds:.0f} s")
    _no_complaints(found)
    _came_by(chosen, found)
    for tool in ALONE:
        window = {AFTER_EFFECT + tool.name, f"{BEFORE_COMMIT}{END} {tool.name}"}
        twice = {one.boundary for one in found if one.runs[tool.name] == 2}
        assert twice == (window & set(chosen) if tool.idempotent else set()), tool.name
        open_call = {f"{AFTER_COMMIT}{BEGIN} {tool.name}", BEFORE_EFFECT + tool.name} | window
        unknown = {one.boundary for one in found if tool in one.unknown()}
        assert unknown == (set() if tool.idempotent else open_call & set(chosen)), tool.name


@pytest.mark.spec("M7", "M8", "P20")
async def test_another_provider_goes_on(dock: Dock) -> None:
    """The session's provider is changed while its worker lies dead."""
    boundaries = [
        f"{AFTER_COMMIT}wake", f"{FIRST_PIECE}1", f"{HEARD}2", f"{AFTER_COMMIT}{RECORD} #3", AFTER_EFFECT + "t04",
        f"{BEFORE_COMMIT}{END} t06", AFTER_EFFECT + "t09", f"{AFTER_COMMIT}{END} t10", f"{BEFORE_COMMIT}{COMPLETE}",
    ]  # fmt: skip
    moves = [replace(ANTHROPIC, then="openai"), replace(RESPONSES, then="anthropic")]
    for wire, part in zip(moves, (boundaries[::2], boundaries[1::2]), strict=True):
        chosen = boundaries if FULL else part
        found = await _kill_at(dock, wire, chosen)
        _no_complaints(found)
        _came_by(chosen, found)
        for one in found:
            assert {row.provider for row in one.turns} == {wire.then}, one.boundary
            assert wire.then in {row.provider for row in one.usage}, one.boundary


@pytest.mark.spec("M7")
@pytest.mark.parametrize(
    ("broken", "boundary", "complaint"),
    [
        pytest.param(
            *(
                "forgetful",
                f"{AFTER_COMMIT}{END} t02",
                "t02 (finished at the kill) was run 1 times before and 2 in all",
            ),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("late", AFTER_EFFECT + "t01", "t01 was run before its intent was on record"), marks=pytest.mark.long
        ),
        ("reckless", AFTER_EFFECT + "t01", "t01 (started at the kill) was run 1 times before and 2 in all, not 1"),
    ],
)
async def test_a_broken_tool_box_is_found_out(dock: Dock, broken: str, boundary: str, complaint: str) -> None:
    """A journal that forgets, one that writes too late and one that repeats what it may not."""
    found = await dock.run(ANTHROPIC, boundary, broken)
    assert any(complaint in what for what in found.complaints()), found.complaints()


async def _boundaries(dock: Dock, wire: Wire) -> list[str]:
    unharmed = await dock.run(wire)
    assert unharmed.complaints() == []
    assert all(unharmed.runs[tool.name] == 1 for tool in TOOLS)
    *boundaries, last = unharmed.trace
    assert last == OUTCOME
    return boundaries


def _kinds_once(boundaries: Sequence[str]) -> list[str]:
    """The first boundary of each kind: what is done there, whichever tool or model call it is done for. Of tools, one
    that may run twice and one that may not."""
    may_repeat = {tool.name: tool.idempotent for tool in TOOLS}
    first: dict[tuple[str, bool], str] = {}
    for boundary in boundaries:
        what, _, name = boundary.rpartition(" ")
        first.setdefault((re.sub(r"\W*\d*$", "", what), may_repeat.get(name, False)), boundary)
    return list(first.values())


def _share(boundaries: Sequence[str], which: int) -> list[str]:
    """One wire's part. Flushes are no fixed number and belong to all; the other names are the same over each wire."""
    flushes = [boundary for boundary in boundaries if FLUSH in boundary]
    return sorted(set(boundaries) - set(flushes))[which :: len(WIRES)] + flushes


async def _kill_at(dock: Dock, wire: Wire, boundaries: Sequence[str]) -> list[Evidence]:
    return await asyncio.gather(*(dock.run(wire, boundary) for boundary in boundaries))


def _no_complaints(found: Sequence[Evidence]) -> None:
    complaints = [complaint for one in found for complaint in one.complaints()]
    if complaints:
        pytest.fail(f"{len(complaints)} complaints:\n" + "\n".join(complaints[:60]), pytrace=False)


def _came_by(chosen: Sequence[str], found: Sequence[Evidence]) -> None:
    """Whether events are written on their own or with something else is a matter of milliseconds; all else is sure."""
    missed = set(chosen) - {one.boundary for one in found}
    assert not {boundary for boundary in missed if FLUSH not in boundary}, missed
