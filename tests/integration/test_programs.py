"""Turns whose agent is a program: it remembers on any machine, waits without running, goes on where it stopped, and
says nothing twice."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import select, update

from adapters.errors import ErrorClass, ProviderError
from adapters.model_port import AnyProvider
from adapters.providers import instrumentation
from adapters.registry import Drivers, Registry
from models import Approval, PendingQuestion, ProgramState, ProviderHealth, Session, Step, Turn, Usage
from models.base import now
from tests.support.directive_provider import Diarist, DiaristQuery
from tests.support.fleet import Fleet, MakeFleet
from workers import admission, breaker
from workers.breaker import FAILURES
from workers.consent.approvals import decide
from workers.consent.questions import give_answer
from workers.loop import Job, Stop, StoppedError
from workers.turn import wake

MakeDiarists = Callable[..., Awaitable[tuple[Fleet, Diarist]]]
pytestmark = pytest.mark.spec("F10")
sqlite_only = pytest.mark.parametrize("database_kind", ["sqlite"])


@pytest.fixture
def make_worker(make_fleet: MakeFleet) -> MakeDiarists:
    async def make(**changes: Any) -> tuple[Fleet, Diarist]:
        diarist = Diarist()
        drivers: dict[str, AnyProvider] = {"diarist": diarist}
        registry = Registry(providers=Drivers("provider", drivers))
        changes = {"sandbox": "none", "default_provider": "diarist"} | changes
        return await make_fleet(registry, **changes), diarist

    return make


@pytest.fixture
async def worker(make_worker: MakeDiarists) -> tuple[Fleet, Diarist]:
    fleet, diarist = await make_worker()
    await fleet.add_group(provider="diarist")
    return fleet, diarist


async def answers(fleet: Fleet) -> list[str]:
    return [row.content["text"] for row in await fleet.outbox() if row.kind == "chat" and "question" not in row.content]


async def test_what_it_remembers_is_there_on_another_machine(
    worker: tuple[Fleet, Diarist], make_worker: MakeDiarists, tmp_path: Any
) -> None:
    here, _ = worker
    await here.send("one")
    assert await here.answer_wakes() == ["completed"]
    elsewhere, _ = await make_worker(workspace_root=tmp_path / "elsewhere")
    await elsewhere.send("two")
    assert await elsewhere.answer_wakes() == ["completed"]
    assert await answers(here) == ["one", "one | two"]
    assert list((tmp_path / "workspaces" / ".homes").glob("*/*")) == []
    [turn, _] = await here.turns()
    assert turn.provider_version == "1.2.3"
    assert turn.capabilities["mcp"]


@pytest.mark.spec("M17", "P5")
async def test_a_question_puts_it_away_and_the_answer_is_what_it_goes_on_with(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    await fleet.send('use ask_user_question {"title": "Colour", "question": "Which?", "options": ["red", "blue"]}')
    assert await fleet.answer_wakes() == ["parked"]
    assert diarist.queries[0].status == "ended"
    assert await answers(fleet) == [], "what it says while it waits is no answer"
    [question] = await fleet.rows(PendingQuestion)
    answered = await give_answer(fleet.db, question.id, "blue", "me")
    assert answered is not None
    fleet.bells.wake(answered.session_id, "diarist")
    assert await fleet.answer_wakes() == ["completed"]
    [said] = await answers(fleet)
    assert said.startswith("use ask_user_question")
    assert "What you were waiting for has been decided" in said
    assert "- ask_user_question: blue" in said
    [turn] = await fleet.turns()
    assert turn.status == "completed"


async def approve(fleet: Fleet, *, yes: bool = True) -> Any:
    approval = (await fleet.rows(Approval, Approval.created_at))[-1]
    decided = await decide(fleet.db, approval.id, approve=yes)
    for session_id, provider in decided.wakes:
        fleet.bells.wake(session_id, provider or "diarist")
    return approval


@pytest.mark.spec("P14", "P5", "P6")
@sqlite_only
async def test_a_risky_command_waits_for_approval_of_exactly_that_once(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    await fleet.send("want ls\nwant git push origin main")
    assert await fleet.answer_wakes() == ["parked"]
    assert diarist.done == ["ls"]
    approval = await approve(fleet)
    assert approval.category == "merge"
    assert approval.payload["arguments"] == {"command": "git push origin main", "folder": "", "url": ""}
    assert approval.summary == "demo wants to run git push origin main"
    assert await fleet.answer_wakes() == ["completed"]
    [said] = await answers(fleet)
    assert "- Shell (git push origin main): cli approved it. Do it now" in said
    assert diarist.done == ["ls"], "the diarist only does what its prompt says"


@pytest.mark.spec("P14")
async def test_an_approval_lets_that_command_through_and_no_second_one(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    await fleet.send("want git push")
    assert await fleet.answer_wakes() == ["parked"]
    await approve(fleet)
    # As a program does that is told of the approval: it wants the same again, and then once more.
    await fleet.execute(update(ProgramState).values(reason="go on\nwant git push\nwant git push\n"))
    assert await fleet.answer_wakes() == ["parked"]
    assert diarist.done == ["git push"]
    assert [row.status for row in await fleet.rows(Approval, Approval.created_at)] == ["used", "pending"]


@pytest.mark.spec("P14")
@sqlite_only
async def test_what_was_denied_stays_denied(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    await fleet.send("want git push")
    assert await fleet.answer_wakes() == ["parked"]
    await approve(fleet, yes=False)
    assert await fleet.answer_wakes() == ["completed"]
    assert "cli said no. Do not get around it." in (await answers(fleet))[0]
    [step] = await fleet.rows(Step)
    assert step.status == "failed"
    assert diarist.done == []


@pytest.mark.spec("T1", "P14")
async def test_a_risky_tool_of_ours_runs_when_it_was_approved(
    make_worker: MakeDiarists, worker: tuple[Fleet, Diarist]
) -> None:
    fleet, _ = worker
    await fleet.add_group("risky", provider="diarist", config={"policy": {"approve": ["clock"]}})
    await fleet.send("use clock {}", agent_group="risky")
    assert await fleet.answer_wakes() == ["parked"]
    await approve(fleet)
    assert await fleet.answer_wakes() == ["completed"]
    assert "- clock: " in (await answers(fleet))[0]
    assert [step.status for step in await fleet.rows(Step)] == ["finished"]


@pytest.mark.spec("M7", "M10", "P12")
async def test_after_an_interruption_it_goes_on_and_says_nothing_twice(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    diarist.breaks = 1
    await fleet.send('use send_message {"text": "half way"}\nbreak')
    assert await fleet.answer_wakes() == ["waiting"]
    await fleet.execute(update(Session).values(resume_after=now()))
    await fleet.sweep()
    await fleet.settle_down()
    said = await answers(fleet)
    assert said[0] == "half way"
    assert len(said) == 2
    assert "You were interrupted in the middle of your work (slow down)" in said[1]


@pytest.mark.spec("M7", "M10", "P12")
@sqlite_only
async def test_what_had_done_nothing_begins_again(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    diarist.breaks = 1
    await fleet.send("break")
    assert await fleet.answer_wakes() == ["waiting"]
    await fleet.execute(update(Session).values(resume_after=now()))
    await fleet.sweep()
    await fleet.settle_down()
    assert await answers(fleet) == ["break | "]


@pytest.mark.spec("M7", "P12")
async def test_a_worker_that_dies_after_it_said_something_does_not_say_it_again(
    worker: tuple[Fleet, Diarist], make_worker: MakeDiarists
) -> None:
    fleet, diarist = worker
    accepted = await fleet.send('use send_message {"text": "half way"}\nstay')
    running = asyncio.create_task(fleet.wake(accepted.session_id, "diarist"))
    while not diarist.queries:
        await asyncio.sleep(0.01)
    await diarist.queries[0].listening.wait()
    await fleet.execute(update(Session).values(lease_expires_at=now(-60)))
    other, _ = await make_worker()
    assert await wake(other.runtime, accepted.session_id, "diarist") == "failed"
    [turn] = await fleet.turns()
    assert turn.error_class == "output_sent"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.spec("F4", "P12")
@sqlite_only
async def test_a_worker_that_is_told_to_leave_hands_over_where_it_is(
    worker: tuple[Fleet, Diarist], make_worker: MakeDiarists
) -> None:
    fleet, diarist = worker
    accepted = await fleet.send('use send_message {"text": "half way"}\nstay')
    job = Job()
    running = asyncio.create_task(job.run(fleet.wake(accepted.session_id, "diarist")))
    while not diarist.queries:
        await asyncio.sleep(0.01)
    await diarist.queries[0].listening.wait()
    job.stop(Stop.SHUTDOWN)
    with pytest.raises(StoppedError):
        await running
    other, _ = await make_worker()
    assert await wake(other.runtime, accepted.session_id, "diarist") == "completed"
    said = await answers(fleet)
    assert said[0] == "half way"
    assert "interrupted in the middle of your work (the worker it ran on was stopped)" in said[1]


@pytest.mark.spec("M10", "P5")
async def test_what_people_say_meanwhile_joins_the_turn(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    accepted = await fleet.send("listen")
    running = asyncio.create_task(fleet.wake(accepted.session_id, "diarist"))
    while not diarist.queries:
        await asyncio.sleep(0.01)
    await diarist.queries[0].listening.wait()
    await fleet.send("and a follow-up")
    fleet.runtime.leases.mail(accepted.session_id)
    assert await running == "completed"
    assert await answers(fleet) == ["listen | and a follow-up"]
    assert [row.status for row in await fleet.inbox()] == ["completed", "completed"]
    assert "messages_joined" in [row.type for row in await fleet.events()]
    fleet.bells.wakes.clear()
    assert (await fleet.sweep()).wakes == []


@pytest.mark.spec("M10")
@sqlite_only
async def test_a_follow_up_that_comes_too_late_gets_a_turn_of_its_own(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    accepted = await fleet.send("stay")
    running = asyncio.create_task(fleet.wake(accepted.session_id, "diarist"))
    while not diarist.queries:
        await asyncio.sleep(0.01)
    await diarist.queries[0].listening.wait()
    await fleet.send("nobody listens")
    fleet.runtime.leases.mail(accepted.session_id)
    late = await fleet.db.read(lambda conn: conn.execute(select(Turn.id)))
    assert len(late.all()) == 1
    await diarist.queries[0].abort()
    await running
    with contextlib.suppress(IndexError):
        await fleet.settle_down()
    assert [row.status for row in await fleet.inbox()] == ["completed", "completed"]
    assert len(await fleet.turns()) == 2


@pytest.mark.spec("F2")
@sqlite_only
async def test_without_memory_it_waits_its_turn_and_uses_up_no_try(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, diarist = worker
    monkeypatch.setattr(admission, "free_memory", lambda: 100 << 20)
    await fleet.send("hello")
    assert await fleet.answer_wakes() == ["waiting"]
    assert diarist.queries == []
    [message] = await fleet.inbox()
    assert message.tries == 0
    assert "no memory for diarist" in message.error
    monkeypatch.setattr(admission, "free_memory", lambda: 1 << 33)
    await fleet.execute(update(Session).values(resume_after=now()))
    await fleet.sweep()
    await fleet.settle_down()
    assert await answers(fleet) == ["hello"]


@pytest.mark.spec("P19", "P16")
async def test_a_vendor_that_is_down_is_left_alone_and_seen_to_be(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, diarist = worker
    went_well = DiaristQuery.converse

    async def down(self: DiaristQuery) -> None:
        raise ProviderError("no line to the model", ErrorClass.TRANSPORT)

    monkeypatch.setattr(DiaristQuery, "converse", down)
    for number in range(FAILURES):
        await fleet.send(f"message {number}", thread_id=str(number))
        assert await fleet.answer_wakes() == ["waiting"]
    [health] = await fleet.rows(ProviderHealth)
    assert (health.provider, health.state) == ("diarist", "down")
    await fleet.send("one more", thread_id="one more")
    assert await fleet.answer_wakes() == ["waiting"]
    assert len(diarist.queries) == FAILURES, "it was asked all the same"
    assert (await fleet.inbox())[-1].tries == 0
    monkeypatch.setattr(DiaristQuery, "converse", went_well)
    monkeypatch.setattr(breaker, "REMEMBER_SECONDS", 0.0)
    await fleet.execute(update(ProviderHealth).values(until=now(-1)))
    await fleet.execute(update(Session).values(resume_after=now()))
    await fleet.sweep()
    await fleet.settle_down()
    [health] = await fleet.rows(ProviderHealth)
    assert health.state == "ok"


@pytest.mark.spec("P21")
@sqlite_only
async def test_what_it_cost_is_on_record_also_when_it_was_put_away(worker: tuple[Fleet, Diarist]) -> None:
    fleet, _ = worker
    await fleet.send("hello")
    await fleet.settle_down()
    await fleet.send('use ask_user_question {"title": "Colour", "question": "Which?"}')
    assert await fleet.answer_wakes() == ["parked"]
    for usage in await fleet.rows(Usage):
        assert (usage.model, usage.input_tokens, float(usage.cost_usd)) == ("ink", 3, 0.25)
    assert len(await fleet.rows(Usage)) == 2


@pytest.mark.spec("P21")
@sqlite_only
async def test_when_the_budget_is_spent_no_program_is_started(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    await fleet.add_group("poor", provider="diarist", config={"budget": {"daily_usd": 0.2}})
    await fleet.send("one", agent_group="poor")
    await fleet.settle_down()
    await fleet.send("two", agent_group="poor")
    assert await fleet.answer_wakes() == ["parked"]
    assert len(diarist.queries) == 1
    [turn] = [turn for turn in await fleet.turns() if turn.status == "parked"]
    assert "the daily budget of poor ($0.20) is spent" in turn.error


@pytest.mark.spec("P13")
@sqlite_only
async def test_what_it_does_to_its_workspace_is_seen(worker: tuple[Fleet, Diarist]) -> None:
    fleet, _ = worker
    await fleet.send("write poem.txt")
    await fleet.settle_down()
    events = {row.type: row.payload for row in await fleet.events()}
    assert events["files_touched"]["paths"] == ["poem.txt"]


@pytest.mark.spec("P14")
@sqlite_only
async def test_a_change_that_grows_too_large_is_asked_about_once(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def huge(*_: Any) -> str:
        return "300 files changed, 20000 insertions(+)"

    monkeypatch.setattr(instrumentation, "diff_summary", huge)
    fleet, _ = worker
    await fleet.send("write poem.txt\nstay")
    assert await fleet.answer_wakes() == ["parked"]
    approval = await approve(fleet)
    assert approval.category == "large diff"
    await fleet.execute(update(ProgramState).values(reason="go on\nwrite other.txt\n"))
    assert await fleet.answer_wakes() == ["completed"]
    assert len(await fleet.rows(Approval)) == 1


@pytest.mark.spec("T6")
@sqlite_only
async def test_without_a_sandbox_it_is_refused_in_words(make_worker: MakeDiarists) -> None:
    fleet, diarist = await make_worker(sandbox="docker", sandbox_image="no-such-image")
    await fleet.add_group(provider="diarist")
    await fleet.send("hello")
    await fleet.settle_down()
    [turn] = await fleet.turns()
    assert turn.status == "failed"
    assert turn.error == "diarist runs in a sandbox, and this machine has none that holds: see `longshore doctor`"
    assert diarist.queries == []


@pytest.mark.spec("M10")
@sqlite_only
async def test_bells_that_ring_while_a_turn_ends_do_not_harm_it(worker: tuple[Fleet, Diarist]) -> None:
    """At every moment of its last phase, also between the end of one look for mail and its being seen."""
    fleet, _ = worker
    accepted = await fleet.send("short")
    running = asyncio.create_task(fleet.wake(accepted.session_id, "diarist"))
    while not running.done():
        fleet.runtime.leases.mail(accepted.session_id)
        await asyncio.sleep(0)
    assert await running == "completed"
    assert await answers(fleet) == ["short"]
