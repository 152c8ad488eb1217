"""A message's life, on both databases: answered once, in order, with everything written together."""

import asyncio

import pytest
from sqlalchemy import update

from models import MessageIn, Session, Step, TranscriptItem, Usage
from models.base import now
from tests.support.fleet import Fleet, MakeFleet

pytestmark = pytest.mark.both_databases

TOOL_SCRIPT = """
- play:
    - tool: clock
      with: {timezone: UTC}
    - answer: "time for {text}"
"""


@pytest.mark.spec("M8", "M1", "D5")
async def test_a_message_is_answered_and_everything_is_written_together(fleet: Fleet) -> None:
    await fleet.add_group(script=TOOL_SCRIPT)
    accepted = await fleet.send("tea")
    assert await fleet.answer_wakes() == ["completed"]

    [message] = await fleet.inbox()
    [turn] = await fleet.turns()
    [reply] = await fleet.outbox()
    assert (message.id, message.status, message.tries, message.seq) == (accepted.message_id, "completed", 1, 1)
    assert (turn.status, turn.attempt, turn.provider) == ("completed", 1, "scripted")
    assert (reply.content, reply.in_reply_to, reply.seq) == ({"text": "time for tea"}, message.id, 2)
    assert (reply.channel_type, reply.platform_id) == (message.channel_type, message.platform_id)
    [step] = await fleet.rows(Step)
    assert (step.name, step.status, step.key) == ("clock", "finished", "call-1:clock")
    [usage] = await fleet.rows(Usage)
    assert usage.output_tokens > 0
    assert [item.role for item in await fleet.rows(TranscriptItem, TranscriptItem.position)] == ["user", "assistant"]
    [session] = await fleet.sessions()
    assert session.lease_owner is None
    assert session.lease_expires_at is None


@pytest.mark.spec("M5")
async def test_all_due_messages_share_one_turn(fleet: Fleet) -> None:
    await fleet.add_group(script="heard: {texts}")
    for text in ("one", "two", "three"):
        await fleet.send(text)
    await fleet.settle_down()
    [reply] = await fleet.outbox()
    assert reply.content == {"text": "heard: one two three"}
    assert {m.status for m in await fleet.inbox()} == {"completed"}


