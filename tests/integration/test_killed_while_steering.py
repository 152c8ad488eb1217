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
from tests.integration.test_steering import TEMPERS, fleet, of, said_in, talk
from tests.integration.test_task_tools import teach
from tests.support import fork_server
from tests.support.fake_platform import hear
from tests.support.fleet import Fleet

pytestmark = pytest.mark.spec("M15", "T4", "M7")

__all__ = ["fleet"]
ROOT = Path(__file__).parents[2]


async def _killed(fleet: Fleet, session_id: str, point: str) -> None:
    settings = json.dumps(fleet.runtime.settings.model_dump(mode="json"))
    command = (sys.executable, "-m", "tests.support.steering_worker", settings, session_id, point)
    process = fork_server.start(command, os.environ, ROOT, stdout=1, stderr=2)
    assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL


@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("act", ["reset", "replay", "again"])
async def test_what_a_killed_worker_steered_is_done_once(fleet: Fleet, act: str, point: str) -> None:
    old = await talk(fleet, "one")
    await teach(fleet, ("steer_session", {"act": act, "sessionId": old}), group="boss")
    asked = await hear(fleet, "do it", "ada", "office")
    fleet.bells.wakes.clear()
    await _killed(fleet, asked.session_id, point)
    [step] = await fleet.rows(Step)
    assert step.status == ("started" if point == "before" else "finished")
    assert len(await of(fleet, "worker")) == (1 if point == "before" else 2)
    held = Session.lease_expires_at.is_not(None)
    await fleet.execute(update(Session).where(held).values(lease_expires_at=now(-1)))
    await fleet.execute(update(Session).where(Session.woken_at.is_not(None)).values(woken_at=now(-3600)))
    await fleet.sweep()  # also for the one whose ring died with the worker
    await fleet.settle_down()
    made = [row for row in await of(fleet, "worker") if row.id != old]
    assert len(made) == 1
    wanted: dict[str, list[Any]] = {
        "reset": [],
        "replay": [("cancelled", f"{TEMPERS[0]}: one")],
        "again": [("delivered", f"{TEMPERS[0]}: one")],
    }
    assert await said_in(fleet, made[0].id) == wanted[act]
    assert [row.act for row in await fleet.rows(Audit)] == [f"session.{act}"]
    assert [text for _, text in await said_in(fleet, asked.session_id)] == [step_text(await fleet.rows(Step))]


def step_text(steps: list[Any]) -> str:
    [step] = steps
    return str(step.output["text"])
