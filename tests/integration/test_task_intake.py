"""Tasks as producers send them: which first dates are taken, whose series they are, and who may bring them."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, update

from models import MessageIn, Series, Session
from models.base import new_id, now
from tests.support.due_tasks import due_task
from tests.support.fake_platform import grant_role, post_message, wire
from tests.support.fleet import Fleet
from tests.support.task_runs import clock, runs_of
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.refusals import RefusedError

HOUR = timedelta(hours=1)
EVERYTHING = {"catch_up": "all", "overlap": "queue", "pause_after": 0}


async def take(fleet: Fleet, row_id: str | None = None, **fields: Any) -> Accepted:
    incoming = parse_incoming({"agent_group": "demo", "text": "look around", "kind": "task"} | fields)
    runtime = fleet.runtime
    accepted = await accept(fleet.db, runtime.registry, runtime.settings, incoming, row_id=row_id)
    accepted.ring(fleet.bells)
    return accepted


# --- first dates ---


@pytest.mark.spec("S3", "G1")
async def test_a_recurring_task_does_not_begin_in_the_past(fleet: Fleet) -> None:
    await fleet.add_group()
    at = await clock(fleet)
    with pytest.raises(RefusedError, match=r"process_after: 1971-01-01T00:00:00\+00:00 is more than a day ago"):
        await take(fleet, process_after="1971-01-01T00:00:00Z", recurrence="* * * * *", terms=EVERYTHING)
    with pytest.raises(RefusedError, match="leave it out to begin with the next"):
        await take(fleet, process_after=at - 24 * HOUR - timedelta(seconds=1), recurrence="@yearly")
    assert (await fleet.inbox(), await fleet.sessions(), await fleet.rows(Series)) == ([], [], [])
    await take(fleet, process_after=at - 100 * HOUR)
    assert len(await fleet.inbox()) == 1, "what comes once is only late"


@pytest.mark.spec("M1", "S3")
async def test_one_that_was_taken_is_a_duplicate_however_old_it_has_become(fleet: Fleet) -> None:
    await fleet.add_group()
    at = await clock(fleet)
    first = await take(fleet, new_id(), process_after=at - HOUR, recurrence="@yearly", terms=EVERYTHING)
    again = await take(fleet, first.message_id, process_after=at - 48 * HOUR, recurrence="@yearly", terms=EVERYTHING)
    assert (again.message_id, again.duplicate) == (first.message_id, True)


@pytest.mark.spec("S3")
@pytest.mark.parametrize("terms", [{"catch_up": "all"}, {"overlap": "queue"}, EVERYTHING], ids=["all", "queue", "both"])
async def test_dates_before_a_task_was_made_are_not_made_up_for(fleet: Fleet, terms: dict[str, Any]) -> None:
    """Its first run is late, and those between its date and its making were never missed by anybody."""
    await fleet.add_group()
    dates = [(await clock(fleet)).replace(second=0, microsecond=0) - hours * HOUR for hours in (5, 3, 1)]
    each_day = f"{dates[0].minute} {','.join(str(date.hour) for date in dates)} * * *"
    task = await take(fleet, process_after=dates[0], recurrence=each_day, terms=terms)
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]
    await fleet.sweep()
    first, second = await runs_of(fleet, task.message_id)
    assert (first.status, first.scheduled_for) == ("completed", dates[0])
    assert second.scheduled_for == dates[0] + 24 * HOUR


@pytest.mark.spec("S3")
async def test_dates_since_a_task_was_made_are_made_up_for(fleet: Fleet) -> None:
    """It was made three hours ago, two hours late, and ran just now."""
    await fleet.add_group()
    at = (await clock(fleet)).replace(minute=30, second=0, microsecond=0) - HOUR
    task = await take(fleet, process_after=at - 5 * HOUR, recurrence="@hourly", terms=EVERYTHING)
    ran = {"status": "completed", "status_changed_at": at, "created_at": at - 3 * HOUR}
    await fleet.execute(update(MessageIn).values(**ran))
    await fleet.sweep()
    assert (await runs_of(fleet, task.message_id))[1].scheduled_for == at - 2.5 * HOUR
    # A later row of the series was written when the one before it was over: that is no reason to pass over anything.
    ran |= {"scheduled_for": at - 2.5 * HOUR, "recurred": False}
    await fleet.execute(update(MessageIn).where(MessageIn.id != task.message_id).values(ran | {"created_at": at}))
    await fleet.sweep()
    assert (await runs_of(fleet, task.message_id))[2].scheduled_for == at - 1.5 * HOUR


# --- whose series ---


@pytest.mark.spec("M1", "S4")
@pytest.mark.parametrize("terms", [{"catch_up": "all"}, None], ids=["with terms", "without"])
@pytest.mark.parametrize("again", [{}, {"recurrence": "@hourly"}, {"terms": {"pause_after": 1}}])
async def test_the_id_of_a_series_is_not_taken_again(
    fleet: Fleet, terms: dict[str, Any] | None, again: dict[str, Any]
) -> None:
    """Its first row was pruned, and it goes on."""
    await fleet.add_group()
    await fleet.add_group("other")
    first = await take(fleet, new_id(), recurrence="@yearly", terms=terms)
    await fleet.execute(update(MessageIn).values(status="completed", status_changed_at=now()))
    await fleet.sweep()
    await fleet.execute(delete(MessageIn).where(MessageIn.id == first.message_id))
    before = await fleet.inbox()
    for agent in ("demo", "other"):
        with pytest.raises(RefusedError, match="is that of a task which is here already: send it under another"):
            await take(fleet, first.message_id, agent_group=agent, **again)
    assert await fleet.inbox() == before
    assert len(await fleet.sessions()) == 1
    chat = await take(fleet, first.message_id, kind="chat")
    assert not chat.duplicate, "what is no task is of no series"


@pytest.mark.spec("S4")
async def test_terms_are_for_the_agent_whose_task_it_is(fleet: Fleet) -> None:
    await fleet.add_group()
    await fleet.add_group("other")
    task = await due_task(fleet, "operate", script="true", provider="nosuch", agent_group="other")
    run = await due_task(fleet, "look around", series=task.message_id)
    assert await fleet.wake(run.session_id) == "completed"
    assert [turn.provider for turn in await fleet.turns()] == ["scripted"]


# --- who may bring one, and when ---


@pytest.mark.spec("C5", "S4")
async def test_a_platform_brings_no_tasks(fleet: Fleet) -> None:
    group = await fleet.add_group()
    await wire(fleet, group)
    await grant_role(fleet, "ada", "owner")
    for sender, trusted in (("ada", False), ("eve", True)):
        with pytest.raises(RefusedError, match="a task is for the operator to send"):
            await post_message(fleet, "x", sender, kind="task", content={"prompt": "look around"}, trusted=trusted)
    assert await fleet.inbox() == []


@pytest.mark.spec("M7", "S1")
async def test_a_message_for_later_is_not_refused_by_an_agent_at_work(fleet: Fleet) -> None:
    await fleet.add_group()
    await fleet.send()
    await fleet.execute(update(Session).values(lease_owner="w", lease_expires_at=now(600)))
    at = await clock(fleet)
    for later in (
        {"process_after": at + HOUR},
        {"recurrence": "@yearly"},
        {"process_after": at + HOUR, "kind": "chat"},
    ):
        accepted = await take(fleet, follow_up="reject", **later)
        assert not accepted.duplicate
    for at_once in ({}, {"process_after": at - HOUR}, {"terms": {"pause_after": 1}}, {"kind": "chat"}):
        with pytest.raises(RefusedError, match="the agent is at work"):
            await take(fleet, follow_up="reject", **at_once)
    assert len(await fleet.inbox()) == 4
