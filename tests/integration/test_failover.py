"""A turn whose provider cannot goes on with the next of its agent's list: with its transcript, and one answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from models import Step, TranscriptItem, Usage
from models.fleet import providers_down
from tests.support.api_fleet import FleetTime, model_api, retry_now
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import Call, Conversation, Fault, ModelApi, drop, refuse, reply, rule, script, stall

pytestmark = [pytest.mark.spec("P20"), pytest.mark.both_databases]

TOOLS = script(
    rule("time", reply("Let me look.", Call("clock", {"timezone": "UTC"})), "It is noon."),
    rule("tell", reply(Call("send_message", {"text": "working on it"})), reply(Call("clock", {})), "Done."),
)
DIRECTIONS = pytest.mark.parametrize(("first", "second"), [("anthropic", "openai"), ("openai", "anthropic")])
MODELS = {"anthropic": "claude-haiku-5-5", "openai": "some-model"}
WIRES: dict[str, Any] = {"anthropic": "anthropic", "openai": "chat"}


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with model_api(monkeypatch, TOOLS) as server:
        yield server


async def _group(fleet: Fleet, first: str = "anthropic", second: str = "openai") -> None:
    config = {"fallbacks": [f"{second}:{MODELS[second]}"]}
    await fleet.add_group(provider=first, model=MODELS[first], config=config)


def _asked(api: ModelApi) -> list[str]:
    """Whom the requests went to, in order."""
    names = {wire: provider for provider, wire in WIRES.items()}
    return [names[one.wire] for one in api.requests]


async def _check_moved(fleet: Fleet, first: str, second: str) -> None:
    """The wake lies on the other's queue, the turn rests nowhere and has all its tries."""
    [turn], [message], [session] = await fleet.turns(), await fleet.inbox(), await fleet.sessions()
    assert (turn.status, turn.tried) == ("waiting", [first])
    assert turn.error.startswith(f"{first}: ")
    assert turn.error.endswith(f"going on with {second}")
    assert (message.status, message.tries, session.resume_after) == ("pending", 0, None)
    assert fleet.bells.wakes == [(session.id, second)]
    assert fleet.runtime.leases.running == 0


@DIRECTIONS
@pytest.mark.parametrize(
    "fault",
    [refuse("quota"), refuse("unauthenticated"), refuse("rate_limited", retry_after=31), refuse("billing")],
    ids=["quota", "auth", "long limit", "billing"],
)
@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_who_cannot_hands_over_at_once(
    fleet: Fleet, api: ModelApi, first: str, second: str, fault: Fault
) -> None:
    await _group(fleet, first, second)
    api.fail(fault)
    await fleet.send("what time is it?")
    assert await fleet.answer_wakes() == ["handed_over"]
    await _check_moved(fleet, first, second)
    assert await fleet.answer_wakes() == ["completed"]
    assert [row.content["text"] for row in await fleet.outbox()] == ["It is noon."]
    [turn] = await fleet.turns()
    assert (turn.provider, turn.model, turn.status, turn.error) == (second, MODELS[second], "completed", None)
    assert {(row.provider, row.model) for row in await fleet.rows(Usage)} == {(second, MODELS[second])}
    assert _asked(api) == [first, second, second]


@DIRECTIONS
async def test_in_the_middle_of_a_tool_turn_nothing_is_done_twice(
    fleet: Fleet, api: ModelApi, first: str, second: str
) -> None:
    """The first round is the one's, the rest the other's, who knows what was said and done."""
    await _group(fleet, first, second)
    api.fail(refuse("overloaded", times=None, wire=WIRES[first]), predicate=_after_tools)
    await fleet.send("what time is it?")
    assert await fleet.answer_wakes() == ["waiting"], "once may be chance"
    assert await retry_now(fleet) == ["handed_over"]
    await _check_moved(fleet, first, second)
    assert await fleet.answer_wakes() == ["completed"]
    assert [row.content["text"] for row in await fleet.outbox()] == ["It is noon."]
    assert len([step for step in await fleet.rows(Step) if step.kind == "tool"]) == 1
    usage = await fleet.rows(Usage, Usage.created_at)
    assert [(row.provider, row.model) for row in usage] == [(first, MODELS[first]), (second, MODELS[second])]
    assert _asked(api) == [first, first, first, second]
    told = json.dumps(api.bodies[-1])
    assert told.count("what time is it?") == 1
    assert "Let me look." in told
    items = await fleet.rows(TranscriptItem, TranscriptItem.position)
    assert [item.type for item in items] == ["text", "text", "tool_call", "tool_result", "text"]
    ended = [row.payload for row in await fleet.events() if row.type == "turn_ended"]
    assert [event["status"] for event in ended] == ["waiting", "handed_over", "completed"]


