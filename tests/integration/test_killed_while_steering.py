"""A supervisor's worker is killed while it resets or replays another agent's session: it is done once all the same."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from models import Audit, Session, Step
from models.base import now
from tests.support import fork_server
from tests.support.fake_platform import post_message
from tests.support.fleet import Fleet
from tests.support.steered_fleet import ANSWER_PREFIXES, fetch_answers, fetch_sessions, fleet, hold_conversation
from tests.support.tool_calls import script_calls

__all__ = ["fleet"]
pytestmark = pytest.mark.spec("M15", "T4", "M7")

ROOT = Path(__file__).parents[2]


async def _killed(fleet: Fleet, session_id: str, point: str) -> None:
    settings = json.dumps(fleet.runtime.settings.model_dump(mode="json"))
    command = (sys.executable, "-m", "tests.support.steering_worker", settings, session_id, point)
    process = fork_server.start(command, os.environ, ROOT, stdout=1, stderr=2)
    assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL


@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("act", ["reset", "replay", "again"])
async def test_what_a_killed_worker_steered_is_done_once(fleet: Fleet, act: str, point: str) -> None:
    old = await hold_conversation(fleet, "one")
    await script_calls(fleet, ("steer_session", {"act": act, "sessionId": old}), group="boss")
    asked = await post_message(fleet, "do it", "ada", "office")
    fleet.bells.wakes.clear()
    await _killed(fleet, asked.session_id, point)
    [step] = await fleet.rows(Step)
    assert step.status == ("started" if point == "before" else "finished")
    assert len(await fetch_sessions(fleet, "worker")) == (1 if point == "before" else 2)
    held = Session.lease_expires_at.is_not(None)
    await fleet.execute(update(Session).where(held).values(lease_expires_at=now(-1)))
    await fleet.execute(update(Session).where(Session.woken_at.is_not(None)).values(woken_at=now(-3600)))
    await fleet.sweep()  # also for the one whose ring died with the worker
    await fleet.settle_down()
    made = [row for row in await fetch_sessions(fleet, "worker") if row.id != old]
    assert len(made) == 1
    wanted: dict[str, list[Any]] = {
        "reset": [],
        "replay": [("cancelled", f"{ANSWER_PREFIXES[0]}: one")],
        "again": [("delivered", f"{ANSWER_PREFIXES[0]}: one")],
    }
    assert await fetch_answers(fleet, made[0].id) == wanted[act]
    assert [row.act for row in await fleet.rows(Audit)] == [f"session.{act}"]
    assert [text for _, text in await fetch_answers(fleet, asked.session_id)] == [step_text(await fleet.rows(Step))]


def step_text(steps: list[Any]) -> str:
    [step] = steps
    return str(step.output["text"])
