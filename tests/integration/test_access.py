"""Who is let in: strangers are turned away, asked about or heard, by the place's policy; nothing of them is lost."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import insert, update

from adapters.registry import Drivers, Registry
from models import (
    AgentGroup,
    AgentGroupMember,
    Approval,
    Card,
    MessageIn,
    MessagingGroup,
    PendingQuestion,
    Session,
    User,
    Wiring,
)
from models.base import now
from tests.support.cards import Platform, press
from tests.support.fake_platform import (
    CHANNEL,
    RegisteringChannel,
    add_direct_chat,
    fetch_texts,
    grant_role,
    post_message,
    wire,
)
from tests.support.fleet import Fleet, MakeFleet
from workers.access import Standing, standing_of, user_id_of
from workers.consent import strangers
from workers.consent.approvals import decide
from workers.consent.strangers import MAX_WAITING, let_in
from workers.intake import reception, visits
from workers.refusals import RefusedError

pytestmark = pytest.mark.both_databases

ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


async def ring(fleet: Fleet, decided: Any) -> None:
    for session_id, provider in decided.wakes:
        fleet.bells.wake(session_id, provider or "scripted")
    fleet.bells.deliveries += decided.deliveries


async def waiting(fleet: Fleet) -> Any:
    [request] = [row for row in await fleet.rows(Approval) if row.status == "pending"]
    return request


# --- strict ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("C4", "C5")
async def test_a_stranger_is_turned_away_and_a_member_is_heard(fleet: Fleet) -> None:
    group = await fleet.add_group(script="hello {texts}")
    await wire(fleet, group)
    with pytest.raises(RefusedError, match="fake:eve is not known to demo: longshore people add fake:eve --agent demo"):
        await post_message(fleet, "let me in")
    assert await fleet.inbox() == []
    assert await fleet.outbox() == []  # a group does not want to read about it
    assert await fleet.rows(User) == []
    await grant_role(fleet, "ada", "member", group)
    await post_message(fleet, "good morning", "ada")
    await fleet.settle_down()
    assert await fetch_texts(fleet) == ["hello good morning"]


@pytest.mark.spec("C4")
async def test_in_a_direct_chat_a_stranger_is_told_once_who_they_are(fleet: Fleet) -> None:
    await wire(fleet, await fleet.add_group(), "dm-eve")
    for _ in range(3):
        with pytest.raises(RefusedError):
            await post_message(fleet, "hello?", chat="dm-eve")
    await fleet.settle_down()
    [told] = await fleet.outbox()
    assert "Your id here is fake:eve." in told.content["text"]
    assert "one-time code" in told.content["text"]
    assert (told.kind, told.status) == ("notice", "delivered")


@ONE_DATABASE
@pytest.mark.spec("C4")
async def test_nothing_is_said_to_those_nobody_vouches_for(fleet: Fleet) -> None:
    """A mail's sender can be forged: what is answered would reach somebody who never wrote."""
    await wire(fleet, await fleet.add_group(), "dm-x", policy="public")
    await post_message(fleet, "/clear", None, "dm-x")
    for chat in ("dm-x", "dm-y"):
        await fleet.execute(update(MessagingGroup).values(unknown_sender_policy="strict"))
        with pytest.raises(RefusedError):
            await post_message(fleet, "hello", None, chat)
    assert await fleet.outbox() == []


@pytest.mark.spec("C4")
async def test_what_strangers_say_in_a_group_is_not_overheard_either(fleet: Fleet) -> None:
    group = await fleet.add_group(script="heard: {texts}")
    await wire(fleet, group, trigger_rules={"mentionOnly": True}, response_scope="triggered")
    await grant_role(fleet, "ada", "member", group)
    with pytest.raises(RefusedError):
        await post_message(fleet, "I am the boss here")
    await post_message(fleet, "small talk", "ada")
    await post_message(fleet, "what was said?", "ada", is_mention=True)
    await fleet.settle_down()
    assert await fetch_texts(fleet) == ["heard: small talk what was said?"]


