"""Turns on the API providers, over real HTTP with the real SDKs."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from celery import Celery
from pydantic import BaseModel
from sqlalchemy import insert, update

from adapters.contracts import ParkedError
from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool, ToolContext
from models import AgentGroup, PendingQuestion, Session, Step, TranscriptItem, Usage, Wiring
from models.base import now
from models.groups import ensure_messaging_group
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import Call, ModelApi, Think, refuse, reply, rule, script, stall
from workers.bells import CeleryBells
from workers.consent.questions import give_answer
from workers.ending import Ended, Ending
from workers.events import redis_client
from workers.nudges import Nudges
from workers.refusals import RefusedError

ONE_TOOL = script(rule("time", reply("Let me look.", Call("clock", {"timezone": "UTC"})), "It is {result}."))


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with ModelApi(ONE_TOOL, chunk=4) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "fake-key-anthropic")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "fake-key-openai")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        yield server
        assert server.problems == []


PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])


@PROVIDERS
@pytest.mark.spec("P3", "P4", "M7", "M8", "P21")
async def test_a_turn_with_a_tool(fleet: Fleet, api: ModelApi, provider: str) -> None:
    await fleet.add_group(provider=provider)
    await fleet.send("what time is it?")
    assert await fleet.answer_wakes() == ["completed"]
    [answer] = await fleet.outbox()
    assert answer.content["text"].startswith("It is ")
    steps = await fleet.rows(Step, Step.number)
    assert [(s.kind, s.status) for s in steps] == [("model", "finished"), ("tool", "finished"), ("model", "finished")]
    items = await fleet.rows(TranscriptItem, TranscriptItem.position)
    assert [item.type for item in items] == ["text", "text", "tool_call", "tool_result", "text"]
    usage = await fleet.rows(Usage)
    assert len(usage) == 2
    assert {row.provider for row in usage} == {provider}
    assert all(row.input_tokens + row.cache_read_tokens + row.cache_write_tokens > 0 for row in usage)
    [turn] = await fleet.turns()
    assert turn.model
    types = [row.type for row in await fleet.events()]
    assert types == [
        "turn_started", "message", "tool_call", "usage", "tool_result", "usage", "result", "turn_ended",
    ]  # fmt: skip


@PROVIDERS
@pytest.mark.spec("P17")
async def test_the_next_turn_knows_the_one_before(fleet: Fleet, api: ModelApi, provider: str) -> None:
    await fleet.add_group(provider=provider)
    await fleet.send("what time is it?")
    await fleet.settle_down()
    await fleet.send("thank you")
    await fleet.settle_down()
    assert [row.content["text"] for row in await fleet.outbox()][1] == "You said: thank you"
    assert json.dumps(api.bodies[-1]).count("what time is it?") == 1


@pytest.mark.parametrize(("first", "second"), [("anthropic", "openai"), ("openai", "anthropic")])
@pytest.mark.spec("P17", "P20")
async def test_either_provider_continues_the_others_conversation(
    fleet: Fleet, api: ModelApi, first: str, second: str
) -> None:
    """Tool calls in the history included."""
    api.script = script(
        rule("time", reply(Think("a clock"), "Looking.", Call("clock", {"timezone": "UTC"})), "It is {result}."),
        rule(
            "again",
            reply(Call("clock", {"timezone": "UTC"}), Call("clock", {"timezone": "Europe/Vienna"})),
            "Now {result}.",
        ),
    )
    await fleet.add_group(provider=first)
    for provider, text in ((first, "what time is it?"), (second, "again please"), (first, "what time is it?")):
        await fleet.execute(update(Session).values(provider=provider))
        await fleet.send(text)
        await fleet.settle_down()
    assert [turn.status for turn in await fleet.turns()] == ["completed"] * 3
    assert [turn.provider for turn in await fleet.turns()] == [first, second, first]
    assert len(await fleet.outbox()) == 3


@PROVIDERS
@pytest.mark.spec("P3", "P4")
async def test_the_prompt_grows_at_its_end_only(fleet: Fleet, api: ModelApi, provider: str) -> None:
    """What a vendor has cached of one request serves the next: in a turn, and from turn to turn."""
    await fleet.add_group(provider=provider)
    for text in ("what time is it?", "thank you", "what time is it now?"):
        await fleet.send(text)
        await fleet.settle_down()
    assert len(api.requests) == 5
    conversations = [_prefixes(request.raw) for request in api.requests]
    for earlier, later in itertools.pairwise(conversations):
        assert later["head"] == earlier["head"], "model, tools and system prompt are the same bytes"
        assert later["messages"].startswith(earlier["messages"])
        assert len(later["messages"]) > len(earlier["messages"])


def _prefixes(raw: bytes) -> dict[str, str]:
    """The request's text around its conversation, and the conversation without its closing bracket."""
    text = raw.decode()
    name = next(key for key in ('"messages":', '"input":') if key in text)
    start = text.index(name) + len(name)
    _, end = json.JSONDecoder().raw_decode(text, start)
    return {"head": text[:start] + text[end:], "messages": text[start : end - 1]}


