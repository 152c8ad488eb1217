"""Dead letters: tried again on the same or another provider, put away, sent again; and a message that names who runs it
gets just that, by whichever ring it is found."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import update

from models import AgentGroup, Audit, MessageOut
from tests.support.api_fleet import model_api, retry_now
from tests.support.fleet import Fleet
from tests.support.model_api import ModelApi, refuse, rule, script
from workers.operations import dead
from workers.refusals import RefusedError

pytestmark = [pytest.mark.spec("M11"), pytest.mark.both_databases]

ANSWERS = script(rule(".", "Here you are."))


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with model_api(monkeypatch, ANSWERS) as server:
        yield server


async def _dead_letter(fleet: Fleet, api: ModelApi) -> str:
    """One of an agent on openai, which it does not let in."""
    await fleet.add_group(provider="openai", model="some-model", config={"fallbacks": []})
    api.fail(refuse("unauthenticated", times=None, wire="chat"))
    accepted = await fleet.send("hello")
    assert await fleet.answer_wakes() == ["failed"]
    fleet.bells.deliveries.clear()
    return accepted.message_id


async def test_a_dead_letter_is_answered_by_another_provider_and_the_next_message_by_the_own(
    fleet: Fleet, api: ModelApi
) -> None:
    message_id = await _dead_letter(fleet, api)
    await fleet.send("and this?")
    fleet.bells.wakes.clear()
    done = await dead.retry(fleet.runtime, "cli", message_id, provider="anthropic", model="claude-haiku-5-5")
    assert "on anthropic (claude-haiku-5-5)" in done.text
    [session] = await fleet.sessions()
    assert fleet.bells.wakes == [(session.id, "anthropic")]
    assert await fleet.answer_wakes() == ["completed"]
    failed, answered = await fleet.turns()
    assert (failed.status, answered.status) == ("failed", "completed")
    assert (answered.provider, answered.model) == ("anthropic", "claude-haiku-5-5")
    first, second = await fleet.inbox()
    assert (first.status, first.turn_id, second.status) == ("completed", answered.id, "pending"), "it travels alone"
    assert await fleet.answer_wakes() == ["elsewhere"]
    assert fleet.bells.wakes == [(session.id, "openai")]
    [line] = await fleet.rows(Audit)
    assert (line.who, line.act, line.target) == ("cli", "dead.retry", message_id)
    assert line.detail == {"provider": "anthropic", "model": "claude-haiku-5-5"}


async def test_a_lost_ring_and_a_second_try_land_on_the_queue_of_whom_it_names(fleet: Fleet, api: ModelApi) -> None:
    message_id = await _dead_letter(fleet, api)
    await dead.retry(fleet.runtime, "cli", message_id, provider="anthropic")
    [(session_id, _)] = fleet.bells.wakes
    fleet.bells.wakes.clear()
    await _swept(fleet, (session_id, "anthropic"))
    api.fail(refuse("overloaded", wire="anthropic"))
    assert await fleet.answer_wakes() == ["waiting"], "nobody else is asked"
    await _swept(fleet, (session_id, "anthropic"))
    assert await fleet.answer_wakes() == ["completed"]
    assert [turn.provider for turn in await fleet.turns()] == ["openai", "anthropic"]


async def test_nobody_else_of_the_agents_list_is_asked(fleet: Fleet, api: ModelApi) -> None:
    message_id = await _dead_letter(fleet, api)
    await fleet.execute(update(AgentGroup).values(config={"fallbacks": ["openai"]}))
    api.fail(refuse("quota", times=None, wire="anthropic"))
    await dead.retry(fleet.runtime, "cli", message_id, provider="anthropic")
    assert await fleet.answer_wakes() == ["failed"]
    assert [turn.provider for turn in await fleet.turns()] == ["openai", "anthropic"]


async def test_a_task_is_rung_for_on_the_queue_of_whom_its_dead_run_names(fleet: Fleet, api: ModelApi) -> None:
    await fleet.add_group(provider="openai", model="some-model")
    api.fail(refuse("unauthenticated", times=None, wire="chat"))
    task = await fleet.send("hello", kind="task", terms={"provider": "openai"})
    assert await fleet.answer_wakes() == ["failed"]
    await dead.retry(fleet.runtime, "cli", task.message_id, provider="anthropic")
    fleet.bells.wakes.clear()
    await _swept(fleet, (task.session_id, "anthropic"))
    assert await fleet.answer_wakes() == ["completed"]


async def _swept(fleet: Fleet, wake: tuple[str, str]) -> None:
    async with asyncio.timeout(10):
        while not fleet.bells.wakes:
            await fleet.sweep()
    assert fleet.bells.wakes == [wake]


async def test_one_that_names_a_provider_joins_nobody_and_nobody_joins_it(fleet: Fleet) -> None:
    """What is said meanwhile is for the agent's own provider."""
    hangs = (
        "- when: slow\n  play:\n    - listen: 0.5\n    - answer: 'heard {text}'\n- play:\n    - fail: {class: auth}\n"
    )
    await fleet.add_group(script=hangs)
    accepted = await fleet.send("broken")
    await fleet.answer_wakes()
    slow = await fleet.send("slow")
    running = asyncio.create_task(fleet.wake(slow.session_id))
    async with asyncio.timeout(10):
        while not [turn for turn in await fleet.turns() if turn.status == "running"]:
            await asyncio.sleep(0.01)
    await dead.retry(fleet.runtime, "cli", accepted.message_id, provider="scripted")
    fleet.runtime.leases.mail(slow.session_id)
    joins = await fleet.send("this joins", follow_up="interrupt")
    fleet.runtime.leases.mail(slow.session_id)
    assert await running == "completed"
    rows = {row.id: row for row in await fleet.inbox()}
    assert rows[accepted.message_id].turn_id is None, "it did not join"
    assert rows[joins.message_id].turn_id is None, "what came later keeps its place behind it"


