"""Crashes, stops and lost answers at the moments nobody thinks of. Each of these once lost or stuck a message."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from sqlalchemy import update

from adapters.contracts import QueryInput
from adapters.events import UsageReport
from adapters.providers.scripted import ScriptedProvider, ScriptedQuery
from adapters.registry import Drivers, Registry
from models import AgentGroup, MessageIn, MessagingGroup, Session, Step, Wiring
from models.base import new_id, now
from models.database import Database
from tests.support.fleet import Fleet, MakeFleet
from tests.support.forgetful_provider import ForgetfulProvider
from tests.support.turns import abandon_turn, retry_now
from workers.loop import Job, Stop, StoppedError
from workers.turn import wake

pytestmark = pytest.mark.both_databases

T = TypeVar("T")


@pytest.mark.spec("M9")
async def test_a_batch_that_begins_with_context_is_not_stuck_after_two_failures(fleet: Fleet) -> None:
    group = await fleet.add_group(
        script="- play:\n  - fail: {class: internal}\n    until_attempt: 3\n  - answer: '{texts}'"
    )
    place = new_id()
    await fleet.insert(MessagingGroup, {"id": place, "channel_type": "fake", "platform_id": "chat"})
    rules = {"trigger_rules": {"mentionOnly": True}, "response_scope": "triggered"}
    await fleet.insert(Wiring, {"messaging_group_id": place, "agent_group_id": group} | rules)
    fields = {"agent_group": None, "channel_type": "fake", "platform_id": "chat"}
    await fleet.send("context", **fields)
    await fleet.send("question", is_mention=True, **fields)
    await fleet.answer_wakes()
    for _ in range(2):
        await retry_now(fleet)
    assert {row.status for row in await fleet.inbox()} == {"completed"}


@pytest.mark.spec("M4", "S1")
async def test_an_unfinished_turn_is_found_behind_any_number_of_older_due_rows(fleet: Fleet) -> None:
    await fleet.add_group()
    later = datetime.now(UTC) + timedelta(hours=1)
    for _ in range(101):
        await fleet.send(kind="task", process_after=later)
    accepted = await fleet.send("question")
    await abandon_turn(fleet, accepted.session_id)
    await fleet.execute(update(MessageIn).where(MessageIn.kind == "task").values(process_after=now(-1)))
    assert await fleet.wake(accepted.session_id) == "completed"
    assert fleet.bells.wakes[-1] == (accepted.session_id, "scripted"), "and the others are rung for"
    await fleet.settle_down()
    assert {row.status for row in await fleet.inbox()} == {"completed"}


class _Extravagant(ScriptedProvider):
    """Reports usage that no column can hold."""

    def query(self, given: QueryInput) -> ScriptedQuery:
        query = ScriptedQuery(given)
        plain = query.events

        async def events() -> Any:
            async for event in plain:
                if isinstance(event, UsageReport):
                    yield event.model_copy(update={"input_tokens": 2**70})
                else:
                    yield event

        query.events = events()
        return query


@pytest.mark.spec("M8", "M9")
async def test_what_cannot_be_written_ends_at_once_with_a_true_reason(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(Registry(providers=Drivers("provider", made={"scripted": _Extravagant()})))
    await fleet.add_group()
    await fleet.send()
    assert await fleet.answer_wakes() == ["failed"]
    [message] = await fleet.inbox()
    assert message.error.startswith("its answer could not be stored")


@pytest.mark.spec("F4", "M4")
@pytest.mark.parametrize("reason", [Stop.SHUTDOWN, Stop.REVOKED])
async def test_a_stop_at_any_moment_of_a_turn_leaves_it_handed_over_cancelled_or_done(
    fleet: Fleet, reason: Stop
) -> None:
    await fleet.add_group(script="- play:\n  - tool: clock\n  - say: x\n  - answer: done")
    for steps in range(0, 120, 7):
        accepted = await fleet.send(platform_id=f"chat{steps}")
        job = Job()
        running = asyncio.create_task(job.run(wake(fleet.runtime, accepted.session_id, "scripted")))
        for _ in range(steps):
            await asyncio.sleep(0)
        job.stop(reason)
        with contextlib.suppress(StoppedError):  # stopped before it had the session
            await running
        [message] = [row for row in await fleet.inbox() if row.id == accepted.message_id]
        allowed = {"pending", "completed"} if reason is Stop.SHUTDOWN else {"pending", "failed", "completed"}
        assert message.status in allowed, f"after {steps} steps"
    assert {session.lease_owner for session in await fleet.sessions()} == {None}


@pytest.mark.spec("M7")
async def test_a_call_id_that_is_used_again_for_another_call_gets_its_own_answer(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(Registry(providers=Drivers("provider", made={"scripted": _Counting()})))
    await fleet.add_group(script="- play:\n  - tool: clock\n  - fail: {class: transport}")
    await fleet.send()
    await fleet.answer_wakes()
    script = "- play:\n  - tool: send_message\n    with: {text: important}\n  - answer: done"
    await fleet.execute(update(AgentGroup).values(config={"provider_options": {"script": script}}))
    assert await retry_now(fleet) == ["completed"]
    assert [row.content["text"] for row in await fleet.outbox()] == ["important", "done"]
    assert len(await fleet.rows(Step)) == 2


class _Counting(ForgetfulProvider):
    """Its call ids begin at one again with every attempt."""

    def query(self, given: QueryInput) -> ScriptedQuery:
        return ScriptedQuery(given)


class TwiceDatabase(Database):
    """Loses the answer to every commit: each transaction is run again although it had taken effect."""

    async def transact(self, work: Callable[[Any], Awaitable[T]], *, patience: float = 15.0) -> T:
        await super().transact(work, patience=patience)
        return await super().transact(work, patience=patience)


@pytest.mark.spec("M7", "M8", "G2")
async def test_a_turn_survives_the_loss_of_the_answer_to_any_commit_of_its_journal(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet()
    script = """