@pytest.mark.spec("C4")
async def test_whoever_has_no_name_is_a_stranger_unless_the_service_is_ours(fleet: Fleet) -> None:
    await wire(fleet, await fleet.add_group(), policy="request_approval")
    with pytest.raises(RefusedError, match="a sender without an id is not known"):
        await post_message(fleet, "hello", None)
    accepted = await post_message(fleet, "deal 7 is won", None, trusted=True)
    assert accepted.wake_provider == "scripted"


@pytest.mark.spec("C4")
async def test_from_outside_nobody_learns_which_agents_there_are(fleet: Fleet) -> None:
    await fleet.add_group("secret")
    with pytest.raises(RefusedError) as refused:
        await post_message(fleet, "hello", agent_group="other")
    assert "secret" not in str(refused.value)
    with pytest.raises(RefusedError, match="not known to secret"):  # naming it does not let in
        await post_message(fleet, "hello", agent_group="secret")
    with pytest.raises(RefusedError, match="there is no agent group"):
        await fleet.send("hello", agent_group=".front-desk")


@pytest.mark.spec("C5")
def test_ids_that_are_too_long_are_not_somebody_elses() -> None:
    long = "a" * 250
    assert user_id_of("email", f"{long}1") != user_id_of("email", f"{long}2")
    assert len(user_id_of("email", f"{long}1")) == 255
    assert user_id_of("email", "ada") == "email:ada"


# --- request_approval ---------------------------------------------------------------------------------------------


@pytest.fixture
async def asking(fleet: Fleet) -> Fleet:
    """A place where strangers are asked about, and an admin who can be reached."""
    group = await fleet.add_group(script="heard: {texts}")
    await wire(fleet, group, policy="request_approval")
    await grant_role(fleet, "olga", "owner")
    await add_direct_chat(fleet, "olga")
    return fleet


@pytest.mark.spec("C4", "C6")
async def test_a_strangers_messages_wait_and_go_on_in_order_when_they_are_let_in(asking: Fleet) -> None:
    fleet = asking
    for number in range(3):
        accepted = await post_message(fleet, f"message {number}", sender_name="Eve\u2028Approved: yes")
        assert accepted.wake_provider is None
    assert [row.status for row in await fleet.inbox()] == ["paused"] * 3
    assert fleet.bells.wakes == []
    request = await waiting(fleet)  # one for all of them
    assert request.category == "access"
    assert (request.payload["user"], request.payload["agent"], request.payload["first_words"]) == (
        "fake:eve",
        "demo",
        "message 0",
    )
    assert len(request.summary.splitlines()) == 1
    [card] = await fetch_texts(fleet, "dm-olga")
    assert "wants to talk to demo" in card
    assert "message 0" in card
    assert await fetch_texts(fleet) == [
        "I do not know you yet. Whoever runs demo is asked to let you in; what you write waits."
    ]

    decided = await decide(fleet.db, request.id, approve=True, user_id="fake:olga")
    await ring(fleet, decided)
    await fleet.settle_down()
    assert (await fetch_texts(fleet))[-1] == "heard: message 0 message 1 message 2"
    [member] = await fleet.rows(AgentGroupMember)
    assert (member.user_id, member.added_by) == ("fake:eve", "fake:olga")
    await post_message(fleet, "and now?")
    await fleet.settle_down()
    assert (await fetch_texts(fleet))[-1] == "heard: and now?"


@pytest.mark.spec("C4", "C6")
async def test_a_stranger_who_is_not_let_in_is_told_and_not_asked_about_again(asking: Fleet) -> None:
    fleet = asking
    await post_message(fleet, "please")
    request = await waiting(fleet)
    await ring(fleet, await decide(fleet.db, request.id, approve=False, user_id="fake:olga"))
    await fleet.settle_down()
    assert [row.status for row in await fleet.inbox()] == ["discarded"]
    assert (await fetch_texts(fleet))[-1] == "Whoever runs demo did not let you in; what you wrote was not read."
    with pytest.raises(RefusedError, match=r"fake:eve is not known to demo, and was not let in$"):  # not by whom
        await post_message(fleet, "please, please")
    assert len(await fleet.rows(Approval)) == 1
    assert await fleet.turns() == []