@pytest.mark.spec("P3")
async def test_what_pays_is_marked_for_the_cache(fleet: Fleet, api: ModelApi) -> None:
    """The system prompt and tools, which all sessions of an agent share, and the end of the conversation; no message
    carries a mark, so that no old message ever changes."""
    await fleet.add_group(provider="anthropic")
    for text in ("what time is it?", "thank you"):
        await fleet.send(text)
        await fleet.settle_down()
    for body in api.bodies:
        assert body["cache_control"]["type"] == "ephemeral"
        assert body["system"][-1]["cache_control"]["type"] == "ephemeral"
        assert "cache_control" not in json.dumps(body["messages"])
    usage = await fleet.rows(Usage, Usage.created_at)
    assert usage[0].cache_read_tokens == 0
    assert all(row.cache_read_tokens > 0 for row in usage[1:]), "the stand-in found the prefix it knew"


@PROVIDERS
@pytest.mark.spec("M7")
async def test_parallel_calls_run_at_once_and_are_journaled_each(fleet: Fleet, api: ModelApi, provider: str) -> None:
    calls = [Call("clock", {"timezone": zone}) for zone in ("UTC", "Europe/Vienna", "Asia/Tokyo")]
    api.script = script(rule("times", reply(*calls), "There: {result}"))
    await fleet.add_group(provider=provider)
    await fleet.send("times please")
    await fleet.settle_down()
    steps = [step for step in await fleet.rows(Step, Step.number) if step.kind == "tool"]
    assert sorted(step.input["timezone"] for step in steps) == ["Asia/Tokyo", "Europe/Vienna", "UTC"]
    results = [item for item in await fleet.rows(TranscriptItem, TranscriptItem.position) if item.type == "tool_result"]
    assert ["JST" in item.content["text"] for item in results] == [False, False, True], "in the order of the calls"


@PROVIDERS
@pytest.mark.spec("T1", "M9")
async def test_bad_calls_are_answered_and_do_not_end_the_turn(fleet: Fleet, api: ModelApi, provider: str) -> None:
    api.script = script(
        rule(
            "go", reply(Call("clock", "{not json"), Call("no_such_tool", {}), Call("clock", {"timezone": 7})), "Sorry."
        )
    )
    await fleet.add_group(provider=provider)
    await fleet.send("go")
    assert await fleet.answer_wakes() == ["completed"]
    results = [i.content for i in await fleet.rows(TranscriptItem, TranscriptItem.position) if i.type == "tool_result"]
    assert [result["ok"] for result in results] == [False] * 3
    assert "not a JSON object" in results[0]["text"]
    assert "there is no tool 'no_such_tool'" in results[1]["text"]
    assert results[2]["text"].startswith("clock: timezone: ")


@pytest.mark.spec("P4")
async def test_an_agent_that_never_ends_is_stopped(fleet: Fleet, api: ModelApi) -> None:
    api.script = script(rule("loop", reply(Call("clock", {})), repeat=True))
    await fleet.add_group(provider="openai", config={"provider_options": {"iterations": 4}})
    await fleet.send("loop")
    assert await fleet.answer_wakes() == ["failed"]
    assert len(api.requests) == 4
    [message] = await fleet.inbox()
    assert message.error_class == "invalid_request"
    assert "within 4 model calls" in message.error


# --- Questions ---------------------------------------------------------------------------------------------------

ASKING = script(
    rule(
        "paint",
        reply(
            "One moment.",
            Call(
                "ask_user_question",
                {"title": "Colour", "question": "Which?", "options": ["red", "blue"], "timeout": 600},
            ),
            Call("clock", {"timezone": "UTC"}),
        ),
        "Painting.",
    )
)


