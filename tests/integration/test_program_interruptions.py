"""Programs as agents that are stopped, cut off or talked to at the worst moments: what waits for a person goes on
waiting, what was done is not done again, what was said meanwhile is answered."""

import asyncio
import re
from typing import Any

import pytest
from sqlalchemy import update

from adapters.errors import ErrorClass, ProviderError
from adapters.events import SessionStarted
from adapters.providers import instrumentation
from models import Approval, PendingQuestion, ProgramState, Session, Step, Usage
from models.base import now
from models.errors import DatabaseDownError
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
from workers import admission, programs
from workers.consent.questions import give_answer
from workers.ending import Ending
from workers.loop import Job, Stop, StoppedError
from workers.mail import Mail
from workers.turn import wake

pytestmark = pytest.mark.spec("P12", "M7")

QUESTION = 'use ask_user_question {"title": "Colour", "question": "Which?", "options": ["red", "blue"]}'


async def answer(fleet: Fleet, text: str) -> None:
    [question] = await fleet.rows(PendingQuestion)
    answered = await give_answer(fleet.db, question.id, text, "me")
    assert answered is not None
    fleet.bells.wake(answered.session_id, "diarist")


async def time_passes(fleet: Fleet) -> None:
    """What rests is due now."""
    await fleet.execute(update(Session).values(resume_after=now()))
    await fleet.sweep()


# --- Stopped while a person is asked -----------------------------------------------------------------------------


@pytest.mark.spec("M17", "F4")
@pytest.mark.parametrize("reason", [Stop.SHUTDOWN, Stop.TIME_LIMIT])
async def test_what_waits_for_a_person_goes_on_waiting_when_its_worker_is_stopped(
    worker: tuple[Fleet, Diarist], reason: Stop
) -> None:
    fleet, diarist = worker
    _, job, running = await start_turn(fleet, diarist, f"{QUESTION}\nstay")
    fleet.bells.wakes.clear()
    job.stop(reason)
    with pytest.raises(StoppedError):
        await running
    [turn] = await fleet.turns()
    assert turn.status == "parked"
    await answer(fleet, "blue")
    assert await fleet.answer_wakes() == ["completed"]
    assert "- ask_user_question: blue" in (await fetch_answers(fleet))[0]