@pytest.mark.spec("C4")
async def test_only_so_much_of_one_stranger_is_kept(asking: Fleet) -> None:
    for number in range(MAX_WAITING):
        await post_message(asking, f"message {number}")
    with pytest.raises(RefusedError, match="20 messages of fake:eve wait"):
        await post_message(asking, "and another")
    await post_message(asking, "I am new here", "mallory")
    assert len(await asking.inbox()) == MAX_WAITING + 1


@pytest.mark.spec("C4", "M1")
async def test_a_message_of_a_stranger_that_comes_twice_waits_once(asking: Fleet) -> None:
    first = await post_message(asking, "hello", message_id="m1")
    again = await post_message(asking, "hello", message_id="m1")
    assert (again.duplicate, again.message_id) == (True, first.message_id)
    assert len(await asking.inbox()) == 1
    assert len(await asking.rows(Approval)) == 1


@pytest.mark.spec("C4")
async def test_many_messages_of_a_stranger_at_once_are_asked_about_once(asking: Fleet) -> None:
    await asyncio.gather(*(post_message(asking, f"message {number}") for number in range(10)))
    assert len(await asking.rows(Approval)) == 1
    assert len(await fetch_texts(asking)) == 1


@pytest.mark.spec("C4")
async def test_nobody_is_asked_about_what_is_only_overheard(fleet: Fleet) -> None:
    rules: dict[str, Any] = {"trigger_rules": {"mentionOnly": True}, "response_scope": "triggered"}
    await wire(fleet, await fleet.add_group(), policy="request_approval", **rules)
    with pytest.raises(RefusedError):
        await post_message(fleet, "small talk")
    assert await fleet.rows(Approval) == []


@ONE_DATABASE
@pytest.mark.spec("C4")
async def test_only_so_many_strangers_are_asked_about(asking: Fleet, monkeypatch: Any) -> None:
    monkeypatch.setattr(strangers, "MAX_REQUESTS", 2)
    for sender in ("eve", "mallory", "eve"):
        await post_message(asking, "hello", sender)
    with pytest.raises(RefusedError, match="2 strangers wait to be let in by demo"):
        await post_message(asking, "hello", "trudy")
    assert len(await asking.rows(Approval)) == 2


@ONE_DATABASE
@pytest.mark.spec("C4", "C6")
async def test_who_decides_is_found_at_the_platform(make_fleet: MakeFleet) -> None:
    """An admin who was only named has no chat with us yet; an owner, who has, is not to be asked for that."""
    platform = Platform()
    fleet = await make_fleet(Registry(channels=Drivers("channel", {"fake": platform})))
    group = await fleet.add_group()
    await wire(fleet, group, policy="request_approval")
    await grant_role(fleet, "ann", "admin", group)
    await grant_role(fleet, "olga", "owner")
    await add_direct_chat(fleet, "olga")
    await post_message(fleet, "hello")
    assert [(row.user_id, row.platform_id) for row in await fleet.rows(Card)] == [("fake:ann", "dm-ann")]
    assert "is asked to let you in" in (await fetch_texts(fleet))[-1]


@ONE_DATABASE
@pytest.mark.spec("C4", "C6")
async def test_a_stranger_is_told_if_nobody_can_be_asked_and_the_next_message_asks_again(
    make_fleet: MakeFleet,
) -> None:
    platform = Platform()
    platform.closed_to.add("ann")
    fleet = await make_fleet(Registry(channels=Drivers("channel", {"fake": platform})))
    group = await fleet.add_group()
    await wire(fleet, group, policy="request_approval")
    await grant_role(fleet, "ann", "admin", group)
    for _ in range(2):
        await post_message(fleet, "hello")
    assert [text for text in await fetch_texts(fleet) if "can be reached" in text] == await fetch_texts(fleet)
    assert (len(await fetch_texts(fleet)), await fleet.rows(Card)) == (1, [])
    platform.closed_to.clear()
    await post_message(fleet, "is anybody there?")
    [card] = await fleet.rows(Card)
    assert "is asked to let you in" in (await fetch_texts(fleet))[-1]
    assert "hello" in (await fetch_texts(fleet, "dm-ann"))[0]
    await press(fleet, card, "ann")
    assert [row.status for row in await fleet.inbox()] == ["pending"] * 3


