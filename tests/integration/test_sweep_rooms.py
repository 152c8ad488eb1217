"""When very many tasks are due: as many are rung for as there is room for, the oldest first, and chats at once."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, insert, update

from models import MessageIn, Process, Round, Session, Turn
from models.base import new_id, now
from scheduler import ringing
from scheduler.ringing import UNATTENDED
from tests.support.fleet import Fleet, HeldBells, MakeFleet, fleet_settings
from tests.support.task_runs import add_run, add_session, clock
from workers import app
from workers.runtime import Node, Runtime

pytestmark = pytest.mark.both_databases

SECOND = timedelta(seconds=1)
# What fleet's sweep takes for lost is not what these tests are about.
LONG = 60.0


@pytest.fixture
async def fleet(make_fleet: MakeFleet) -> Fleet:
    fleet = await make_fleet(repeat_seconds=LONG)
    await fleet.add_group()
    return fleet


async def add_worker(fleet: Fleet, *providers: str, slots: int | None, name: str = "w", **values: Any) -> None:
    queues = [f"agent.{provider}" for provider in providers or ("scripted",)]
    row = {"name": name, "kind": "worker", "pid": 1, "queues": queues, "slots": slots, "seen_at": now(3600)} | values
    await fleet.execute(insert(Process).values(**row))


async def add_tasks(fleet: Fleet, count: int, folder: str = "demo", late: float = 60.0, **values: Any) -> list[str]:
    """So many sessions with a due task each; the first is the oldest."""
    at = await clock(fleet) - timedelta(seconds=late)
    sessions = [await add_session(fleet, folder) for _ in range(count)]
    for number, session_id in enumerate(sessions):
        await add_run(fleet, at + number * SECOND / 100, session_id=session_id, recurrence=None, **values)
    return sessions


async def rung(fleet: Fleet) -> list[str]:
    return [wake.session_id for wake in (await fleet.sweep()).wakes]


@pytest.mark.spec("S6")
async def test_a_share_of_the_slots_is_rung_for_the_oldest_first(fleet: Fleet) -> None:
    await add_worker(fleet, slots=8)
    sessions = await add_tasks(fleet, 9)
    assert await rung(fleet) == sessions[:6]
    assert await rung(fleet) == []
    # One is taken, another is done.
    await fleet.wake(sessions[0])
    await fleet.execute(update(Session).where(Session.id == sessions[1]).values(_leased()))
    assert await rung(fleet) == [sessions[6]]


def _leased() -> dict[str, Any]:
    return {"lease_owner": "w", "lease_expires_at": now(60), "woken_at": None}


@pytest.mark.spec("S6")
async def test_a_chat_is_rung_for_however_many_tasks_wait(fleet: Fleet) -> None:
    await add_worker(fleet, slots=4)
    sessions = await add_tasks(fleet, 12)
    chat = (await fleet.send("hello")).session_id
    assert [session_id for session_id, _ in fleet.bells.wakes] == [chat]
    await fleet.execute(update(Session).values(woken_at=None))  # that ring was lost
    found = await rung(fleet)
    assert found[0] == chat
    assert found[1:] == sessions[:2]  # three quarters of four slots, less the chat


@pytest.mark.spec("S6")
async def test_tasks_get_a_few_slots_when_chats_fill_them_all(fleet: Fleet) -> None:
    await add_worker(fleet, slots=20)
    for _ in range(20):
        await add_session(fleet, **_leased())
    waiting = [await add_session(fleet, woken_at=now()) for _ in range(30)]
    sessions = await add_tasks(fleet, 5)
    assert await rung(fleet) == sessions[:2]
    # They wait for a slot like the chats, and are not lost.
    await fleet.execute(
        update(Session).where(Session.id.in_([*sessions[:2], *waiting])).values(woken_at=now(-2 * LONG))
    )
    assert await rung(fleet) == []
    # When one was taken, another is rung for, and not the first again.
    await fleet.execute(update(Session).where(Session.id == sessions[1]).values(_leased()))
    assert await rung(fleet) == [sessions[2]]
    # Until it has taken too long.
    await fleet.execute(update(Session).where(Session.id == sessions[1]).values(lease_expires_at=None))
    await fleet.execute(update(Session).where(Session.id.in_(sessions[:2])).values(woken_at=now(-20 * LONG)))
    await fleet.execute(update(Session).where(Session.id.in_(sessions[2:])).values(woken_at=None))
    assert await rung(fleet) == sessions[:2]


@pytest.mark.spec("S6")
async def test_a_ring_that_was_lost_is_rung_again_while_slots_are_free(fleet: Fleet) -> None:
    await add_worker(fleet, slots=4)
    sessions = await add_tasks(fleet, 4)
    assert await rung(fleet) == sessions[:3]
    await fleet.execute(update(Session).where(Session.woken_at.is_not(None)).values(woken_at=now(-2 * LONG)))
    assert await rung(fleet) == sessions[:3]


@pytest.mark.spec("S6")
@pytest.mark.parametrize(
    "gone", [None, {"seen_at": now(-600)}, {"queues": ["agent.other"]}], ids=["none", "dead", "another's"]
)
async def test_without_a_worker_a_few_are_rung_for(fleet: Fleet, gone: dict[str, Any] | None) -> None:
    if gone is not None:
        await add_worker(fleet, **{"slots": 100} | gone)
    sessions = await add_tasks(fleet, UNATTENDED + 2)
    assert await rung(fleet) == sessions[:UNATTENDED]
    await fleet.execute(update(Session).where(Session.woken_at.is_not(None)).values(woken_at=now(-2 * LONG)))
    assert await rung(fleet) == []


@pytest.mark.spec("S6")
async def test_each_provider_has_its_own_room(fleet: Fleet) -> None:
    """Also one that is named by a session, and the default one."""
    await fleet.add_group("other", provider="other")
    await fleet.add_group("nobody's", provider=None)
    await add_worker(fleet, slots=4)
    await add_worker(fleet, "other", slots=2, name="o")
    scripted = await add_tasks(fleet, 2)
    other = await add_tasks(fleet, 3, "other")
    default = await add_tasks(fleet, 3, "nobody's", late=50)
    chosen = await add_tasks(fleet, 1, late=70)
    await fleet.execute(update(Session).where(Session.id.in_(chosen)).values(provider="other"))
    found = (await fleet.sweep()).wakes
    assert {wake.session_id: wake.provider for wake in found} == {
        scripted[0]: "scripted",
        scripted[1]: "scripted",
        default[0]: "scripted",
        chosen[0]: "other",
    }
    assert other[0] not in {wake.session_id for wake in found}  # two slots have room for one


@pytest.mark.spec("S6")
async def test_tasks_behind_the_backlog_of_another_provider_are_found(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are looked at each time are all of a provider that has no room, or of sessions that are closed."""
    monkeypatch.setattr(ringing, "NEAR", 2)
    await fleet.add_group("other", provider="other")
    await add_worker(fleet, slots=1)
    await add_worker(fleet, "other", slots=1, name="o")
    closed = await add_tasks(fleet, 2, late=90)
    await fleet.execute(update(Session).where(Session.id.in_(closed)).values(status="closed"))
    backlog = await add_tasks(fleet, 5)
    behind = await add_tasks(fleet, 2, "other", late=10)
    assert await rung(fleet) == [backlog[0], behind[0]]
    await fleet.execute(update(Session).where(Session.id == behind[0]).values(_leased()))
    assert await rung(fleet) == [], "all are looked at only once in a while"
    await fleet.execute(delete(MessageIn).where(MessageIn.session_id == behind[0]))
    await fleet.execute(update(Session).where(Session.id == behind[0]).values(lease_expires_at=None))
    await fleet.execute(update(Round).values(began_at=now(-ringing.FAR_SECONDS)))
    assert await rung(fleet) == [behind[1]]


