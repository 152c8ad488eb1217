"""What operators do to sessions: cancel what one is at, let it begin anew, close it, say something in it. Whoever runs
it meanwhile either was first or has no effect."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import update

from adapters.events import TurnEnded
from models import Approval, Audit, PendingQuestion, Reservation, Session
from models.inbox import complete_messages
from tests.support.fleet import Fleet, MakeFleet
from tests.support.programs import living
from tests.support.servers import private_folder, wait_until
from workers import ending
from workers.bells import CeleryBells
from workers.events import Follower
from workers.loop import Job, Stop, StoppedError
from workers.nudges import nudge_channel
from workers.operations import sessions
from workers.refusals import RefusedError

pytestmark = [pytest.mark.spec("M15"), pytest.mark.both_databases]

NAP = "599.25"  # seconds that nothing else sleeps
HANGS = "- when: hang\n  play:\n    - say: 'on it'\n    - hang: true\n- play:\n    - answer: 'You said: {texts}'\n"
ASKS = """
- when: ask
  play:
    - tool: ask_user_question
      with: {title: Tea, question: "Now or later?", options: [Now, Later], timeout: 900}
    - answer: "So: {result}"
- play:
    - answer: "You said: {texts}"
"""


@asynccontextmanager
async def _running(fleet: Fleet, text: str = "hang") -> AsyncIterator[tuple[str, asyncio.Task[str]]]:
    """A session in the middle of a turn, and who runs it."""
    accepted = await fleet.send(text)
    fleet.bells.wakes.clear()
    job = Job()
    running = asyncio.create_task(job.run(fleet.wake(accepted.session_id)))
    await _until(lambda: _has_begun(fleet))
    yield accepted.session_id, running
    job.stop(Stop.SHUTDOWN)
    await asyncio.gather(running, return_exceptions=True)


async def _check_stopped(running: asyncio.Task[str]) -> None:
    """Whoever ran it has noticed, and let go of everything."""
    async with asyncio.timeout(10):
        with pytest.raises(StoppedError) as stopped:
            await asyncio.shield(running)
    assert stopped.value.reason is Stop.LEASE_LOST


async def _has_begun(fleet: Fleet) -> bool:
    """It has said what it says first."""
    return any(event.type == "message" for event in await fleet.events())


async def _until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not await holds():
            await asyncio.sleep(0.01)


async def test_a_running_turn_is_cancelled_at_once_and_what_waits_goes_on(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(lease_seconds=600.0)  # nothing but the nudge tells the worker
    await fleet.add_group(script=HANGS)
    async with _running(fleet) as (session_id, running):
        behind = await fleet.send("hello", follow_up="separate")
        done = await sessions.cancel(fleet.runtime, "web:ann", session_id)
        assert done.text == "turn 1 of demo was cancelled"
        assert fleet.bells.nudges == [session_id]
        assert fleet.bells.wakes == [(session_id, "scripted")]
        await fleet.runtime._redis.publish(nudge_channel(session_id), "look")
        await _check_stopped(running)
    [cancelled] = await fleet.turns()
    assert (cancelled.status, cancelled.error) == ("cancelled", "cancelled by web:ann")
    first, second = await fleet.inbox()
    assert (first.status, first.error, first.error_class) == ("discarded", "cancelled by web:ann", None)
    assert (second.id, second.status) == (behind.message_id, "pending")
    last = (await fleet.events())[-1]
    assert (last.type, last.payload["status"], last.turn_id) == ("turn_ended", "cancelled", cancelled.id)
    [told] = fleet.bells.told
    assert (told.seq, told.session, told.event) == (
        last.seq,
        session_id,
        TurnEnded(status="cancelled", error="cancelled by web:ann", error_class=told.event.error_class),  # type: ignore[union-attr]
    )
    [line] = await fleet.rows(Audit)
    assert (line.who, line.act, line.target, line.detail) == ("web:ann", "turn.cancel", session_id, {"turn": 1})
    assert await fleet.answer_wakes() == ["completed"]
    assert [row.content["text"] for row in await fleet.outbox()] == ["You said: hello"]
    await _check_events(fleet)


async def _check_events(fleet: Fleet) -> None:
    """Their numbers have no gap and no double."""
    rows = await fleet.events()
    for session in {row.session_id for row in rows}:
        seqs = [row.seq for row in rows if row.session_id == session]
        assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_the_program_a_cancelled_turn_has_started_ends_with_it(make_fleet: MakeFleet) -> None:
    folder = private_folder()
    try:
        fleet = await make_fleet(lease_seconds=600.0, workspace_root=folder)
        call = f"{{tool: run_command, with: {{argv: [sleep, '{NAP}'], seconds: 600}}}}"
        sleeps = f"- play:\n    - say: 'on it'\n    - {call}\n"
        config = {"provider_options": {"script": sleeps}, "policy": {"commands": ["sleep"]}}
        await fleet.add_group(config=config)
        async with _running(fleet) as (session_id, running):
            await asyncio.to_thread(wait_until, lambda: living(NAP), 20, "the program")
            await sessions.cancel(fleet.runtime, "cli", session_id)
            fleet.runtime.leases.mail(session_id)  # what the nudge does
            await _check_stopped(running)
            await asyncio.to_thread(wait_until, lambda: not living(NAP), 10, "the end of the program")
    finally:
        shutil.rmtree(folder)


async def test_the_same_process_goes_on_with_the_session_and_the_old_turn_stops(make_fleet: MakeFleet) -> None:
    """Without any nudge: whoever holds the session anew has lost it before."""
    fleet = await make_fleet(lease_seconds=600.0)
    await fleet.add_group(script=HANGS)
    async with _running(fleet) as (session_id, running):
        await fleet.send("hello", follow_up="separate")
        await sessions.cancel(fleet.runtime, "cli", session_id)
        assert await fleet.answer_wakes() == ["completed"]
        await _check_stopped(running)


async def test_a_cancelled_turn_and_its_end_at_once_are_one_or_the_other(make_fleet: MakeFleet) -> None:
    fleet, other = await make_fleet(), await make_fleet()
    await fleet.add_group(script="You said: {texts}")
    for number in range(12):
        accepted = await fleet.send("hello", platform_id=f"p{number}")
        fleet.bells.wakes.clear()

        async def cancel(session_id: str = accepted.session_id, number: int = number) -> str:
            await asyncio.sleep(0.002 * number)
            try:
                return (await sessions.cancel(other.runtime, "cli", session_id)).text
            except RefusedError as error:
                return str(error)

        outcome, said = await asyncio.gather(fleet.wake(accepted.session_id), cancel())
        turns = [row for row in await fleet.turns() if row.session_id == accepted.session_id]
        answers = [row for row in await fleet.outbox() if row.session_id == accepted.session_id]
        [message] = [row for row in await fleet.inbox() if row.session_id == accepted.session_id]
        ends = [row.payload["status"] for row in await fleet.events() if row.type == "turn_ended"]
        assert len(ends) == number + 1, "each turn ends once"
        if "was cancelled" in said:
            assert (outcome, [turn.status for turn in turns], answers) == ("lost", ["cancelled"], [])
            assert message.status == "discarded"
        else:
            assert "it has just ended (turn 1: completed)" in said or "has not begun a turn yet" in said
            assert (outcome, [turn.status for turn in turns], len(answers)) == ("completed", ["completed"], 1)
            assert message.status == "completed"
    await _check_events(fleet)


async def test_a_cancel_that_comes_while_the_end_is_written_waits_for_it(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, other = await make_fleet(), await make_fleet()
    await fleet.add_group(script="Done.")
    accepted = await fleet.send()
    cancelling: list[asyncio.Task[Any]] = []

    async def meanwhile(conn: Any, turn_id: str) -> None:
        cancelling.append(asyncio.create_task(sessions.cancel(other.runtime, "cli", accepted.session_id)))
        await asyncio.wait(cancelling, timeout=0.2)  # it cannot be over: the session's row is held
        assert not cancelling[0].done()
        await complete_messages(conn, turn_id)

    monkeypatch.setattr(ending, "complete_messages", meanwhile)
    assert await fleet.answer_wakes() == ["completed"]
    with pytest.raises(RefusedError, match=r"it has just ended \(turn 1: completed\)"):
        await cancelling[0]
    assert ([row.status for row in await fleet.inbox()], len(await fleet.outbox())) == (["completed"], 1)


async def test_an_end_that_comes_after_the_cancel_writes_nothing(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    await fleet.add_group(script="Done.")
    accepted = await fleet.send()
    real = ending.Ending.complete

    async def too_late(self: ending.Ending, *given: Any, **named: Any) -> ending.Ended:
        await sessions.cancel(fleet.runtime, "cli", accepted.session_id)
        return await real(self, *given, **named)

    monkeypatch.setattr(ending.Ending, "complete", too_late)
    assert await fleet.answer_wakes() == ["lost"]
    assert ([row.status for row in await fleet.inbox()], await fleet.outbox()) == (["discarded"], [])
    assert [turn.status for turn in await fleet.turns()] == ["cancelled"]


async def test_the_end_that_came_first_stands(fleet: Fleet) -> None:
    await fleet.add_group(script="Done.")
    accepted = await fleet.send()
    with pytest.raises(RefusedError, match="it has not begun a turn yet"):
        await sessions.cancel(fleet.runtime, "cli", accepted.session_id)
    await fleet.answer_wakes()
    with pytest.raises(RefusedError, match=r"it has just ended \(turn 1: completed\)"):
        await sessions.cancel(fleet.runtime, "cli", accepted.session_id)
    with pytest.raises(RefusedError, match="there is no session 'x'"):
        await sessions.cancel(fleet.runtime, "cli", "x")
    assert await fleet.rows(Audit) == []
    assert (await fleet.sessions())[0].lease_token == 1, "nobody was driven away for nothing"


async def test_a_turn_whose_worker_died_is_cancelled_and_nobody_takes_it_up(make_fleet: MakeFleet) -> None:
    dead, fleet = await make_fleet(), await make_fleet()
    await fleet.add_group(script=HANGS)
    async with _running(dead) as (session_id, running):
        dead.runtime.leases._task.cancel()  # as after kill -9: nobody renews
        await fleet.execute(update(Session).values(lease_expires_at=Session.created_at))
        await sessions.cancel(fleet.runtime, "cli", session_id)
        await fleet.sweep()
        assert (await fleet.answer_wakes(), running.done()) == ([], False)
    assert [turn.status for turn in await fleet.turns()] == ["cancelled"]
    assert [row.status for row in await fleet.inbox()] == ["discarded"]


async def test_a_parked_turn_is_cancelled_with_its_question(fleet: Fleet) -> None:
    await fleet.add_group(script=ASKS)
    accepted = await fleet.send("ask me")
    assert await fleet.answer_wakes() == ["parked"]
    await sessions.cancel(fleet.runtime, "cli", accepted.session_id)
    [question], [session] = await fleet.rows(PendingQuestion), await fleet.sessions()
    assert (question.status, session.resume_after, session.activity) == ("expired", None, None)
    assert await fleet.rows(Reservation) == await fleet.rows(Approval) == []
    # What is said next is no answer to it.
    await fleet.send("hello")
    assert await fleet.answer_wakes() == ["completed"]


async def test_a_waiting_turn_is_cancelled_and_not_tried_again(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n    - fail: {class: transport}\n")
    accepted = await fleet.send()
    assert await fleet.answer_wakes() == ["waiting"]
    await sessions.cancel(fleet.runtime, "cli", accepted.session_id)
    await fleet.execute(update(Session).values(woken_at=None))
    await fleet.sweep()
    assert await fleet.answer_wakes() == []
    assert [turn.status for turn in await fleet.turns()] == ["cancelled"]


async def test_the_bells_of_a_process_tell_its_worker_and_those_who_watch(fleet: Fleet, redis_url: str) -> None:
    await fleet.add_group(script=HANGS)
    bells = CeleryBells(Celery(broker=redis_url), redis_url)
    try:
        async with _running(fleet) as (session_id, running):
            follower = Follower(fleet.db, fleet.runtime._redis, session_id, look_again=60.0)
            seen = asyncio.create_task(_first_end(follower))
            await _until(lambda: _reads(follower, session_id))
            house = SimpleNamespace(
                db=fleet.db, registry=fleet.runtime.registry, settings=fleet.runtime.settings, bells=bells
            )
            await sessions.cancel(house, "cli", session_id)
            await _check_stopped(running)
            async with asyncio.timeout(10):
                assert (await seen).status == "cancelled"
    finally:
        await asyncio.to_thread(bells.close)


async def _first_end(follower: Follower) -> TurnEnded:
    async for item in follower.events():
        if isinstance(item.event, TurnEnded):
            return item.event
    raise AssertionError


async def _reads(follower: Follower, session_id: str) -> bool:
    return follower.last[session_id] > 0


async def test_reset_begins_anew_with_what_waits_and_gives_up_what_runs(fleet: Fleet) -> None:
    await fleet.add_group(script=HANGS)
    async with _running(fleet) as (session_id, running):
        await fleet.send("hello", follow_up="separate")
        done = await sessions.reset(fleet.runtime, "cli", session_id)
        assert done.text.endswith("What it was at was given up.")
        fleet.runtime.leases.mail(session_id)
        await _check_stopped(running)
    [(new, _)] = fleet.bells.wakes
    states = {row.id: row.status for row in await fleet.sessions()}
    assert states == {session_id: "closed", new: "active"}
    assert await fleet.answer_wakes() == ["completed"]
    with pytest.raises(RefusedError, match="is closed already"):
        await sessions.reset(fleet.runtime, "cli", session_id)
    assert [line.act for line in await fleet.rows(Audit)] == ["session.reset"]
    await _check_events(fleet)


async def test_close_moves_what_waits_and_makes_no_session_for_nothing(fleet: Fleet) -> None:
    await fleet.add_group(script="You said: {texts}")
    session_id = (await fleet.send("hello")).session_id
    await fleet.answer_wakes()
    later = await fleet.send("later", kind="task", process_after="2100-01-01T00:00:00Z")
    done = await sessions.close(fleet.runtime, "cli", session_id)
    assert "what waits goes on in" in done.text
    [moved] = [row for row in await fleet.inbox() if row.id == later.message_id]
    assert (moved.status, moved.session_id != session_id) == ("pending", True)
    with pytest.raises(RefusedError, match="is closed already"):
        await sessions.close(fleet.runtime, "cli", session_id)
    other = (await fleet.send("hello", platform_id="other")).session_id
    await fleet.answer_wakes()
    assert (await sessions.close(fleet.runtime, "cli", other)).text.endswith("is closed")
    assert len(await fleet.sessions()) == 3
    again = await fleet.send("hello", platform_id="other")
    assert again.session_id not in (other, session_id)


async def test_close_does_not_tear_a_turn(fleet: Fleet) -> None:
    await fleet.add_group(script=HANGS)
    async with _running(fleet) as (session_id, _):
        with pytest.raises(RefusedError, match="in the middle of turn 1: wait for its end, or cancel it first"):
            await sessions.close(fleet.runtime, "cli", session_id)
        assert [turn.status for turn in await fleet.turns()] == ["running"]


async def test_an_operator_speaks_in_the_conversation_itself(fleet: Fleet) -> None:
    await fleet.add_group(script="You said: {texts}")
    session_id = (await fleet.send("hello", platform_id="room", thread_id="t1")).session_id
    await fleet.settle_down()
    said = await sessions.say(fleet.runtime, "web:ann", session_id, "and now?", message_id="1")
    assert (said.session_id, fleet.bells.wakes) == (session_id, [(session_id, "scripted")])
    again = await sessions.say(fleet.runtime, "web:ann", session_id, "and now?", message_id="1")
    assert (again.duplicate, again.message_id) == (True, said.message_id)
    row = (await fleet.inbox())[-1]
    assert (row.platform_id, row.thread_id, row.sender_id, row.content["sender"]) == ("room", "t1", None, "ann")
    await fleet.settle_down()
    assert (await fleet.outbox())[-1].content["text"] == "You said: and now?"
    assert [line.act for line in await fleet.rows(Audit)] == ["session.say"]
    with pytest.raises(RefusedError, match="text is empty"):
        await sessions.say(fleet.runtime, "cli", session_id, " ")


async def test_the_session_of_the_front_desk_is_nobodys_to_steer(fleet: Fleet) -> None:
    group = await fleet.add_group(".desk")
    await fleet.insert(Session, {"id": "s1", "agent_group_id": group})
    for act in (sessions.cancel, sessions.reset, sessions.close):
        with pytest.raises(RefusedError, match="there is no session 's1'"):
            await act(fleet.runtime, "cli", "s1")