def _after_tools(asked: Conversation) -> bool:
    return asked.rounds > 0


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_a_short_limit_is_waited_for(fleet: Fleet, api: ModelApi) -> None:
    await _group(fleet)
    api.fail(refuse("rate_limited", retry_after=20))
    await fleet.send("what time is it?")
    assert await fleet.answer_wakes() == ["waiting"]
    [turn] = await fleet.turns()
    assert (turn.provider, turn.tried, turn.error_class) == ("anthropic", None, "rate_limit")


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_who_is_held_back_by_a_long_pause_does_not_ask_first(fleet: Fleet, api: ModelApi) -> None:
    await _group(fleet)
    api.fail(refuse("rate_limited", retry_after=300))
    for number in range(3):
        await fleet.send("what time is it?", platform_id=f"chat{number}")
    assert await fleet.answer_wakes() == ["handed_over"] * 3
    assert await fleet.answer_wakes() == ["completed"] * 3
    assert _asked(api) == ["anthropic"] + ["openai"] * 6


async def test_when_both_fail_the_last_error_is_told(fleet: Fleet, api: ModelApi) -> None:
    await _group(fleet)
    api.fail(refuse("quota", wire="anthropic"), refuse("unauthenticated", wire="chat"))
    await fleet.send("what time is it?")
    assert await fleet.answer_wakes() == ["handed_over"]
    assert await fleet.answer_wakes() == ["failed"]
    [message], [turn] = await fleet.inbox(), await fleet.turns()
    assert (message.status, message.error_class, message.tries) == ("failed", "auth", 1)
    assert "OPENAI_API_KEY" in message.error
    assert (turn.status, turn.provider, turn.tried) == ("failed", "openai", ["anthropic"])
    assert [row.kind for row in await fleet.outbox()] == ["notice"]
    assert fleet.bells.wakes == []


async def test_when_both_are_away_the_second_is_tried_as_often_as_any(fleet: Fleet, api: ModelApi) -> None:
    await _group(fleet)
    api.fail(refuse("overloaded", times=None))
    await fleet.send("what time is it?")
    outcomes = await fleet.answer_wakes()
    while outcomes[-1] == "waiting" and len(outcomes) < 20:
        outcomes += await retry_now(fleet)
        while fleet.bells.wakes:  # on another's queue
            outcomes += await fleet.answer_wakes()
    assert outcomes.count("failed") == 1
    assert outcomes.count("handed_over") == 1
    assert _asked(api) == ["anthropic"] * 2 + ["openai"] * 5
    [message] = await fleet.inbox()
    assert (message.status, message.error_class, message.tries) == ("failed", "transport", 5)
    assert "the server answered 503" in message.error


@DIRECTIONS
@pytest.mark.spec("M10")
async def test_what_was_said_is_not_said_again(fleet: Fleet, api: ModelApi, first: str, second: str) -> None:
    await _group(fleet, first, second)
    api.fail(refuse("quota", times=None, wire=WIRES[first]), predicate=_after_tools)
    await fleet.send("tell me")
    assert await fleet.answer_wakes() == ["handed_over"]
    assert await fleet.answer_wakes() == ["completed"]
    assert [row.content["text"] for row in await fleet.outbox()] == ["working on it", "Done."]
    tools = [step.name for step in await fleet.rows(Step, Step.number) if step.kind == "tool"]
    assert tools == ["send_message", "clock"]