@pytest.mark.spec("S4", "S6")
@pytest.mark.parametrize(("served", "expected"), [("other", "other"), ("scripted", "other")])
async def test_a_task_is_rung_for_on_the_queue_of_the_provider_it_names(
    fleet: Fleet, served: str, expected: str
) -> None:
    """Also where nobody listens to that one: it waits there, and nobody is rung for it again and again."""
    await add_worker(fleet, served, slots=100)
    [session_id] = await add_tasks(fleet, 1, terms={"provider": "other"})
    assert [(wake.session_id, wake.provider) for wake in (await fleet.sweep()).wakes] == [(session_id, expected)]
    await fleet.execute(update(Session).values(woken_at=now(-2 * LONG)))
    again = [session_id] if served == "other" else []
    assert await rung(fleet) == again


@pytest.mark.spec("S4", "S6")
async def test_a_task_takes_room_of_the_provider_it_names(fleet: Fleet) -> None:
    """Where it is run, and where it is rung for; and none of the agent's own."""
    await add_worker(fleet, slots=8)
    await add_worker(fleet, "other", slots=8, name="o")
    elsewhere = await add_tasks(fleet, 8, terms={"provider": "other"})
    own = await add_tasks(fleet, 8, late=50)
    for session_id in elsewhere[:4]:
        await _begin(fleet, session_id, provider="other")
    assert await rung(fleet) == [*elsewhere[4:6], *own[:6]]
    assert await rung(fleet) == []