@PROVIDERS
@pytest.mark.spec("M17", "C7", "T2")
async def test_a_question_parks_the_turn_and_the_answer_goes_on_with_it(
    make_fleet: MakeFleet, api: ModelApi, provider: str
) -> None:
    api.script = ASKING
    fleet, other = await make_fleet(), await make_fleet()
    await fleet.add_group(provider=provider)
    accepted = await fleet.send("paint it")
    assert await fleet.answer_wakes() == ["parked"]

    [turn], [session], [question] = await fleet.turns(), await fleet.sessions(), await fleet.rows(PendingQuestion)
    assert (turn.status, session.lease_owner, question.status) == ("parked", None, "pending")
    assert session.activity == "awaiting human"
    [card] = await fleet.outbox()
    assert card.content["text"] == "**Colour**\nWhich?"
    assert [button["label"] for button in card.content["buttons"]] == ["red", "blue"]
    assert card.content["question"]["id"] == question.id
    assert fleet.runtime.leases.running == 0, "nothing is kept for it in the process"
    await fleet.sweep()
    assert fleet.bells.wakes == [], "a parked turn rests until it is answered"

    answer = await other.send("2")
    assert answer.answered_turn == turn.id
    assert other.bells.wakes == [(accepted.session_id, provider)]
    assert await other.answer_wakes() == ["completed"]
    assert len(api.requests) == 2, "the first call was not made again"
    results = [i.content for i in await fleet.rows(TranscriptItem, TranscriptItem.position) if i.type == "tool_result"]
    assert results[0]["text"] == "blue"
    assert [m.status for m in await fleet.inbox()] == ["completed", "completed"]
    asked, closed, answered = [row.content["text"] for row in await fleet.outbox()]
    assert (asked, answered) == (card.content["text"], "Painting.")
    assert closed.endswith("Answered by somebody: `blue`")
    assert len([step for step in await fleet.rows(Step) if step.name == "clock"]) == 1


@pytest.mark.spec("M17", "C7")
async def test_a_question_nobody_answers_ends_by_itself(fleet: Fleet, api: ModelApi) -> None:
    api.script = ASKING
    await fleet.add_group(provider="anthropic")
    await fleet.send("paint it")
    await fleet.settle_down()
    await fleet.execute(update(PendingQuestion).values(expires_at=now(-1)))
    await fleet.execute(update(Session).values(resume_after=now(-1), woken_at=None))
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]
    results = [i.content for i in await fleet.rows(TranscriptItem, TranscriptItem.position) if i.type == "tool_result"]
    assert results[0] == {
        "id": results[0]["id"],
        "name": "ask_user_question",
        "ok": False,
        "text": "Nobody answered within 600 seconds.",
    }
    [question] = await fleet.rows(PendingQuestion)
    assert question.status == "expired"
    with pytest.raises(RefusedError, match="too late: the agent no longer waits for it"):
        await give_answer(fleet.db, question.id, "red", "me")