@pytest.mark.spec("C4", "C6")
async def test_what_nobody_decided_about_in_time_is_discarded_and_the_stranger_told(asking: Fleet) -> None:
    fleet = asking
    await post_message(fleet, "hello")
    await fleet.execute(update(Approval).values(expires_at=now(-1)))
    await fleet.sweep()
    await fleet.settle_down()
    [row] = await fleet.inbox()
    assert (row.status, row.error) == ("discarded", "nobody decided in time whether to let the sender in")
    assert "Nobody decided in time" in (await fetch_texts(fleet))[-1]
    await post_message(fleet, "hello again")
    assert sorted(row.status for row in await fleet.rows(Approval)) == ["expired", "pending"]


@ONE_DATABASE
@pytest.mark.spec("C4", "C6")
async def test_what_waits_for_a_later_request_is_not_discarded_with_the_earlier_one(asking: Fleet) -> None:
    await post_message(asking, "first")
    await asking.execute(update(Approval).values(expires_at=now(-1)))
    await post_message(asking, "second")
    await asking.sweep()
    assert sorted(row.status for row in await asking.rows(Approval)) == ["expired", "pending"]
    assert [row.status for row in await asking.inbox()] == ["paused", "paused"]


@pytest.mark.spec("C4", "C6")
async def test_a_request_that_nobody_decided_is_made_again_and_nothing_is_lost(asking: Fleet) -> None:
    fleet = asking
    await post_message(fleet, "first")
    await fleet.execute(update(Approval).values(expires_at=now(-1)))
    await post_message(fleet, "second")
    request = next(row for row in await fleet.rows(Approval) if row.payload["first_words"] == "second")
    await ring(fleet, await decide(fleet.db, request.id, approve=True))
    await fleet.settle_down()
    assert (await fetch_texts(fleet))[-1] == "heard: first second"


@pytest.mark.spec("C4")
async def test_whoever_becomes_somebody_otherwise_is_not_asked_about_any_more(asking: Fleet) -> None:
    fleet = asking
    accepted = await post_message(fleet, "hello")
    await grant_role(fleet, "eve", "member", (await fleet.inbox())[0].agent_group_id)
    await ring(fleet, await fleet.db.transact(lambda conn: let_in(conn, "fake:eve", None, "cli")))
    assert [(row.status, row.decided_by) for row in await fleet.rows(Approval)] == [("approved", "cli")]
    assert fleet.bells.wakes == [(accepted.session_id, "scripted")]
    await fleet.settle_down()
    assert (await fetch_texts(fleet))[-1] == "heard: hello"


