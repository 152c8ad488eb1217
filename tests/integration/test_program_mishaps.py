"""Programs as agents when things go wrong in between: what was said is not lost, what was approved is not more than
that, and nothing of an attempt is left behind."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from models import Approval, Reservation, Session, Usage
from models.base import now
from tests.support.conditions import wait_for_condition
from tests.support.database_kinds import SQLITE_ONLY
from tests.support.diarist_fleet import (
    MakeDiarists,
    answer_approval,
    fetch_answers,
    send_during_turn,
    set_next_prompt,
    start_turn,
)
from tests.support.directive_provider import Diarist, DiaristQuery
from tests.support.fleet import Fleet
from workers.loop import Job, Stop, StoppedError
from workers.turn import wake

pytestmark = pytest.mark.spec("P12", "M7")


def homes(folder: Path) -> list[Path]:
    return list((folder / "workspaces" / ".homes").glob("*/*"))


async def test_a_follow_up_is_told_again_when_it_may_not_be_remembered(
    worker: tuple[Fleet, Diarist], make_worker: MakeDiarists
) -> None:
    fleet, diarist = worker
    session_id, job, running = await start_turn(fleet, diarist, "use clock {}\nstay\nlisten")
    await send_during_turn(fleet, session_id, "and this")
    job.stop(Stop.SHUTDOWN)
    with pytest.raises(StoppedError):
        await running
    other, there = await make_worker()
    assert await wake(other.runtime, session_id, "diarist") == "completed"
    prompt = str(there.queries[0].given.prompt)
    assert "This was said while you were at work; answer it if you have not yet:" in prompt
    assert "and this" in prompt
    assert "use clock" not in prompt, "what it surely remembers is not told again"


@SQLITE_ONLY
async def test_a_follow_up_is_not_forgotten_with_an_older_memory(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    accepted = await fleet.send("want git push")
    assert await fleet.answer_wakes() == ["parked"]
    await answer_approval(fleet)
    await set_next_prompt(fleet, "listen\nbreak")
    diarist.breaks = 1
    running = asyncio.create_task(fleet.wake(accepted.session_id, "diarist"))
    await wait_for_condition(lambda: len(diarist.queries) == 2)
    await diarist.queries[1].listening.wait()
    await send_during_turn(fleet, accepted.session_id, "and this")
    assert await running == "waiting"
    await set_next_prompt(fleet, "be done")
    await fleet.execute(update(Session).values(resume_after=now()))
    assert await fleet.wake(accepted.session_id, "diarist") == "completed"
    assert "and this" in str(diarist.queries[2].given.prompt)


@pytest.mark.parametrize("then", ["want git push", "break"])
async def test_what_it_has_answered_leaves_although_the_turn_goes_on_later(
    worker: tuple[Fleet, Diarist], then: str
) -> None:
    fleet, diarist = worker
    diarist.breaks = 1
    accepted = await fleet.send(f"answer the first\n{then}")
    assert await fleet.answer_wakes() in (["parked"], ["waiting"])
    assert await fetch_answers(fleet) == await _told(fleet) == ["the first"]
    if then != "break":
        await answer_approval(fleet)
    await fleet.execute(update(Session).values(resume_after=now()))
    assert await fleet.wake(accepted.session_id, "diarist") == "completed"
    first, last = await fetch_answers(fleet)
    assert first == "the first"
    assert last.startswith("answer the first")
    assert await _told(fleet) == [first, last]


async def _told(fleet: Fleet) -> list[str]:
    return [row.payload["text"] for row in await fleet.events() if row.type == "result"]


@pytest.mark.spec("M17")
async def test_what_waits_for_two_decisions_is_woken_by_each_and_never_by_itself(
    worker: tuple[Fleet, Diarist],
) -> None:
    fleet, _ = worker
    await fleet.send("want git push plus git push --tags")
    assert await fleet.answer_wakes() == ["parked"]
    assert len(await fleet.rows(Approval)) == 2
    await answer_approval(fleet)
    assert await fleet.answer_wakes() == ["parked"]
    assert await fleet.answer_wakes() == []
    for approval in await fleet.rows(Approval):
        if approval.status == "pending":
            await fleet.execute(update(Approval).where(Approval.id == approval.id).values(status="approved"))
    await fleet.execute(update(Session).values(resume_after=now()))
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]


@pytest.mark.spec("M17")
async def test_an_approval_that_was_not_used_keeps_nothing_awake(worker: tuple[Fleet, Diarist]) -> None:
    fleet, _ = worker
    await fleet.send("want git push")
    assert await fleet.answer_wakes() == ["parked"]
    await answer_approval(fleet)
    await set_next_prompt(fleet, "want git push --force")
    assert await fleet.answer_wakes() == ["parked"]
    assert await fleet.answer_wakes() == []


@SQLITE_ONLY
@pytest.mark.spec("P14")
@pytest.mark.parametrize(
    ("again", "done"),
    [
        ("want git push in fork plus git push in fork", ["git push in fork"]),
        ("want git push in production", []),
        ("want git push", []),
    ],
)
async def test_an_approval_is_for_one_command_in_one_place(
    worker: tuple[Fleet, Diarist], again: str, done: list[str]
) -> None:
    fleet, diarist = worker
    await fleet.send("want git push in fork")
    assert await fleet.answer_wakes() == ["parked"]
    await answer_approval(fleet)
    await set_next_prompt(fleet, again)
    assert await fleet.answer_wakes() == ["parked"]
    assert diarist.done == done


@SQLITE_ONLY
async def test_a_time_limit_after_it_said_something_is_gone_on_from(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    session_id, job, running = await start_turn(fleet, diarist, 'use send_message {"text": "half way"}\nstay')
    job.stop(Stop.TIME_LIMIT)
    with pytest.raises(StoppedError):
        await running
    await fleet.execute(update(Session).values(resume_after=now()))
    assert await fleet.wake(session_id, "diarist") == "completed"
    assert (await fetch_answers(fleet))[0] == "half way"


@SQLITE_ONLY
@pytest.mark.spec("T4")
async def test_a_conversation_begins_anew_also_if_it_had_to_wait_before(worker: tuple[Fleet, Diarist]) -> None:
    fleet, _ = worker
    await fleet.send("use reset_session {}\nwant git push")
    assert await fleet.answer_wakes() == ["parked"]
    await answer_approval(fleet)
    assert await fleet.answer_wakes() == ["completed"]
    assert len(await fleet.rows(Session)) == 2


@SQLITE_ONLY
@pytest.mark.spec("P21")
async def test_money_is_not_held_for_what_has_ended(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, _ = worker
    said = DiaristQuery.say

    async def say(self: DiaristQuery, event: Any) -> None:
        if event.type != "usage":
            await said(self, event)

    monkeypatch.setattr(DiaristQuery, "say", say)
    await fleet.add_group("poor", provider="diarist", config={"budget": {"daily_usd": 0.2}})
    for number in range(6):
        await fleet.send(f"message {number}", agent_group="poor")
        assert await fleet.answer_wakes() == ["completed"]
    assert await fleet.rows(Reservation) == []


@SQLITE_ONLY
async def test_a_lost_lease_leaves_no_home(worker: tuple[Fleet, Diarist], tmp_path: Path) -> None:
    fleet, diarist = worker
    _session_id, _, running = await start_turn(fleet, diarist, "listen")
    await fleet.execute(update(Session).values(lease_token=Session.lease_token + 1))
    await diarist.queries[0].push("go on")
    with pytest.raises(StoppedError):
        await running
    assert homes(tmp_path) == []


@SQLITE_ONLY
async def test_a_stop_while_it_is_stopped_leaves_no_home_and_forgets_no_cost(
    worker: tuple[Fleet, Diarist], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, _ = worker
    accepted = await fleet.send("hello")
    job, aborted = Job(), DiaristQuery.abort

    async def abort(self: DiaristQuery) -> None:
        job.stop(Stop.SHUTDOWN)
        await asyncio.sleep(0.01)
        await aborted(self)

    monkeypatch.setattr(DiaristQuery, "abort", abort)
    with pytest.raises(StoppedError):
        await job.run(fleet.wake(accepted.session_id, "diarist"))
    assert homes(tmp_path) == []
    assert len(await fleet.rows(Usage)) == 1


@SQLITE_ONLY
async def test_a_stop_while_its_home_is_made_leaves_none(
    worker: tuple[Fleet, Diarist], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, _ = worker
    accepted = await fleet.send("hello")
    job, made = Job(), fleet.runtime.homes._make

    def make(state: bytes | None) -> tuple[Path, int]:
        job.stop(Stop.SHUTDOWN)
        time.sleep(0.1)  # a disk that takes its time
        return made(state)

    monkeypatch.setattr(fleet.runtime.homes, "_make", make)
    with pytest.raises(StoppedError):
        await job.run(fleet.wake(accepted.session_id, "diarist"))
    assert homes(tmp_path) == []


@pytest.fixture
def deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that make more folders within each other than Python's own functions can walk."""
    talk = DiaristQuery.converse

    async def converse(self: DiaristQuery) -> None:
        assert self.given.station is not None
        at = os.open(self.given.station.home, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("a", dir_fd=at)
            at, above = os.open("a", os.O_RDONLY, dir_fd=at), at
            os.close(above)
        os.close(at)
        await talk(self)

    monkeypatch.setattr(DiaristQuery, "converse", converse)


@SQLITE_ONLY
@pytest.mark.usefixtures("deep")
async def test_a_home_of_any_depth_is_cleared_away(worker: tuple[Fleet, Diarist], tmp_path: Path) -> None:
    fleet, _ = worker
    await fleet.send("hello")
    assert await fleet.answer_wakes() == ["completed"]
    assert await fetch_answers(fleet) == ["hello"]
    assert homes(tmp_path) == []
