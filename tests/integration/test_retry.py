"""What fails is tried again, at the right time, so often, and then kept where people see it."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import update

from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool, ToolContext
from models import MessagingGroup, Session, Step, User, UserDm, UserRole
from models.base import new_id, now
from models.dead_letters import revive
from tests.support.fleet import Fleet, MakeFleet
from tests.support.forgetful_provider import ForgetfulProvider
from tests.support.turns import abandon_turn, retry_now

pytestmark = pytest.mark.both_databases


def failing(error_class: str, **fields: Any) -> str:
    extra = "".join(f", {key}: {value}" for key, value in fields.items())
    return f"- play:\n  - fail: {{class: {error_class}, message: no luck{extra}}}\n"


@pytest.mark.spec("M9")
async def test_a_poison_message_is_dead_after_five_tries(fleet: Fleet) -> None:
    await fleet.add_group(script=failing("transport"))
    await fleet.send()
    outcomes = await fleet.answer_wakes()
    for _ in range(4):
        outcomes += await retry_now(fleet)
    assert outcomes == ["waiting"] * 4 + ["failed"]
    [message] = await fleet.inbox()
    assert (message.status, message.tries, message.error_class, message.error) == ("failed", 5, "transport", "no luck")
    [turn] = await fleet.turns()
    assert (turn.status, turn.attempt) == ("failed", 5)
    assert await retry_now(fleet) == []


@pytest.mark.spec("M9")
@pytest.mark.parametrize("error_class", ["auth", "quota", "invalid_request", "context_too_long"])
async def test_what_cannot_pass_is_not_tried_again(fleet: Fleet, error_class: str) -> None:
    await fleet.add_group(script=failing(error_class))
    await fleet.send()
    assert await fleet.answer_wakes() == ["failed"]
    [message] = await fleet.inbox()
    assert (message.tries, message.error_class) == (1, error_class)


@pytest.mark.spec("M9")
async def test_retry_after_is_obeyed_without_holding_anything(fleet: Fleet) -> None:
    await fleet.add_group(script=failing("rate_limit", retry_after=1234))
    await fleet.send()
    assert await fleet.answer_wakes() == ["waiting"]
    [session] = await fleet.sessions()
    [message] = await fleet.inbox()
    assert session.lease_owner is None
    assert message.status == "pending"
    assert abs((session.resume_after - session.activity_since).total_seconds() - 1234) < 0.5
    await fleet.send("are you there?")
    assert fleet.bells.wakes == [], "nothing of a resting session runs, also not what comes later"
    assert (await fleet.sweep()).wakes == []


@pytest.mark.spec("M9")
async def test_a_later_attempt_may_succeed_and_answers_once(fleet: Fleet) -> None:
    await fleet.add_group(
        script="- play:\n  - tool: clock\n  - fail: {class: transport}\n    until_attempt: 3\n  - answer: made it"
    )
    await fleet.send()
    await fleet.answer_wakes()
    await retry_now(fleet)
    assert await retry_now(fleet) == ["completed"]
    assert [row.content["text"] for row in await fleet.outbox()] == ["made it"]
    assert len(await fleet.rows(Step)) == 1, "the finished tool was not run again"


@pytest.mark.spec("M9")
async def test_a_crash_inside_a_provider_is_an_internal_error(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n  - crash: true\n    until_attempt: 2\n  - answer: fine now")
    await fleet.send()
    assert await fleet.answer_wakes() == ["waiting"]
    [message] = await fleet.inbox()
    assert (message.error_class, message.error) == ("internal", "the provider crashed (RuntimeError)")
    assert await retry_now(fleet) == ["completed"]


@pytest.mark.spec("M9")
async def test_a_silent_provider_hangs(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(silent_seconds=0.2)
    await fleet.add_group(script="- play:\n  - hang: true")
    await fleet.send()
    assert await fleet.answer_wakes() == ["waiting"]
    [message] = await fleet.inbox()
    assert message.error_class == "provider_hang"


@pytest.mark.spec("M9")
async def test_owner_and_chat_are_told_of_a_dead_letter(fleet: Fleet) -> None:
    place = new_id()
    await fleet.insert(User, {"id": "fake:boss", "kind": "fake"})
    await fleet.insert(UserRole, {"user_id": "fake:boss", "role": "owner"})
    await fleet.insert(MessagingGroup, {"id": place, "channel_type": "fake", "platform_id": "boss-dm"})
    await fleet.insert(UserDm, {"user_id": "fake:boss", "channel_type": "fake", "messaging_group_id": place})
    await fleet.add_group(script=failing("auth"))
    await fleet.send(channel_type="fake", platform_id="chat")
    await fleet.settle_down()
    shown = fleet.runtime.registry.channels.get("fake").shown  # type: ignore[attr-defined]
    assert [message.destination.platform_id for message in shown] == ["chat", "boss-dm"]
    assert "was given up after 1 tries (auth: `no luck`)" in shown[1].content["text"]
    assert {row.kind for row in await fleet.outbox()} == {"notice"}


@pytest.mark.spec("M11")
async def test_a_dead_letter_can_be_tried_again(fleet: Fleet) -> None:
    await fleet.add_group(script=failing("auth"))
    accepted = await fleet.send()
    await fleet.answer_wakes()
    from models import AgentGroup

    await fleet.execute(update(AgentGroup).values(config={"provider_options": {"script": "now it works"}}))
    assert await fleet.db.transact(lambda conn: revive(conn, accepted.message_id))
    assert await fleet.wake(accepted.session_id) == "completed"
    [message] = await fleet.inbox()
    assert (message.status, message.tries) == ("completed", 1)
    assert [turn.status for turn in await fleet.turns()] == ["failed", "completed"]


@pytest.mark.spec("M9")
async def test_a_poisonous_neighbour_does_not_take_the_others_along(fleet: Fleet) -> None:
    script = "- when: poison\n  play:\n  - fail: {class: internal}\n- play:\n  - answer: 'heard: {texts}'"
    await fleet.add_group(script=script)
    for text in ("good one", "poison", "good two"):
        await fleet.send(text)
    await fleet.answer_wakes()
    for _ in range(12):
        await retry_now(fleet)
    statuses = {row.content["text"]: (row.status, row.tries) for row in await fleet.inbox()}
    assert statuses["poison"] == ("failed", 5)
    assert statuses["good one"][0] == statuses["good two"][0] == "completed"
    answers = [row.content["text"] for row in await fleet.outbox() if row.kind == "chat"]
    assert answers == ["heard: good one", "heard: good two"]


@pytest.mark.spec("M9")
async def test_a_message_that_kills_its_workers_is_given_up(fleet: Fleet) -> None:
    await fleet.add_group()
    accepted = await fleet.send()
    for _ in range(5):
        await abandon_turn(fleet, accepted.session_id)
    assert await fleet.wake(accepted.session_id) == "failed"
    [message] = await fleet.inbox()
    assert (message.status, message.tries, message.error_class) == ("failed", 5, "worker_lost")


# --- Output-sent protection --------------------------------------------------------------------------------------


SAYS_THEN_FAILS = """
- play:
    - tool: send_message
      with: {text: "working on it"}
    - fail: {class: transport}
      until_attempt: 2
    - answer: done