@pytest.mark.spec("M17")
async def test_an_answer_that_comes_while_the_turn_is_being_parked_is_not_missed(
    fleet: Fleet, api: ModelApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.script = ASKING
    await fleet.add_group(provider="anthropic")
    await fleet.send("paint it")
    real = Ending.park

    async def answered_meanwhile(self: Ending, parked: ParkedError, *rest: Any) -> Ended:
        [question] = await fleet.rows(PendingQuestion)
        await give_answer(fleet.db, question.id, "red", "me")
        return await real(self, parked, *rest)

    monkeypatch.setattr(Ending, "park", answered_meanwhile)
    assert await fleet.answer_wakes() == ["parked"]
    assert await fleet.answer_wakes() == ["completed"]


@pytest.mark.spec("M17", "P11")
async def test_a_script_can_ask_as_well(fleet: Fleet) -> None:
    ask = "ask_user_question\n    with: {title: Tea, question: 'Tea?', options: ['yes', 'no']}"
    play = f"- play:\n  - tool: {ask}\n  - answer: 'so: {{result}}'"
    await fleet.add_group(script=play)
    await fleet.send("hello")
    assert await fleet.answer_wakes() == ["parked"]
    await fleet.send("No")
    assert await fleet.answer_wakes() == ["completed"]
    assert (await fleet.outbox())[-1].content == {"text": "so: no"}


# --- Follow-ups --------------------------------------------------------------------------------------------------


@PROVIDERS
@pytest.mark.spec("M6")
async def test_a_follow_up_joins_before_the_next_model_call(fleet: Fleet, api: ModelApi, provider: str) -> None:
    await fleet.add_group(provider=provider)
    api.fail(stall(200, when="time"))
    first = await fleet.send("what time is it?")
    fleet.bells.wakes.clear()
    running = asyncio.create_task(fleet.wake(first.session_id, provider))
    await api.arrived(1, "hanging")
    second = await fleet.send("in Vienna, please")
    api.release()
    assert await running == "completed"
    assert "in Vienna, please" in json.dumps(api.bodies[1])
    assert [m.status for m in await fleet.inbox()] == ["completed", "completed"]
    [turn] = await fleet.turns()
    assert {m.turn_id for m in await fleet.inbox()} == {turn.id}
    [answer] = await fleet.outbox()
    assert answer.in_reply_to == second.message_id
    assert fleet.bells.wakes == [], "nothing is left to do"
    [joined] = [row.payload for row in await fleet.events() if row.type == "messages_joined"]
    assert joined["messages"] == [2]


@PROVIDERS
@pytest.mark.spec("M6")
async def test_an_interruption_cuts_the_stream_and_keeps_what_was_said(
    fleet: Fleet, api: ModelApi, provider: str
) -> None:
    api.script = script(rule("story", "Once upon a time there was a ship."), rule("stop", "Stopped."))
    await fleet.add_group(provider=provider)
    api.fail(stall(900, when="story"))
    first = await fleet.send("tell a story")
    fleet.bells.wakes.clear()
    running = asyncio.create_task(fleet.wake(first.session_id, provider))
    await api.arrived(1, "hanging")
    await fleet.send("stop", follow_up="interrupt")
    assert fleet.bells.nudges == [first.session_id]
    fleet.runtime.leases.mail(first.session_id)  # what the nudge does
    assert await running == "completed"
    await api.arrived(1, "left")
    assert [row.content["text"] for row in await fleet.outbox()] == ["Stopped."]
    items = await fleet.rows(TranscriptItem, TranscriptItem.position)
    kept, after = [item.content["text"] for item in items if item.role == "assistant"]
    assert "Once upon a time there was a ship.".startswith(kept)
    assert (len(kept) > 4, after) == (True, "Stopped.")
    assert kept in json.dumps(api.bodies[-1]), "the agent knows what it had said"
    assert [row.output_tokens > 0 for row in await fleet.rows(Usage)] == [True, True], (
        "the call that was cut is paid too"
    )


@pytest.mark.spec("M6")
async def test_a_nudge_reaches_whoever_runs_the_session(fleet: Fleet, redis_url: str) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    listening, client = redis_client(redis_url), redis_client(redis_url)
    nudges = Nudges(listening, heard.put_nowait, lambda *_: None)
    bells = CeleryBells(Celery(broker=redis_url), redis_url)
    try:
        async with asyncio.timeout(10):
            while not await client.pubsub_numpat():
                await asyncio.sleep(0.01)
            bells.nudge("session-1")
            assert await heard.get() == "session-1"
    finally:
        await asyncio.to_thread(bells.close)
        await nudges.close()
        await listening.aclose()
        await client.aclose()


@pytest.mark.spec("M6")
async def test_separate_waits_and_reject_is_refused(fleet: Fleet, api: ModelApi) -> None:
    await fleet.add_group(provider="anthropic")
    api.fail(stall(200, when="time"))
    first = await fleet.send("what time is it?")
    running = asyncio.create_task(fleet.wake(first.session_id, "anthropic"))
    await api.arrived(1, "hanging")
    await fleet.send("and a second thing", follow_up="separate")
    with pytest.raises(RefusedError, match="the agent is at work"):
        await fleet.send("and a third", follow_up="reject")
    api.release()
    assert await running == "completed"
    await fleet.settle_down()
    assert [turn.status for turn in await fleet.turns()] == ["completed", "completed"]
    assert len(await fleet.inbox()) == 2


# --- Odd moments -------------------------------------------------------------------------------------------------


@pytest.mark.spec("M17", "C7")
async def test_an_answer_given_before_the_turn_is_parked_is_the_answer(
    fleet: Fleet, api: ModelApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is out, and another tool of the same message still runs."""
    api.script = ASKING
    await fleet.add_group(provider="anthropic")
    accepted = await fleet.send("paint it")
    fleet.bells.wakes.clear()
    real = Ending.park

    async def spoken_meanwhile(self: Ending, parked: ParkedError, *rest: Any) -> Ended:
        assert (await fleet.send("blue")).answered_turn == self._turn.id
        return await real(self, parked, *rest)

    monkeypatch.setattr(Ending, "park", spoken_meanwhile)
    assert await fleet.wake(accepted.session_id, "anthropic") == "parked"
    assert (await fleet.answer_wakes())[0] == "completed"
    results = [i.content for i in await fleet.rows(TranscriptItem, TranscriptItem.position) if i.type == "tool_result"]
    assert results[0]["text"] == "blue"


@pytest.mark.spec("C7")
async def test_nobody_waits_for_the_answer_of_a_turn_that_was_given_up(fleet: Fleet, api: ModelApi) -> None:
    api.script = ASKING
    await fleet.add_group(provider="anthropic", config={"fallbacks": []})
    accepted = await fleet.send("paint it")
    await fleet.settle_down()
    await fleet.execute(update(AgentGroup).values(provider="nobody"))
    await fleet.execute(update(Session).values(resume_after=None))
    assert await fleet.wake(accepted.session_id, "anthropic") == "failed"
    [question] = await fleet.rows(PendingQuestion)
    assert question.status == "expired"


@pytest.mark.spec("M6")
async def test_what_only_rides_along_interrupts_nobody(fleet: Fleet, api: ModelApi) -> None:
    api.script = script(rule("story", "Once upon a time there was a ship."))
    group = await fleet.add_group(provider="anthropic")
    await _wire(fleet, group, response_scope="triggered", trigger_rules={"pattern": "story"}, follow_up="interrupt")
    api.fail(stall(900, when="story"))
    first = await fleet.send("tell a story", agent_group=None, platform_id="harbour", sender_id="ann")
    fleet.bells.wakes.clear()
    running = asyncio.create_task(fleet.wake(first.session_id, "anthropic"))
    await api.arrived(1, "hanging")
    aside = await fleet.send("nice weather", agent_group=None, platform_id="harbour", sender_id="bob")
    assert (aside.session_id, fleet.bells.nudges) == (first.session_id, [])
    fleet.runtime.leases.mail(first.session_id)
    api.release()
    assert await running == "completed"
    assert [row.content["text"] for row in await fleet.outbox()] == ["Once upon a time there was a ship."]


class Launch(BaseModel):
    pass


@PROVIDERS
@pytest.mark.spec("M7", "M8")
async def test_what_the_journal_holds_is_neither_asked_nor_done_again(
    make_fleet: MakeFleet, api: ModelApi, provider: str
) -> None:
    launched: list[str] = []

    async def launch(arguments: Launch, context: ToolContext) -> str:
        launched.append(context.call)
        return f"launched {len(launched)}"

    tool = Tool("launch", "Launches.", Launch, launch, idempotent=True)
    fleet = await make_fleet(Registry(tools=Drivers("tool", made={"launch": tool})))
    api.script = script(rule("go", reply(Call("launch", {})), reply(Call("launch", {})), "It said: {result}."))
    api.fail(refuse("overloaded"), predicate=lambda asked: asked.rounds == 2)
    await fleet.add_group(provider=provider)
    await fleet.send("go")
    assert await fleet.answer_wakes() == ["waiting"]
    await fleet.execute(update(Session).values(resume_after=None))
    [session] = await fleet.sessions()
    assert await fleet.wake(session.id, provider) == "completed"
    assert len(launched) == 2
    assert len(api.requests) == 4, "the two that were answered, the one that was refused, and that one again"
    [answer] = await fleet.outbox()
    assert "launched 2" in answer.content["text"]


@pytest.mark.spec("P20", "M7")
async def test_a_turn_that_began_on_a_script_goes_on_with_a_model(fleet: Fleet, api: ModelApi) -> None:
    config = {
        "provider_options": {"script": "- play:\n  - tool: clock\n  - fail: {class: quota}"},
        "fallbacks": ["anthropic"],
    }
    await fleet.add_group(config=config)
    await fleet.send("what time is it?")
    assert await fleet.answer_wakes() == ["handed_over"]
    assert await fleet.answer_wakes() == ["completed"]
    [turn] = await fleet.turns()
    assert (turn.provider, turn.tried) == ("anthropic", ["scripted"])
    [answer] = await fleet.outbox()
    assert answer.content["text"].startswith("It is ")


@pytest.mark.spec("P3")
async def test_a_thought_is_one_event_however_it_was_written(fleet: Fleet, api: ModelApi) -> None:
    api.script = script(rule("think", reply(Think("a long thought in many small pieces"), "done")))
    await fleet.add_group(provider="anthropic", config={"provider_options": {"thinking": "low"}})
    await fleet.send("think")
    await fleet.settle_down()
    thoughts = [row.payload["text"] for row in await fleet.events() if row.type == "thinking"]
    assert thoughts == ["a long thought in many small pieces"]


async def _wire(fleet: Fleet, group: str, **rules: Any) -> None:
    async def work(conn: Any) -> None:
        place = await ensure_messaging_group(conn, "local", "harbour")
        await conn.execute(insert(Wiring).values(messaging_group_id=place, agent_group_id=group, **rules))

    await fleet.db.transact(work)
