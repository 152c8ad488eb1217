"""Workers that are killed in the middle of what an operator wants: a turn that is just being cancelled, a replay."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import update

from models import Session
from models.base import now
from tests.support import fork_server
from tests.support.api_fleet import model_api
from tests.support.fleet import Fleet
from tests.support.model_api import ModelApi, hang, rule, script
from workers.operations import sessions
from workers.operations.replays import compare, replay

pytestmark = pytest.mark.spec("M15", "M7")

ROOT = Path(__file__).parents[2]
MODEL = "claude-haiku-5-5"


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with model_api(monkeypatch, script(rule("second", "Second."), rule(".", "First."))) as server:
        yield server


@asynccontextmanager
async def _doomed(fleet: Fleet, api: ModelApi, session_id: str) -> AsyncIterator[fork_server.Process]:
    """A worker in a process of its own, in the middle of a turn: its model says nothing."""
    api.fail(hang())
    asked = len(api.requests)
    settings = json.dumps(fleet.runtime.settings.model_dump(mode="json"))
    command = [sys.executable, "-m", "tests.support.program_worker", settings, session_id, "anthropic"]
    worker = fork_server.start(command, os.environ, ROOT, stdout=1, stderr=2)
    try:
        async with asyncio.timeout(60):
            while len(api.requests) == asked:
                await asyncio.sleep(0.02)
        yield worker
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()


async def test_a_turn_is_cancelled_although_its_worker_has_just_been_killed(fleet: Fleet, api: ModelApi) -> None:
    await fleet.add_group(provider="anthropic", model=MODEL)
    session_id = (await fleet.send("hello")).session_id
    async with _doomed(fleet, api, session_id) as worker:
        await fleet.send("second", follow_up="separate")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        # Its lease runs on, and nobody waits for that.
        await sessions.cancel(fleet.runtime, "cli", session_id)
    fleet.bells.wakes = fleet.bells.wakes[-1:]
    assert await fleet.answer_wakes() == ["completed"]
    await fleet.sweep()
    await fleet.settle_down()
    assert [turn.status for turn in await fleet.turns()] == ["cancelled", "completed"]
    assert [row.status for row in await fleet.inbox()] == ["discarded", "completed"]
    assert [row.content["text"] for row in await fleet.outbox()] == ["Second."]


@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_a_replay_whose_worker_was_killed_is_continued_by_another(fleet: Fleet, api: ModelApi) -> None:
    await fleet.add_group(provider="anthropic", model=MODEL)
    for text in ("hello", "second"):
        original = (await fleet.send(text)).session_id
        await fleet.settle_down()
    made = await replay(fleet.runtime, "cli", original)
    assert await fleet.answer_wakes() == ["completed"]
    async with _doomed(fleet, api, made.session_id):
        pass
    fleet.bells.wakes.clear()
    await fleet.execute(update(Session).where(Session.id == made.session_id).values(lease_expires_at=now(-1)))
    await fleet.sweep()
    assert fleet.bells.wakes == [(made.session_id, "anthropic")]
    await fleet.settle_down()
    pairs = await fleet.db.read(lambda conn: compare(conn, made.session_id))
    assert [pair.replayed.status for pair in pairs] == ["completed", "completed"]
    assert [[one["text"] for one in pair.replayed.answers] for pair in pairs] == [["First."], ["Second."]]
    assert {row.status for row in await fleet.outbox() if row.session_id == made.session_id} == {"cancelled"}