@pytest.mark.spec("M10")
@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_nor_by_one_that_does_not_share_the_journal(fleet: Fleet, api: ModelApi) -> None:
    """It would begin anew."""
    await fleet.add_group(provider="anthropic", config={"fallbacks": ["scripted"]})
    api.fail(refuse("quota", times=None), predicate=_after_tools)
    await fleet.send("tell me")
    assert await fleet.answer_wakes() == ["failed"]
    [message] = await fleet.inbox()
    assert message.error_class == "quota"
    assert [row.content["text"] for row in await fleet.outbox() if row.kind == "chat"] == ["working on it"]


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_one_that_does_not_share_the_journal_begins_a_silent_turn_anew(fleet: Fleet, api: ModelApi) -> None:
    await fleet.add_group(provider="anthropic", config={"fallbacks": ["scripted"]})
    api.fail(refuse("quota", times=None), predicate=_after_tools)
    await fleet.send("what time is it?")
    assert await fleet.answer_wakes() == ["handed_over"]
    assert await fleet.answer_wakes() == ["completed"]
    assert len(await fleet.outbox()) == 1


async def test_a_wake_on_the_wrong_queue_goes_to_the_right_one_once(make_fleet: MakeFleet, api: ModelApi) -> None:
    fleet, other = await make_fleet(), await make_fleet()
    await _group(fleet)
    api.fail(refuse("quota"))
    accepted = await fleet.send("what time is it?")
    assert await fleet.answer_wakes() == ["handed_over"]
    fleet.bells.wakes.clear()  # lost
    assert await fleet.wake(accepted.session_id, "anthropic") == "elsewhere"
    assert fleet.bells.wakes == [(accepted.session_id, "openai")]
    assert await other.wake(accepted.session_id, "openai") == "completed"
    assert other.bells.wakes == []
    assert await fleet.answer_wakes() == ["nothing"], "it comes too late, and harms nobody"
    assert fleet.bells.wakes == []
    assert len(await fleet.outbox()) == 1


async def test_while_it_is_down_turns_begin_with_the_other_and_then_come_back(
    make_fleet: MakeFleet, api: ModelApi
) -> None:
    fleet = await make_fleet()
    time = FleetTime(fleet)
    await _group(fleet)
    api.fail(drop(times=None, wire="anthropic"))
    accepted = await fleet.send("hello 0")
    await fleet.answer_wakes()
    for number in range(1, 5):
        await fleet.send(f"hello {number}", platform_id=f"chat{number}")
        await fleet.answer_wakes()
    assert await fleet.db.read(providers_down) == {"anthropic"}
    assert await retry_now(fleet) == ["elsewhere"] * 5
    assert {provider for _, provider in fleet.bells.wakes} == {"openai"}
    assert await fleet.answer_wakes() == ["completed"] * 5
    assert _asked(api) == ["anthropic"] * 5 + ["openai"] * 5

    await fleet.send("and now?")
    assert await fleet.answer_wakes() == ["elsewhere"]
    assert fleet.bells.wakes == [(accepted.session_id, "openai")]
    assert await fleet.answer_wakes() == ["completed"]
    assert _asked(api)[-1] == "openai"

    api.heal()
    await time.go_by(15)
    await fleet.send("are you back?")
    assert await fleet.answer_wakes() == ["completed"]
    assert _asked(api)[-1] == "anthropic"
    assert json.dumps(api.bodies[-1]).count("and now?") == 2, "asked and answered elsewhere, known here"
    mine = [row.provider for row in await fleet.turns() if row.session_id == accepted.session_id]
    assert mine == ["openai", "openai", "anthropic"]


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_when_the_breaker_opens_in_the_middle_of_a_turn_it_moves_without_failing_itself(
    fleet: Fleet, api: ModelApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _group(fleet)
    api.fail(stall(200, when="time"), drop(times=5, when="hello"))
    first = await fleet.send("what time is it?", platform_id="first")
    fleet.bells.wakes.clear()
    running = asyncio.create_task(fleet.wake(first.session_id, "anthropic"))
    await api.arrived(1, "hanging")
    for number in range(5):
        await fleet.send(f"hello {number}", platform_id=f"chat{number}")
    assert await fleet.answer_wakes() == ["waiting"] * 5
    # Its first call is still to succeed, which ends an outage: this one goes on.
    monkeypatch.setattr(fleet.runtime.breaker, "succeeded", _ignored)
    api.release()
    assert await running == "handed_over"
    assert fleet.bells.wakes == [(first.session_id, "openai")]
    assert await fleet.answer_wakes() == ["completed"]
    assert _asked(api) == ["anthropic"] * 6 + ["openai"]
    assert len([step for step in await fleet.rows(Step) if step.kind == "tool"]) == 1


async def _ignored(_: object) -> None: ...
