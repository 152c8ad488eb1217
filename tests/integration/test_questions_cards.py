"""Questions on cards: a button answers, the first answer in time wins, and who may not or comes late is told so."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import update

from models import AgentGroupMember, MessageOut, MessagingGroup, PendingQuestion, Session
from models.base import now
from tests.support.cards import Launcher, Platform, appoint, cards_of, press, ring
from tests.support.fleet import Fleet, MakeFleet
from workers.consent.cards import answer_by_text
from workers.consent.questions import give_answer
from workers.house import Done

ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"])
ASKING = """
- play:
  - tool: ask_user_question
    with: {title: Colour, question: 'Which?', options: [{label: Red, value: '#f00'}, Blue], timeout: 600}
  - answer: 'so: {result}'
"""


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
async def fleet(make_fleet: MakeFleet, platform: Platform) -> Fleet:
    """Mia and Max are members."""
    registry = Launcher().registry(platform)
    registry.tools = (await make_fleet()).runtime.registry.tools
    fleet = await make_fleet(registry)
    group = await fleet.add_group(script=ASKING)
    for user in ("fake:mia", "fake:max"):
        await appoint(fleet, user, None)
        await fleet.insert(AgentGroupMember, {"user_id": user, "agent_group_id": group})
    return fleet


async def ask(fleet: Fleet) -> tuple[Any, Any]:
    """Sam, whom nobody knows, has said something; the question and its card."""
    await fleet.send("go", channel_type="fake", platform_id="room", thread_id="t1", sender_id="sam")
    assert await fleet.answer_wakes() == ["parked"]
    [question] = [row for row in await fleet.rows(PendingQuestion) if row.status == "pending"]
    [card] = await cards_of(fleet, question.id)
    return question, card


@pytest.mark.spec("C7")
async def test_a_button_answers_and_the_card_says_who_said_what(fleet: Fleet, platform: Platform) -> None:
    _, card = await ask(fleet)
    await fleet.settle_down()
    [asked] = await fleet.rows(MessageOut)
    assert asked.content["text"] == "**Colour**\nWhich?"
    assert asked.content["buttons"] == [
        {"label": "Red", "token": f"{card.id}:1"},
        {"label": "Blue", "token": f"{card.id}:2"},
    ]
    pressed = await press(fleet, card, "mia", sender_name="Mia")
    assert pressed.text == "Thank you: `Red`"
    ring(fleet, pressed)
    await fleet.settle_down()
    assert platform.text_in("room") == "**Colour**\nWhich?\n\nAnswered by Mia (fake): `#f00`\n\nso: #f00"
    assert (await press(fleet, card, "max", 2)).text == "too late: it was answered before"


@pytest.mark.spec("C7")
async def test_of_two_answers_at_once_the_first_counts(fleet: Fleet) -> None:
    _, card = await ask(fleet)
    outcomes = await asyncio.gather(press(fleet, card, "mia", 1), press(fleet, card, "max", 2))
    assert sorted(outcome.text.split(":")[0] for outcome in outcomes) == ["Thank you", "too late"]
    [question] = await fleet.rows(PendingQuestion)
    assert (question.status, question.answer) in (("answered", "#f00"), ("answered", "Blue"))
    assert len([row for row in await fleet.outbox() if "operation" in row.content]) == 1


@ONE_DATABASE
@pytest.mark.spec("C7", "C5")
async def test_who_may_answer(fleet: Fleet) -> None:
    _, card = await ask(fleet)
    stranger = await press(fleet, card, "eve")
    assert stranger == Done("you may not answer this: it is for the people this agent knows")
    [question] = await fleet.rows(PendingQuestion)
    assert question.status == "pending"
    assert (await press(fleet, card, "sam")).text.startswith("Thank you"), "the one who is being answered"


@ONE_DATABASE
@pytest.mark.spec("C7", "C4")
async def test_where_anybody_may_talk_anybody_may_answer(fleet: Fleet) -> None:
    _, card = await ask(fleet)
    await fleet.execute(update(MessagingGroup).values(unknown_sender_policy="public"))
    assert (await press(fleet, card, "eve")).text.startswith("Thank you")


@pytest.mark.spec("C7", "S6")
async def test_a_question_nobody_answers_is_closed_by_the_sweep(fleet: Fleet, platform: Platform) -> None:
    _, card = await ask(fleet)
    await fleet.settle_down()
    await fleet.execute(update(PendingQuestion).values(expires_at=now(-1)))
    assert [wake.session_id for wake in (await fleet.sweep()).wakes] == [card.session_id]
    await fleet.settle_down()
    assert "Nobody answered in time." in platform.text_in("room")
    assert "so: Nobody answered within 600 seconds." in platform.text_in("room")
    assert (await press(fleet, card, "mia")).text == "too late: the agent no longer waits for it"


@ONE_DATABASE
@pytest.mark.spec("C7")
async def test_a_turn_that_notices_first_that_nobody_answered_closes_the_card_itself(
    fleet: Fleet, platform: Platform
) -> None:
    _, card = await ask(fleet)
    await fleet.settle_down()
    await fleet.execute(update(PendingQuestion).values(expires_at=now(-1)))
    await fleet.execute(update(Session).values(resume_after=None))
    fleet.bells.wake(card.session_id, "scripted")
    await fleet.settle_down()
    assert "Nobody answered in time." in platform.text_in("room")


@ONE_DATABASE
@pytest.mark.spec("C7")
async def test_an_answer_in_words_closes_the_card_as_well(fleet: Fleet, platform: Platform) -> None:
    """Any words, in the conversation; and at the terminal."""
    await ask(fleet)
    await fleet.settle_down()
    place = {"channel_type": "fake", "platform_id": "room", "thread_id": "t1", "sender_id": "mia"}
    answer = await fleet.send("rather `green`", **place)
    assert answer.answered_turn is not None
    await fleet.settle_down()
    assert "Answered by Mia (fake): `` rather `green` ``" in platform.text_in("room")
    assert "so: rather `green`" in platform.text_in("room")
    question, _ = await ask(fleet)
    await fleet.settle_down()
    answered = await give_answer(fleet.db, question.id, "2", "cli")
    fleet.bells.deliveries += answered.deliveries
    await fleet.settle_down()
    assert "Answered by cli: `Blue`" in platform.text_in("room")
    assert [row.status for row in await cards_of(fleet, question.id)] == ["closed"]


@ONE_DATABASE
@pytest.mark.spec("C7", "C3")
async def test_numbers_and_labels_answer_in_the_thread_of_the_card(fleet: Fleet) -> None:
    question, _ = await ask(fleet)

    async def say(text: str, user: str = "fake:mia", thread: str | None = "t1") -> Done | None:
        place = {"channel_type": "fake", "platform_id": "room", "thread_id": thread}
        return await fleet.db.transact(lambda conn: answer_by_text(conn, **place, user_id=user, text=text))  # type: ignore[arg-type]

    assert await say("red", thread="t2") is None
    assert await say("red", thread=None) is None
    assert await say("red", user="fake:eve") is None, "for the agents: who may not answer is just talking"
    assert await say("reddish") is None
    assert (told := await say(f"red {question.id[-8:]}", user="fake:eve")) is not None
    assert told.text.startswith("you may not answer this")
    assert (told := await say("RED")) is not None
    assert told.wakes == [(question.session_id, "scripted")]
    assert (told := await say(f"2 {question.id[-8:]}")) is not None
    assert told.text == "too late: it was answered before"
    [question] = await fleet.rows(PendingQuestion)
    assert (question.answer, question.answered_by) == ("#f00", "fake:mia")