"""


@pytest.mark.spec("M10")
async def test_an_attempt_that_said_something_is_not_blindly_run_again(make_fleet: MakeFleet) -> None:
    registry = Registry(providers=Drivers("provider", made={"scripted": ForgetfulProvider()}))
    fleet = await make_fleet(registry)
    await fleet.add_group(script=SAYS_THEN_FAILS)
    await fleet.send()
    assert await fleet.answer_wakes() == ["failed"]
    [message] = await fleet.inbox()
    assert message.error_class == "output_sent"
    assert [row.content["text"] for row in await fleet.outbox() if row.kind == "chat"] == ["working on it"]


@pytest.mark.spec("M10")
async def test_nor_after_its_worker_died(make_fleet: MakeFleet) -> None:
    registry = Registry(providers=Drivers("provider", made={"scripted": ForgetfulProvider()}))
    fleet = await make_fleet(registry)
    await fleet.add_group(
        script="- play:\n  - tool: send_message\n    with: {text: working on it}\n  - wait: 30\n  - answer: done"
    )
    accepted = await fleet.send()
    running = asyncio.create_task(fleet.wake(accepted.session_id))
    async with asyncio.timeout(10):
        while not await fleet.outbox():
            await asyncio.sleep(0.01)
    await fleet.execute(update(Session).values(lease_token=Session.lease_token + 1, lease_expires_at=now(-1)))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await fleet.wake(accepted.session_id) == "failed"
    [message] = await fleet.inbox()
    assert message.error_class == "output_sent"


@pytest.mark.spec("M10", "M7")
async def test_a_provider_that_replays_its_steps_goes_on_and_says_it_once(fleet: Fleet) -> None:
    await fleet.add_group(script=SAYS_THEN_FAILS)
    await fleet.send()
    await fleet.answer_wakes()
    assert await retry_now(fleet) == ["completed"]
    assert [row.content["text"] for row in await fleet.outbox()] == ["working on it", "done"]


class LaunchArguments(BaseModel):
    pass


async def _launch(arguments: LaunchArguments, context: ToolContext) -> str:
    return "launched"


@pytest.mark.spec("M7")
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_call_that_never_ended_is_repeated_only_if_that_is_safe(
    make_fleet: MakeFleet, idempotent: bool
) -> None:
    tool = Tool("launch", "Launches.", LaunchArguments, _launch, idempotent=idempotent)
    fleet = await make_fleet(Registry(tools=Drivers("tool", made={"launch": tool})))
    await fleet.add_group(script="- play:\n  - tool: launch\n  - answer: 'tool said: {result}'")
    accepted = await fleet.send()
    opened = await abandon_turn(fleet, accepted.session_id)
    started = {"turn_id": opened.id, "number": 1, "key": "call-1:launch", "kind": "tool", "name": "launch", "input": {}}
    await fleet.insert(Step, started)
    assert await fleet.wake(accepted.session_id) == "completed"
    [reply] = await fleet.outbox()
    assert ("launched" if idempotent else "whether it took effect is unknown") in reply.content["text"]


@pytest.mark.spec("M7", "M10")
async def test_a_batch_with_effects_is_not_taken_apart(fleet: Fleet) -> None:
    await fleet.add_group(
        script="""
- play:
    - tool: send_message
      with: {text: "note: {texts}"}
    - fail: {message: "nope", class: internal}
      until_attempt: 4
    - answer: "answered: {texts}"
"""
    )
    await fleet.send("one")
    await fleet.send("two")
    await fleet.answer_wakes()
    for _ in range(3):
        await retry_now(fleet)
    assert [row.content["text"] for row in await fleet.outbox()] == ["note: one two", "answered: one two"]


@pytest.mark.spec("M9")
async def test_those_left_over_after_a_batch_was_taken_apart_go_on_at_once(fleet: Fleet) -> None:
    script = "- play:\n  - fail: {class: internal}\n    until_attempt: 3\n  - answer: 'heard: {texts}'"
    await fleet.add_group(script=script)
    await fleet.send("one")
    await fleet.send("two")
    await fleet.answer_wakes()
    await retry_now(fleet)
    await fleet.execute(update(Session).values(resume_after=now(-1)))
    from models import AgentGroup

    await fleet.execute(update(AgentGroup).values(config={"provider_options": {"script": "heard: {texts}"}}))
    await fleet.sweep()
    await fleet.settle_down()  # without another sweep
    assert [row.content["text"] for row in await fleet.outbox()] == ["heard: one", "heard: two"]