async def test_an_unknown_provider_is_refused_before_anything_changes(fleet: Fleet, api: ModelApi) -> None:
    message_id = await _dead_letter(fleet, api)
    before = await fleet.inbox()
    with pytest.raises(RefusedError, match=r"there is no provider 'nobody' here; installed: .*anthropic.*openai"):
        await dead.retry(fleet.runtime, "cli", message_id, provider="nobody")
    with pytest.raises(RefusedError, match="a model's name has 1 to 200 characters"):
        await dead.retry(fleet.runtime, "cli", message_id, model="x\n")
    assert (await fleet.inbox(), fleet.bells.wakes, await fleet.rows(Audit)) == (before, [], [])


async def test_what_is_not_dead_is_neither_tried_again_nor_put_away(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n    - fail: {class: auth}\n")
    message = (await fleet.send()).message_id
    with pytest.raises(RefusedError, match="is not dead: it waits to be answered"):
        await dead.discard(fleet.runtime, "cli", message)
    await fleet.answer_wakes()
    await dead.retry(fleet.runtime, "cli", message)
    with pytest.raises(RefusedError, match="is not dead: it waits to be answered"):
        await dead.retry(fleet.runtime, "cli", message)
    await fleet.answer_wakes()
    assert (await dead.discard(fleet.runtime, "web:ann", message)).text.endswith("was put away")
    for again in (dead.retry, dead.discard):
        with pytest.raises(RefusedError, match="is not dead: it was put away"):
            await again(fleet.runtime, "cli", message)
    with pytest.raises(RefusedError, match="there is no message 'x'"):
        await dead.retry(fleet.runtime, "cli", "x")
    assert [(line.who, line.act) for line in await fleet.rows(Audit, Audit.id)] == [
        ("cli", "dead.retry"),
        ("web:ann", "dead.discard"),
    ]


async def test_two_who_try_it_again_at_once_ring_once(fleet: Fleet) -> None:
    await fleet.add_group(script="- play:\n    - fail: {class: auth}\n")
    message = (await fleet.send()).message_id
    await fleet.answer_wakes()
    tries = [dead.retry(fleet.runtime, f"web:{n}", message) for n in range(4)]
    done = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(one).__name__ for one in done) == ["Done", *["RefusedError"] * 3]
    assert len(await fleet.rows(Audit)) == len(fleet.bells.wakes) == 1


async def test_an_undelivered_answer_is_sent_again_once(fleet: Fleet) -> None:
    await fleet.add_group(script="There.")
    await fleet.send()
    await fleet.answer_wakes()
    [answer] = await fleet.outbox()
    with pytest.raises(RefusedError, match="is not undelivered: it is pending"):
        await dead.resend(fleet.runtime, "cli", answer.id)
    await fleet.execute(update(MessageOut).values(status="unknown"))
    fleet.bells.deliveries.clear()
    await dead.resend(fleet.runtime, "cli", answer.id)
    assert fleet.bells.deliveries == [answer.id]
    await fleet.settle_down()
    [answer] = await fleet.outbox()
    assert answer.status == "delivered"
    with pytest.raises(RefusedError, match="there is no answer"):
        await dead.resend(fleet.runtime, "cli", "x")


async def test_a_retry_needs_its_own_provider_unless_it_names_one(fleet: Fleet, api: ModelApi) -> None:
    """One that was refused at the door because nobody had its provider can be tried on another."""
    await fleet.add_group(provider="gone")
    message = (await fleet.send()).message_id
    with pytest.raises(RefusedError, match="there is no provider 'gone' here"):
        await dead.retry(fleet.runtime, "cli", message)
    await dead.retry(fleet.runtime, "cli", message, provider="anthropic", model="claude-haiku-5-5")
    assert await fleet.answer_wakes() == ["completed"]
    assert await retry_now(fleet) == []