@pytest.mark.spec("M3")
async def test_wakes_of_one_session_are_coalesced(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(repeat_seconds=60)
    await fleet.add_group()
    for number in range(5):
        await fleet.send(f"message {number}")
    assert len(fleet.bells.wakes) == 1


@pytest.mark.spec("M3")
async def test_doubled_and_late_wakes_do_nothing(fleet: Fleet) -> None:
    await fleet.add_group()
    accepted = await fleet.send()
    assert await fleet.answer_wakes() == ["completed"]
    assert await fleet.wake(accepted.session_id) == "nothing"
    assert len(await fleet.outbox()) == 1


@pytest.mark.spec("M3")
async def test_a_message_that_comes_during_a_turn_gets_the_next_one(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n  - wait: 0.3\n  - answer: 'heard: {texts}'")
    first = await fleet.send("one")
    running = asyncio.create_task(fleet.wake(first.session_id))
    await _until_leased(fleet)
    fleet.bells.wakes.clear()
    await fleet.send("two")
    assert fleet.bells.wakes == [], "a session that is being run needs no wake"
    assert await running == "completed"
    assert fleet.bells.wakes == [(first.session_id, "scripted")], "the worker rings for what came meanwhile"
    await fleet.settle_down()
    assert [row.content["text"] for row in await fleet.outbox()] == ["heard: one", "heard: two"]


@pytest.mark.spec("M4")
async def test_two_workers_cannot_run_one_session(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n  - wait: 0.2\n  - answer: done")
    accepted = await fleet.send()
    outcomes = await asyncio.gather(*(fleet.wake(accepted.session_id) for _ in range(5)))
    assert sorted(outcomes) == ["completed"] + ["nothing"] * 4
    assert len(await fleet.outbox()) == 1


@pytest.mark.spec("M4")
async def test_a_stale_token_commits_nothing(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n  - wait: 0.3\n  - answer: done")
    accepted = await fleet.send()
    running = asyncio.create_task(fleet.wake(accepted.session_id))
    await _until_leased(fleet)
    await fleet.execute(update(Session).values(lease_token=Session.lease_token + 1, lease_owner="somebody else"))
    assert await running == "lost"
    assert await fleet.outbox() == []
    [message] = await fleet.inbox()
    assert message.status == "processing"


@pytest.mark.spec("M4")
async def test_a_lease_is_renewed_while_its_turn_runs(fleet: Fleet) -> None:
    """After a third of its time, which is 1.7 seconds here."""
    await fleet.add_group(script="- play:\n  - wait: 2.5\n  - answer: done")
    accepted = await fleet.send()
    running = asyncio.create_task(fleet.wake(accepted.session_id))
    ends = set()
    while not running.done():
        ends |= {session.lease_expires_at for session in await fleet.sessions()} - {None}
        await asyncio.sleep(0.05)
    assert await running == "completed"
    assert len(ends) > 1


@pytest.mark.spec("M4")
async def test_what_a_worker_does_is_said_in_words(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n  - tool: clock\n  - wait: 0.4\n  - answer: done")
    accepted = await fleet.send()
    running = asyncio.create_task(fleet.wake(accepted.session_id))
    seen: set[str | None] = set()
    while not running.done():
        seen |= {session.activity for session in await fleet.sessions()}
        await asyncio.sleep(0.01)
    assert "calling model" in seen
    assert [session.activity for session in await fleet.sessions()] == [None]


@pytest.mark.spec("S6", "M4")
async def test_the_sweep_finds_a_session_whose_worker_died(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n  - answer: done")
    accepted = await fleet.send()
    fleet.bells.wakes.clear()
    await _die_while_running(fleet, accepted.session_id)
    await asyncio.sleep(0.1)
    found = await fleet.sweep()
    assert [wake.session_id for wake in found.wakes] == [accepted.session_id]
    await fleet.settle_down()
    [turn] = await fleet.turns()
    assert (turn.status, turn.attempt) == ("completed", 2)
    [message] = await fleet.inbox()
    assert (message.status, message.tries) == ("completed", 2)
    assert len(await fleet.outbox()) == 1


@pytest.mark.spec("S6", "M1")
async def test_the_sweep_finds_a_message_whose_wake_was_lost(fleet: Fleet) -> None:
    await fleet.add_group()
    await fleet.send()
    fleet.bells.wakes.clear()
    await asyncio.sleep(0.1)
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]


@pytest.mark.spec("S5")
async def test_several_sweeps_ring_once(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(repeat_seconds=30)
    await fleet.add_group()
    for chat in range(20):
        await fleet.send(platform_id=f"chat{chat}")
    fleet.bells.wakes.clear()
    await fleet.execute(update(Session).values(woken_at=now(-60)))
    await asyncio.gather(*(fleet.sweep() for _ in range(4)))
    assert len(fleet.bells.wakes) == 20


async def _until_leased(fleet: Fleet) -> None:
    async with asyncio.timeout(5):
        while not any(session.lease_owner for session in await fleet.sessions()):
            await asyncio.sleep(0.01)


async def _die_while_running(fleet: Fleet, session_id: str) -> None:
    """What a kill -9 leaves: the turn is open, its messages are processing, the lease runs out."""
    from workers.opening import open_next

    runtime = fleet.runtime
    await fleet.db.transact(
        lambda conn: open_next(conn, runtime.registry, runtime.settings, session_id, "a worker that dies", "scripted")
    )
    await fleet.execute(update(Session).values(lease_expires_at=now(-1)))
    assert [row.status for row in await fleet.rows(MessageIn)] == ["processing"]


@pytest.mark.spec("S6", "M3")
async def test_the_sweep_rings_on_the_queue_of_the_agents_own_provider(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(default_provider="another")
    await fleet.add_group(provider="scripted")
    accepted = await fleet.send()
    fleet.bells.wakes.clear()
    await asyncio.sleep(0.1)
    await fleet.sweep()
    assert fleet.bells.wakes == [(accepted.session_id, "scripted")]


@pytest.mark.spec("P13")
async def test_files_that_a_tool_changes_are_told(fleet: Fleet) -> None:
    await fleet.add_group(
        script="- play: [{tool: write_file, with: {path: poem.txt, content: roses}}, {answer: written}]"
    )
    await fleet.send()
    await fleet.settle_down()
    [touched] = [row.payload for row in await fleet.events() if row.type == "files_touched"]
    assert touched["paths"] == ["poem.txt"]