- play:
    - tool: send_message
      with: {text: note}
    - say: on the way
    - tool: clock
    - answer: done
"""
    await fleet.add_group(script=script)
    accepted = await fleet.send()
    from workers import journal

    plain = journal.Journal.__init__

    doubtful = TwiceDatabase(fleet.runtime.settings.database_url)

    def with_doubt(self: journal.Journal, db: Database, *rest: Any) -> None:
        plain(self, doubtful, *rest)

    journal.Journal.__init__ = with_doubt  # type: ignore[method-assign, assignment]
    try:
        assert await fleet.wake(accepted.session_id) == "completed"
    finally:
        journal.Journal.__init__ = plain  # type: ignore[method-assign]
        await doubtful.close()
    assert [row.content["text"] for row in await fleet.outbox()] == ["note", "done"]
    kinds = [row.type for row in await fleet.events()]
    assert kinds == [
        "turn_started",
        "tool_call",
        "tool_result",
        "message",
        "tool_call",
        "tool_result",
        "usage",
        "result",
        "turn_ended",
    ]
    assert [row.seq for row in await fleet.events()] == list(range(1, len(kinds) + 1))


@pytest.mark.spec("M1", "G1")
async def test_the_same_key_for_another_agent_is_another_message(fleet: Fleet) -> None:
    await fleet.add_group("one")
    await fleet.add_group("two")
    first = await fleet.send(agent_group="one", message_id="42")
    second = await fleet.send(agent_group="two", message_id="42")
    assert not second.duplicate
    assert first.message_id != second.message_id
    assert (await fleet.send(agent_group="two", message_id="42")).message_id == second.message_id


@pytest.mark.spec("M3", "S1")
async def test_a_message_with_a_date_does_not_silence_the_next_one(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(repeat_seconds=60)
    await fleet.add_group()
    await fleet.send(kind="task", process_after=datetime.now(UTC) + timedelta(hours=1))
    await fleet.send("now")
    assert len(fleet.bells.wakes) == 1


@pytest.mark.spec("M12")
async def test_a_session_that_rests_and_is_rung_again_on_time(fleet: Fleet) -> None:
    await fleet.add_group(
        script="- play:\n  - fail: {class: rate_limit, retry_after: 0.3}\n    until_attempt: 2\n  - answer: x"
    )
    await fleet.send()
    assert await fleet.answer_wakes() == ["waiting"]
    assert [session.woken_at for session in await fleet.rows(Session)] == [None]
    async with asyncio.timeout(10):
        while not (await fleet.sweep()).wakes:
            await asyncio.sleep(0.02)
    assert await fleet.answer_wakes() == ["completed"]
