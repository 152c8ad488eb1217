"""Recurring rows: each finished one is followed by the next, from its own date, once."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from models import MessageIn, Session
from models.base import now
from tests.support.fleet import Fleet


async def _hourly(fleet: Fleet) -> datetime:
    """A task every hour whose date has just come; returns the date."""
    due = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    await fleet.send("look around", kind="task", process_after=due, recurrence="@hourly")
    await fleet.sweep()
    return due


@pytest.mark.spec("S1")
async def test_a_finished_one_is_followed_by_the_next_from_its_own_date(fleet: Fleet) -> None:
    await fleet.add_group()
    due = await _hourly(fleet)
    await fleet.settle_down()
    await fleet.sweep()
    first, second = sorted(await fleet.rows(MessageIn), key=lambda row: row.process_after)
    assert (first.status, first.process_after) == ("completed", due)
    assert (second.status, second.process_after) == ("pending", due + timedelta(hours=1))
    assert second.series_id == first.series_id == first.id
    assert second.content == first.content


@pytest.mark.spec("S1", "S5")
async def test_several_sweeps_write_one_next_row(fleet: Fleet) -> None:
    await fleet.add_group()
    await _hourly(fleet)
    await fleet.settle_down()
    await asyncio.gather(*(fleet.sweep() for _ in range(4)))
    await fleet.sweep()
    assert len(await fleet.rows(MessageIn)) == 2


@pytest.mark.spec("S1", "M9")
async def test_a_run_that_had_to_be_tried_again_does_not_move_the_schedule(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n  - fail: {class: transport}\n    until_attempt: 2\n  - answer: done")
    due = await _hourly(fleet)
    assert await fleet.answer_wakes() == ["waiting"]
    await fleet.execute(update(Session).values(resume_after=now(-1)))
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]
    await fleet.sweep()
    assert max(row.process_after for row in await fleet.rows(MessageIn)) == due + timedelta(hours=1)


@pytest.mark.spec("S1")
async def test_one_that_was_given_up_or_put_away_does_not_end_its_series(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n  - fail: {class: auth}")
    await _hourly(fleet)
    assert await fleet.answer_wakes() == ["failed"]
    await fleet.execute(update(MessageIn).values(status="discarded"))
    await fleet.sweep()
    assert sorted(row.status for row in await fleet.rows(MessageIn)) == ["discarded", "pending"]
