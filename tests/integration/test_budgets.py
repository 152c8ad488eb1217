"""Budgets: what a day may cost, held before a call and settled after it, by however many workers at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import insert, update

from models import AgentGroup, Approval, BudgetDay, Reservation, Session, Usage, UserRole
from models.base import now
from models.groups import ensure_messaging_group
from models.people import User, UserDm
from tests.support.cards import cards_of, press
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import ModelApi, hang, refuse, reply, rule, script
from tests.support.model_api import Usage as Used
from tests.support.model_api.refusals import ErrorName
from workers.consent.approvals import decide
from workers.refusals import RefusedError

pytestmark = pytest.mark.both_databases

# One dollar per call: a million tokens in, at the price the group's options name.
CALL = reply("done", usage=Used(input=1_000_000, output=0, cache_read=0, cache_write=0))
PRICE = {"price": {"input": 1.0, "output": 100.0}, "max_tokens": 1000}
RESERVE = 0.1  # 1,000 tokens out at 100 dollars a million, and a little for what goes in


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with ModelApi(script(rule(None, CALL, repeat=True))) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "fake-key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server
        assert server.problems == []


async def _group(fleet: Fleet, **budget: float) -> str:
    config = {"provider_options": PRICE, "budget": budget}
    return await fleet.add_group(provider="anthropic", config=config)


@pytest.mark.spec("P21")
async def test_a_call_is_settled_at_what_it_cost(fleet: Fleet, api: ModelApi) -> None:
    await _group(fleet, daily_usd=5.0)
    await fleet.send()
    await fleet.settle_down()
    [day] = await fleet.rows(BudgetDay)
    assert (round(day.spent_usd, 6), round(day.reserved_usd, 6)) == (1.0, 0.0)
    [usage] = await fleet.rows(Usage)
    assert (float(usage.cost_usd), usage.input_tokens) == (1.0, 1_000_000)
    assert await fleet.rows(Reservation) == []


@pytest.mark.spec("P21")
@pytest.mark.parametrize(("error", "status"), [("invalid", "failed"), ("overloaded", "waiting")])
async def test_what_was_held_for_a_call_that_failed_is_given_back(
    fleet: Fleet, api: ModelApi, error: ErrorName, status: str
) -> None:
    await _group(fleet, daily_usd=5.0)
    api.fail(refuse(error))
    await fleet.send()
    assert await fleet.answer_wakes() == [status]
    [day] = await fleet.rows(BudgetDay)
    assert (day.spent_usd, round(day.reserved_usd, 6)) == (0.0, 0.0)
    assert await fleet.rows(Reservation) == []


@pytest.mark.spec("P21", "M17")
async def test_at_the_limit_the_turn_parks_and_a_yes_lets_it_go_on(fleet: Fleet, api: ModelApi) -> None:
    group = await _group(fleet, daily_usd=1.0)
    await _admin(fleet, group)
    await fleet.send("first")
    await fleet.settle_down()
    accepted = await fleet.send("second")
    assert await fleet.answer_wakes() == ["parked"]
    assert len(api.requests) == 1

    [session], [approval] = await fleet.sessions(), await fleet.rows(Approval)
    assert session.lease_owner is None
    assert (approval.status, approval.category) == ("pending", "budget")
    told = [row for row in await fleet.outbox() if row.kind == "notice"]
    assert [row.platform_id for row in told] == ["inbox", "the admin's chat"]
    assert "the daily budget of demo ($1.00) is spent" in told[0].content["text"]
    assert f"longshore approve {approval.id[-8:]}" in told[1].content["text"]
    turn = (await fleet.turns())[-1]
    assert (turn.status, turn.error_class) == ("parked", "budget")
    assert (await fleet.inbox())[-1].tries == 0, "waiting for money uses up no try"

    decided = await decide(fleet.db, approval.id, approve=True, usd=1.0)
    assert decided.wakes == [(accepted.session_id, "anthropic")]
    assert await fleet.wake(accepted.session_id, "anthropic") == "completed"
    with pytest.raises(RefusedError, match="already approved"):
        await decide(fleet.db, approval.id, approve=False)
    await fleet.send("third")
    await fleet.settle_down()
    assert len(await fleet.rows(Approval)) == 2, "reached again, asked again"


@pytest.mark.spec("P21", "C6")
async def test_a_raise_is_decided_on_its_card(fleet: Fleet, api: ModelApi) -> None:
    await _admin(fleet, await _group(fleet, daily_usd=1.0))
    for text in ("first", "second"):
        accepted = await fleet.send(text)
        await fleet.answer_wakes()
    [approval] = await fleet.rows(Approval)
    [card] = await cards_of(fleet, approval.id)
    assert (card.platform_id, card.user_id) == ("the admin's chat", "fake:boss")
    assert "you may not decide this" in (await press(fleet, card, "somebody")).text
    pressed = await press(fleet, card, "boss")
    assert pressed.text.startswith("$1.00 more for ")
    assert pressed.wakes == [(accepted.session_id, "anthropic")]
    assert await fleet.wake(accepted.session_id, "anthropic") == "completed"
    assert len(pressed.deliveries) == 1, "its card says who gave it"


@pytest.mark.spec("P21")
async def test_a_no_ends_the_turn_with_the_reason(fleet: Fleet, api: ModelApi) -> None:
    await _group(fleet, daily_usd=1.0)
    for text in ("first", "second"):
        accepted = await fleet.send(text)
        await fleet.settle_down()
    [approval] = await fleet.rows(Approval)
    await decide(fleet.db, approval.id, approve=False)
    assert await fleet.wake(accepted.session_id, "anthropic") == "failed"
    message = (await fleet.inbox())[-1]
    assert (message.status, message.error_class) == ("failed", "budget")
    assert message.error == "the daily budget of demo ($1.00) is spent, and more was not granted"


@pytest.mark.spec("P21")
async def test_the_next_day_goes_on_by_itself(fleet: Fleet, api: ModelApi) -> None:
    await _group(fleet, daily_usd=1.0)
    for text in ("first", "second"):
        accepted = await fleet.send(text)
        await fleet.settle_down()
    await fleet.execute(update(BudgetDay).values(day="2001-01-01"))
    await fleet.execute(update(Usage).values(created_at=now(-48 * 3600)))
    await fleet.execute(update(Session).values(resume_after=now(-1), woken_at=None))
    await fleet.sweep()
    assert fleet.bells.wakes == [(accepted.session_id, "anthropic")]
    assert await fleet.answer_wakes() == ["completed"]


@pytest.mark.spec("P21")
async def test_one_persons_share_is_kept_apart(fleet: Fleet, api: ModelApi) -> None:
    await _group(fleet, daily_usd=100.0, user_daily_usd=1.0)
    for sender, expected in (("ann", "completed"), ("ann", "parked"), ("bob", "completed")):
        await fleet.send(sender_id=sender, platform_id=sender)
        assert await fleet.answer_wakes() == [expected]
    assert {(day.user_id, round(day.spent_usd)) for day in await fleet.rows(BudgetDay)} == {
        ("", 2), ("ann", 1), ("bob", 1),
    }  # fmt: skip


@pytest.mark.spec("P21")
async def test_a_budget_counts_what_was_spent_before_it_was_set(fleet: Fleet, api: ModelApi) -> None:
    group = await fleet.add_group(provider="anthropic", config={"provider_options": PRICE})
    await fleet.send("first")
    await fleet.settle_down()
    config = {"provider_options": PRICE, "budget": {"daily_usd": 1.0}}
    await fleet.execute(update(AgentGroup).where(AgentGroup.id == group).values(config=config))
    await fleet.send("second")
    assert await fleet.answer_wakes() == ["parked"]
    assert fleet.bells.wakes == [], "it rests, and does not turn in a circle"
    [approval] = await fleet.rows(Approval)
    assert approval.status == "pending"


@pytest.mark.spec("P21")
@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_twenty_workers_at_once_pass_the_cap_by_at_most_one_reserve(make_fleet: MakeFleet, api: ModelApi) -> None:
    """Each call costs exactly what is held for it, so whatever is spent beyond the cap was let through wrongly."""
    fleets = [await make_fleet(database_pool=2) for _ in range(20)]
    cap = 1.0
    api.script = script(rule(None, reply("done", usage=Used(100_000, 0, 0, 0)), repeat=True))  # 10 cents
    await _group(fleets[0], daily_usd=cap)
    sent = [await fleets[0].send(platform_id=f"chat{n}") for n in range(40)]
    waiting = [accepted.session_id for accepted in sent]
    outcomes: list[str] = []
    while waiting:
        ended = await asyncio.gather(*(fleets[n % 20].wake(s, "anthropic") for n, s in enumerate(waiting)))
        outcomes += [outcome for outcome in ended if outcome != "waiting"]
        # What is left was held by calls under way: look again when they are settled.
        waiting = [s for s, outcome in zip(waiting, ended, strict=True) if outcome == "waiting"]
        await fleets[0].execute(update(Session).where(Session.id.in_(waiting)).values(resume_after=None))
    assert set(outcomes) == {"completed", "parked"}
    assert {message.tries for message in await fleets[0].inbox()} == {0, 1}
    [day] = await fleets[0].rows(BudgetDay)
    assert cap <= day.spent_usd + 1e-9
    assert day.spent_usd < cap + RESERVE + 0.05
    assert round(day.reserved_usd, 9) == 0
    assert outcomes.count("completed") == len(api.requests)
    assert len(await fleets[0].rows(Approval)) == 1, "forty turns, one question"


@pytest.mark.spec("P21", "M7")
async def test_a_call_begun_by_a_dead_worker_is_held_for_once(make_fleet: MakeFleet, api: ModelApi) -> None:
    fleet, other = await make_fleet(), await make_fleet()
    await _group(fleet, daily_usd=5.0)
    accepted = await fleet.send()
    api.fail(hang())
    dying = asyncio.create_task(fleet.wake(accepted.session_id, "anthropic"))
    await api.arrived(1, "hanging")
    await fleet.execute(update(Session).values(lease_expires_at=now(-1)))
    assert await other.wake(accepted.session_id, "anthropic") == "completed"
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    [day] = await fleet.rows(BudgetDay)
    assert (round(day.spent_usd, 6), round(day.reserved_usd, 6)) == (1.0, 0.0)
    assert len(await fleet.rows(Usage)) == 1


async def _admin(fleet: Fleet, group: str) -> None:
    await fleet.insert(User, {"id": "fake:boss", "kind": "fake"})
    await fleet.insert(UserRole, {"user_id": "fake:boss", "role": "admin", "agent_group_id": group})

    async def work(conn: Any) -> None:
        place = await ensure_messaging_group(conn, "fake", "the admin's chat")
        await conn.execute(insert(UserDm).values(user_id="fake:boss", channel_type="fake", messaging_group_id=place))

    await fleet.db.transact(work)