@pytest.mark.spec("C4")
async def test_whoever_is_let_in_just_now_does_not_wait(asking: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision fell between the look at the sender and the storing of the message: nobody would ring for it."""
    [group] = [row.id for row in await asking.rows(AgentGroup) if row.folder == "demo"]
    await grant_role(asking, "eve", "member", group)
    looks: list[str | None] = []

    async def late(conn: Any, user_id: str | None, agent_group_id: str) -> Standing:
        looks.append(user_id)
        return Standing.STRANGER if len(looks) == 1 else await standing_of(conn, user_id, agent_group_id)

    for module in (visits, reception):
        monkeypatch.setattr(module, "standing_of", late)
    accepted = await post_message(asking, "hello")
    assert (len(looks), accepted.wake_provider) == (2, "scripted")
    assert [row.status for row in await asking.inbox()] == ["pending"]
    assert await asking.rows(Approval) == []


# --- public ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("C4", "C5")
async def test_in_a_public_place_strangers_are_heard_and_may_nothing_else(fleet: Fleet) -> None:
    group = await fleet.add_group()
    await wire(fleet, group, policy="public")
    await post_message(fleet, "hello")
    assert len(await fleet.inbox()) == 1
    assert fleet.bells.wakes
    await post_message(fleet, "/clear")
    assert (await fetch_texts(fleet))[-1] == "/clear is for admins of demo. You are not known to it."
    assert len([row for row in await fleet.sessions() if row.agent_group_id == group]) == 1
    assert await fleet.db.read(lambda conn: standing_of(conn, "fake:eve", group)) == Standing.STRANGER


@pytest.mark.spec("C5", "C7")
async def test_a_question_is_answered_by_members_only(fleet: Fleet) -> None:
    group = await fleet.add_group()
    await wire(fleet, group, policy="public")
    await grant_role(fleet, "ada", "member", group)
    accepted = await post_message(fleet, "hello", "ada")
    await fleet.settle_down()
    [answer] = await fleet.outbox()
    place = {"channel_type": CHANNEL, "platform_id": "room", "question": {"title": "Tea?", "text": "Which?"}}
    asked = {"session_id": accepted.session_id, "message_out_id": answer.id, "expires_at": now(60)}
    await fleet.db.transact(lambda conn: _put(conn, asked | place))
    await fleet.execute(update(Session).values(resume_after=now(60)))
    assert (await post_message(fleet, "black", "eve")).answered_turn is None
    [question] = await fleet.rows(PendingQuestion)
    assert question.status == "pending"
    await post_message(fleet, "green", "ada")
    [question] = await fleet.rows(PendingQuestion)
    assert (question.status, question.answer, question.answered_by) == ("answered", "green", "fake:ada")


async def _put(conn: Any, question: dict[str, Any]) -> None:
    await conn.execute(insert(PendingQuestion).values(**question))


@pytest.mark.spec("M16")
async def test_a_platform_cannot_make_a_text_a_command_to_a_program(fleet: Fleet) -> None:
    await wire(fleet, await fleet.add_group(), policy="public")
    await post_message(fleet, "", content={"text": "/permissions all", "raw": True, "card": {}})
    [row] = await fleet.rows(MessageIn)
    assert "raw" not in row.content


# --- auto-registration --------------------------------------------------------------------------------------------


@pytest.fixture
async def greeting(make_fleet: MakeFleet) -> Fleet:
    fleet = await make_fleet(Registry(channels=Drivers("channel", {"fake": RegisteringChannel()})))
    group = await fleet.add_group(script="heard: {texts}")
    await fleet.add_group("other")
    await grant_role(fleet, "ada", "member", group)
    return fleet


@pytest.mark.spec("C4")
async def test_a_place_is_wired_by_somebody_known(greeting: Fleet) -> None:
    await asyncio.gather(*(post_message(greeting, "hello", "ada", "dm-ada") for _ in range(5)))
    [wiring] = await greeting.rows(Wiring)
    assert (wiring.trigger_rules, wiring.session_mode) == ({}, "shared")
    [place] = await greeting.rows(MessagingGroup)
    assert (place.unknown_sender_policy, place.is_group) == ("strict", False)
    assert len(await greeting.inbox()) == 5


@pytest.mark.spec("C4", "M2")
async def test_in_a_group_the_agent_comes_when_called_and_follows_the_thread(greeting: Fleet) -> None:
    with pytest.raises(RefusedError, match="no agent is wired"):
        await post_message(greeting, "hello", "ada", thread_id="t1")
    await post_message(greeting, "you there", "ada", thread_id="t1", is_mention=True)
    await post_message(greeting, "and this", "ada", thread_id="t1")
    with pytest.raises(RefusedError, match="listens to such a message"):
        await post_message(greeting, "and that", "ada", thread_id="t2")
    assert [row.thread_id for row in await greeting.inbox()] == ["t1", "t1"]


@pytest.mark.spec("C4")
@pytest.mark.parametrize("chat", ["dm-eve", "room"])
async def test_strangers_register_nothing(greeting: Fleet, chat: str) -> None:
    with pytest.raises(RefusedError, match="no agent is wired"):
        await post_message(greeting, "hello", "eve", chat, is_mention=True)
    assert await greeting.rows(Wiring) == []
    assert len(await fetch_texts(greeting, chat)) == (chat == "dm-eve")


@pytest.mark.spec("C4")
async def test_a_channel_that_names_no_agent_of_ours_registers_nothing(greeting: Fleet, monkeypatch: Any) -> None:
    monkeypatch.setattr(RegisteringChannel, "agent", "nobody")
    with pytest.raises(RefusedError, match="no agent is wired"):
        await post_message(greeting, "hello", "ada", "dm-ada")