async def _begin(fleet: Fleet, session_id: str, provider: str) -> None:
    turn = {"id": new_id(), "session_id": session_id, "number": 1, "provider": provider, "lease_token": 1}
    await fleet.insert(Turn, turn)
    await fleet.execute(update(Session).where(Session.id == session_id).values(_leased()))
    begun = {"status": "processing", "turn_id": turn["id"], "tries": 1}
    await fleet.execute(update(MessageIn).where(MessageIn.session_id == session_id).values(begun))


@pytest.mark.spec("S4", "M10")
async def test_a_run_whose_worker_died_is_rung_for_where_its_task_belongs(fleet: Fleet) -> None:
    [session_id] = await add_tasks(fleet, 1, terms={"provider": "other"})
    await _begin(fleet, session_id, "other")
    await fleet.execute(update(Session).values(lease_expires_at=now(-1)))
    assert [wake.provider for wake in (await fleet.sweep()).wakes] == ["other"]


@pytest.mark.spec("S4", "S6")
async def test_of_several_tasks_of_a_conversation_the_oldest_is_rung_for_and_taken(fleet: Fleet) -> None:
    """Whoever rings and whoever takes it mean the same one, whichever was written first."""
    await add_worker(fleet, slots=100)
    session_id = await add_session(fleet)
    at = await clock(fleet) - timedelta(seconds=60)
    younger = await add_run(fleet, at + SECOND, session_id=session_id, terms={"provider": "other"})
    older = await add_run(fleet, at, session_id=session_id, seq=2, terms={})
    assert [wake.provider for wake in (await fleet.sweep()).wakes] == ["scripted"]
    assert await fleet.wake(session_id) == "completed"
    states = {row.id: row.status for row in await fleet.inbox()}
    assert (states[older], states[younger]) == ("completed", "pending")