@pytest.mark.spec("M17")
@SQLITE_ONLY
async def test_a_question_whose_call_was_cut_off_is_waited_for(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on record, whoever had asked it has not heard that it waits."""
    fleet, _ = worker
    monkeypatch.setattr(programs.ProgramRun, "parked", None)
    await fleet.send(QUESTION)
    assert await fleet.answer_wakes() == ["parked"]


@SQLITE_ONLY
@pytest.mark.spec("M17")
async def test_without_a_memory_it_is_not_put_away_but_says_why(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pack(*_: Any) -> bytes:
        raise OSError("the disk is full")

    monkeypatch.setattr(programs, "pack", pack)
    fleet, _ = worker
    await fleet.send(QUESTION)
    assert await fleet.answer_wakes() == ["failed"]
    [turn] = await fleet.turns()
    assert turn.error == "it asked a person, but what it remembers could not be kept to go on with: OSError"
    [question] = await fleet.rows(PendingQuestion)
    assert question.status == "expired"


# --- The database is away ----------------------------------------------------------------------------------------


@pytest.mark.spec("M8")
@SQLITE_ONLY
async def test_a_database_that_is_away_at_the_end_costs_no_answer(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, diarist = worker

    async def charge(*_: Any) -> None:
        raise DatabaseDownError("the database does not answer")

    monkeypatch.setattr(Ending, "charge", charge)
    await fleet.send("use clock {}")
    assert await fleet.answer_wakes() == ["completed"]
    assert len(await fetch_answers(fleet)) == 1
    assert len(diarist.queries) == 1
    assert len(await fleet.rows(Usage)) == 1, "what it cost is on record all the same"


# --- What was done is not done again -----------------------------------------------------------------------------


@SQLITE_ONLY
async def test_what_a_lost_attempt_has_done_is_told_to_the_next(
    worker: tuple[Fleet, Diarist], make_worker: MakeDiarists
) -> None:
    fleet, diarist = worker
    task = '{"prompt": "water the plants", "processAfter": "2099-01-01T00:00:00Z"}'
    session_id, _, running = await start_turn(fleet, diarist, f"use schedule_task {task}\nstay")
    [turn] = await fleet.turns()
    # As if it had been killed in the middle of another call.
    begun = {"turn_id": turn.id, "number": 9, "key": "1:call-9:launch", "kind": "tool", "name": "launch"}
    await fleet.insert(Step, begun | {"input": {"rocket": "one"}})
    await fleet.execute(update(Session).values(lease_expires_at=now(-60)))
    other, there = await make_worker()
    again = asyncio.create_task(wake(other.runtime, session_id, "diarist"))
    await wait_for_condition(lambda: there.queries)
    prompt = str(there.queries[0].given.prompt)
    assert "An earlier attempt of yours was cut off, and you remember nothing of it." in prompt
    assert re.search(r"- schedule_task .*water the plants.*: scheduled", prompt)
    assert "- launch {'rocket': 'one'}: begun; whether it took effect is unknown" in prompt
    for attempt in (there.queries[0], diarist.queries[0]):
        await attempt.listening.wait()
        await attempt.abort()
    await asyncio.gather(running, again, return_exceptions=True)


@SQLITE_ONLY
@pytest.mark.spec("P14")
async def test_what_was_asked_by_a_lost_attempt_can_be_asked_again(
    worker: tuple[Fleet, Diarist], make_worker: MakeDiarists
) -> None:
    fleet, diarist = worker
    await fleet.send("want git push")
    assert await fleet.answer_wakes() == ["parked"]
    # As if the worker had been killed before it could put the turn away.
    await fleet.execute(update(ProgramState).values(turn_id=None))
    await time_passes(fleet)
    assert await fleet.answer_wakes() == ["parked"]
    assert [row.status for row in await fleet.rows(Approval, Approval.created_at)] == ["expired", "pending"]
    await answer_approval(fleet)
    await set_next_prompt(fleet, "want git push")
    assert await fleet.answer_wakes() == ["completed"]
    assert diarist.done == ["git push"]


@SQLITE_ONLY
@pytest.mark.spec("P14")
async def test_an_approval_used_by_an_attempt_that_died_is_not_taken_for_a_no(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    await fleet.send("want git push")
    assert await fleet.answer_wakes() == ["parked"]
    await answer_approval(fleet)
    await fleet.execute(update(Approval).values(status="used"))  # and its worker dies before it says so
    assert await fleet.answer_wakes() == ["completed"]
    assert "- Shell (git push): cli approved it. Do it now" in str(diarist.queries[1].given.prompt)
    [step] = await fleet.rows(Step)
    assert step.status == "started", "the same wish, asked again, must find its approval"


@pytest.mark.spec("M10")
@SQLITE_ONLY
async def test_an_approved_message_and_then_a_hiccup_is_no_dead_letter(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, _ = worker
    await fleet.add_group("careful", provider="diarist", config={"policy": {"approve": ["send_message"]}})
    await fleet.send('use send_message {"text": "half way"}', agent_group="careful")
    assert await fleet.answer_wakes() == ["parked"]
    await answer_approval(fleet)
    went_on = DiaristQuery.converse

    async def hiccup(self: DiaristQuery) -> None:
        raise ProviderError("overloaded", ErrorClass.RATE_LIMIT, 5)

    monkeypatch.setattr(DiaristQuery, "converse", hiccup)
    assert await fleet.answer_wakes() == ["waiting"]
    monkeypatch.setattr(DiaristQuery, "converse", went_on)
    monkeypatch.setattr(admission, "free_memory", lambda: 0)
    await time_passes(fleet)
    assert await fleet.answer_wakes() == ["waiting"]
    monkeypatch.setattr(admission, "free_memory", lambda: 1 << 33)
    await time_passes(fleet)
    assert await fleet.answer_wakes() == ["completed"]
    assert [text for text in await fetch_answers(fleet) if text == "half way"] == ["half way"]


# --- Talked to ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("M6")
async def test_a_message_that_cannot_wait_interrupts_it_and_it_goes_on_with_both(
    worker: tuple[Fleet, Diarist],
) -> None:
    fleet, diarist = worker
    session_id, _, running = await start_turn(fleet, diarist, "use clock {}\nstay")
    await fleet.send("stop that", follow_up="interrupt")
    fleet.bells.wakes.clear()
    fleet.runtime.leases.mail(session_id)
    assert await running == "handed_over"
    assert await fleet.answer_wakes() == ["completed"]
    prompt = str(diarist.queries[1].given.prompt)
    assert "You were interrupted in the middle of your work (somebody said something that cannot wait)" in prompt
    assert "stop that" in prompt
    [message, interruption] = await fleet.inbox()
    assert (message.status, interruption.status) == ("completed", "completed")
    assert message.tries == 1
    assert len(await fleet.turns()) == 1


@pytest.mark.spec("M6")
@SQLITE_ONLY
async def test_what_had_done_nothing_yet_begins_again_with_the_interruption(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    session_id, _, running = await start_turn(fleet, diarist, "stay")
    await fleet.send("never mind", follow_up="interrupt")
    fleet.runtime.leases.mail(session_id)
    assert await running == "handed_over"
    rerun = asyncio.create_task(fleet.answer_wakes())
    await wait_for_condition(lambda: len(diarist.queries) == 2)
    prompt = str(diarist.queries[1].given.prompt)
    assert "stay" in prompt
    assert "never mind" in prompt
    await diarist.queries[1].listening.wait()
    await diarist.queries[1].abort()
    await rerun


@pytest.mark.spec("M6", "M17")
@SQLITE_ONLY
async def test_nothing_is_passed_on_to_one_that_waits_for_a_person(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer would be taken for a remark of one that waits."""
    looked, look = asyncio.Event(), Mail._look

    async def watched_look(self: Mail) -> None:
        await look(self)
        looked.set()

    monkeypatch.setattr(Mail, "_look", watched_look)
    fleet, diarist = worker
    await fleet.add_group("careful", provider="diarist", config={"policy": {"approve": ["clock"]}})
    accepted = await fleet.send("use clock {}\nlisten", agent_group="careful")
    running = asyncio.create_task(fleet.wake(accepted.session_id, "diarist"))
    await wait_for_condition(lambda: diarist.queries)
    await diarist.queries[0].listening.wait()
    await looked.wait()  # for what came before it listened
    looked.clear()
    await fleet.send("and this", agent_group="careful")
    fleet.runtime.leases.mail(accepted.session_id)
    await looked.wait()
    assert diarist.queries[0]._listens, "it was told"
    await diarist.queries[0].abort()
    assert await running == "parked"


@pytest.mark.spec("M6")
@SQLITE_ONLY
async def test_what_comes_while_another_message_is_passed_on_is_passed_on_too(
    make_worker: MakeDiarists, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and not only when the lease is renewed."""
    fleet, diarist = await make_worker(lease_seconds=600)
    await fleet.add_group(provider="diarist")
    session_id, _, running = await start_turn(fleet, diarist, "listen\nlisten")
    pushed = DiaristQuery.push

    async def push(self: DiaristQuery, text: str) -> bool:
        if "the first" in text:  # meanwhile, and its bell rings while nobody listens for bells
            await fleet.send("the second")
            fleet.runtime.leases.mail(session_id)
        taken = await pushed(self, text)
        self._listens = True  # it goes on listening
        return taken

    monkeypatch.setattr(DiaristQuery, "push", push)
    await send_during_turn(fleet, session_id, "the first")
    assert await asyncio.wait_for(running, 20) == "completed"
    assert await fetch_answers(fleet) == ["listen\nlisten | the first | the second"]


@pytest.mark.spec("M6")
@SQLITE_ONLY
async def test_what_comes_while_another_message_is_passed_on_stays_rung_for(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the session next finds it by that, if its own bell was lost."""
    fleet, diarist = worker
    session_id, _, running = await start_turn(fleet, diarist, "listen\nstay")
    pushed = DiaristQuery.push

    async def push(self: DiaristQuery, text: str) -> bool:
        await fleet.send("the second")
        return await pushed(self, text)

    monkeypatch.setattr(DiaristQuery, "push", push)
    await send_during_turn(fleet, session_id, "the first")
    [session] = await fleet.rows(Session)
    assert session.woken_at is not None
    await diarist.queries[0].abort()
    await running


# --- What is kept of it ------------------------------------------------------------------------------------------


@pytest.mark.spec("P16")
@SQLITE_ONLY
@pytest.mark.parametrize(("text", "status"), [("break", "waiting"), ("want git push", "parked")])
async def test_the_programs_version_is_stored_however_the_attempt_ends(
    worker: tuple[Fleet, Diarist], text: str, status: str
) -> None:
    fleet, diarist = worker
    diarist.breaks = 1
    await fleet.send(text)
    assert await fleet.answer_wakes() == [status]
    [turn] = await fleet.turns()
    assert turn.provider_version == "1.2.3"


@pytest.mark.spec("P16")
@SQLITE_ONLY
async def test_a_program_without_a_version_leaves_its_drivers(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, _ = worker
    said = DiaristQuery.say

    async def say(self: DiaristQuery, event: Any) -> None:
        await said(self, event.model_copy(update={"version": ""}) if isinstance(event, SessionStarted) else event)

    monkeypatch.setattr(DiaristQuery, "say", say)
    await fleet.send("hello")
    assert await fleet.answer_wakes() == ["completed"]
    [turn] = await fleet.turns()
    assert turn.provider_version == "1"


@pytest.mark.spec("F9", "P14")
@SQLITE_ONLY
async def test_no_secret_of_a_command_is_kept(worker: tuple[Fleet, Diarist]) -> None:
    fleet, _ = worker
    token = "ghp_" + "a1B2" * 9
    await fleet.send(f"want git push https://x:{token}@github.com/a/b main")
    assert await fleet.answer_wakes() == ["parked"]
    [approval], [step] = await fleet.rows(Approval), await fleet.rows(Step)
    sent = [row.content for row in await fleet.outbox()]
    assert token not in f"{approval.payload} {approval.summary} {step.input} {sent}"
    assert "git push" in approval.summary


@pytest.mark.spec("P14")
@SQLITE_ONLY
async def test_what_is_too_long_to_be_shown_is_not_asked_about(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    await fleet.send(f"want git push {'x' * 210_000}")
    assert await fleet.answer_wakes() == ["completed"]
    assert diarist.done == []
    assert await fleet.rows(Approval) == []


@pytest.mark.spec("M15", "F10")
@SQLITE_ONLY
async def test_a_conversation_that_begins_anew_leaves_no_memory(worker: tuple[Fleet, Diarist]) -> None:
    fleet, _ = worker
    await fleet.send("one")
    assert await fleet.answer_wakes() == ["completed"]
    await fleet.send("use reset_session {}")
    assert await fleet.answer_wakes() == ["completed"]
    assert await fleet.rows(ProgramState) == []


# --- Large changes -----------------------------------------------------------------------------------------------


@pytest.fixture
def huge(monkeypatch: pytest.MonkeyPatch) -> None:
    async def summary(*_: Any) -> str:
        return "300 files changed, 20000 insertions(+)"

    monkeypatch.setattr(instrumentation, "diff_summary", summary)


@pytest.mark.spec("P14")
@SQLITE_ONLY
@pytest.mark.usefixtures("huge")
async def test_a_large_change_at_the_very_end_is_asked_about_and_once_for_the_turn(
    worker: tuple[Fleet, Diarist],
) -> None:
    fleet, diarist = worker
    await fleet.send("write poem.txt")
    assert await fleet.answer_wakes() == ["parked"]
    assert (await answer_approval(fleet)).category == "large diff"
    diarist.breaks = 1
    await set_next_prompt(fleet, "use clock {}\nwrite other.txt\nbreak")
    assert await fleet.answer_wakes() == ["waiting"]
    await set_next_prompt(fleet, "write a-third.txt")
    await time_passes(fleet)
    assert await fleet.answer_wakes() == ["completed"]
    assert len(await fleet.rows(Approval)) == 1


@pytest.mark.spec("F10")
@SQLITE_ONLY
async def test_another_providers_conversation_is_not_forgotten(make_worker: MakeDiarists) -> None:
    fleet, _ = await make_worker()
    await fleet.add_group(provider="diarist")
    accepted = await fleet.send("one")
    await fleet.execute(update(Session).values(continuation={"another": "its-own"}))
    assert await fleet.wake(accepted.session_id, "diarist") == "completed"
    [session] = await fleet.rows(Session)
    assert session.continuation == {"another": "its-own", "diarist": "dear-diary"}


async def test_its_environment_says_whose_it_is(worker: tuple[Fleet, Diarist]) -> None:
    fleet, diarist = worker
    accepted = await fleet.send("hello")
    assert await fleet.answer_wakes() == ["completed"]
    [turn] = await fleet.turns()
    assert diarist.queries[0].given.env == {
        "LONGSHORE_SESSION_ID": accepted.session_id,
        "LONGSHORE_TURN_ID": turn.id,
        "LONGSHORE_AGENT": "demo",
    }


@SQLITE_ONLY
async def test_a_stop_while_a_home_cannot_be_made_is_a_stop(
    worker: tuple[Fleet, Diarist], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, _ = worker
    accepted = await fleet.send("hello")
    job = Job()

    def make(state: bytes | None) -> Any:
        job.stop(Stop.SHUTDOWN)
        raise OSError("no space")

    monkeypatch.setattr(fleet.runtime.homes, "_make", make)
    with pytest.raises(StoppedError):
        await job.run(fleet.wake(accepted.session_id, "diarist"))
    [message] = await fleet.inbox()
    assert message.tries == 0