@pytest.mark.spec("S6")
async def test_one_conversation_with_very_many_due_tasks_hides_nobody(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is looked at each time is one session's, on a queue that nobody listens to."""
    monkeypatch.setattr(ringing, "NEAR", 2)
    monkeypatch.setattr(ringing, "UNATTENDED", 2)
    await fleet.add_group("other", provider="other")
    await add_worker(fleet, slots=1)
    session_id = await add_session(fleet, "other")
    at = await clock(fleet) - timedelta(seconds=90)
    for number in range(12):
        await add_run(fleet, at + number * SECOND, session_id=session_id, seq=number + 1)
    [behind] = await add_tasks(fleet, 1)
    assert await rung(fleet) == [session_id, behind]
    # Nor when it was rung for in vain.
    marks = {session_id: now(-2 * LONG), behind: None}
    for rung_one, mark in marks.items():
        await fleet.execute(update(Session).where(Session.id == rung_one).values(woken_at=mark))
    await fleet.execute(update(Round).values(began_at=now(-ringing.FAR_SECONDS)))
    assert await rung(fleet) == [behind]


@pytest.mark.spec("S6")
async def test_what_is_not_due_or_may_not_go_on_is_not_rung_for(fleet: Fleet) -> None:
    await add_worker(fleet, slots=100)
    resting, closed, running, paused = await add_tasks(fleet, 4)
    await add_tasks(fleet, 1, late=-60)
    await fleet.execute(update(Session).where(Session.id == resting).values(resume_after=now(60)))
    await fleet.execute(update(Session).where(Session.id == closed).values(status="closed"))
    await fleet.execute(update(Session).where(Session.id == running).values(_leased()))
    await fleet.execute(update(MessageIn).where(MessageIn.session_id == paused).values(status="paused"))
    found = await fleet.sweep()
    assert (found.wakes, found.full) == ([], False)


@pytest.mark.spec("S5", "S6")
async def test_several_sweepers_together_ring_for_what_there_is_room_for(make_fleet: MakeFleet) -> None:
    sweepers = [await make_fleet(repeat_seconds=LONG) for _ in range(3)]
    fleet = sweepers[0]
    await fleet.add_group()
    await add_worker(fleet, slots=8)
    sessions = await add_tasks(fleet, 20)
    found = await asyncio.gather(*(sweeper.sweep() for sweeper in sweepers))
    wakes = [wake.session_id for one in found for wake in one.wakes]
    assert sorted(wakes) == sorted(set(wakes)), "nobody is rung for twice"
    assert set(sessions[:6]) <= set(wakes)
    assert len(wakes) <= 3 * 6


@pytest.mark.spec("S5", "S6")
async def test_what_another_sweep_has_rung_for_meanwhile_is_left_to_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_worker(fleet, slots=4)
    sessions = await add_tasks(fleet, 5)
    others: list[str] = []
    count = ringing._loads

    async def counted(*args: Any) -> Any:
        loads = await count(*args)
        monkeypatch.setattr(ringing, "_loads", count)
        others.extend(await rung(fleet))
        return loads

    monkeypatch.setattr(ringing, "_loads", counted)
    assert await rung(fleet) == []
    assert others == sessions[:3]


@pytest.mark.spec("S6")
async def test_a_sweep_looks_again_at_once_while_tasks_are_taken_and_more_wait(fleet: Fleet) -> None:
    await add_worker(fleet, slots=2)
    await add_tasks(fleet, 3)
    assert (await fleet.sweep()).full
    assert not (await fleet.sweep()).full, "there is no room"
    await fleet.settle_down()
    assert (await fleet.sweep()).full
    await fleet.settle_down()
    assert not (await fleet.sweep()).full, "that was the last"


@pytest.mark.spec("S6")
async def test_a_worker_says_how_many_slots_it_has(
    fleet: Fleet, database_url: str, redis_url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Queues:
        consume_from = ("agent.scripted", "messages")

    class Instance:
        max_concurrency = None
        concurrency = 7

        class app:  # noqa: N801 - as Celery calls it
            class amqp:  # noqa: N801
                queues = Queues

    monkeypatch.setattr(app, "_node", None)
    app._name_node("w@here", Instance)
    assert app._node == Node("w@here", queues=("agent.scripted", "messages"), slots=7)
    runtime = Runtime(fleet_settings(database_url, redis_url, tmp_path), HeldBells(), None, app._node)
    try:
        await runtime._report(3)
        [process] = await fleet.rows(Process)
        assert process.slots == 7
    finally:
        await runtime.close()
