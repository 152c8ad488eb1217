"""Risky calls: nothing is run that nobody approved, nor anything but what was approved, nor twice, nor too late."""

from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.registry import Drivers, Registry
from models import AgentGroup, Approval, Session, Step
from models.base import new_id, now
from models.consent import close_questions, find_approval
from models.groups import ensure_messaging_group
from models.people import User, UserDm, UserRole
from tests.support.cards import SCRIPT, Launcher
from tests.support.fleet import Fleet, MakeFleet
from workers.consent import approvals
from workers.consent.requests import Place, Request, put_request
from workers.consent.risky_calls import Consent
from workers.refusals import RefusedError

pytestmark = pytest.mark.both_databases


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
async def fleet(make_fleet: MakeFleet, launcher: Launcher) -> Fleet:
    fleet = await make_fleet(Registry(tools=Drivers("tool", {"launch": launcher.tool()})))
    await fleet.add_group(script=SCRIPT)
    return fleet


async def ask(fleet: Fleet) -> Any:
    await fleet.send("go")
    assert await fleet.answer_wakes() == ["parked"]
    [approval] = await fleet.rows(Approval)
    return approval


async def decide(fleet: Fleet, approval_id: str, *, approve: bool = True) -> str:
    decided = await approvals.decide(fleet.db, approval_id, approve=approve)
    for session_id, provider in decided.wakes:
        fleet.bells.wake(session_id, provider or "scripted")
    fleet.bells.deliveries += decided.deliveries
    return decided.text


async def answer(fleet: Fleet) -> str:
    await fleet.settle_down()
    return str([row for row in await fleet.outbox() if row.kind == "chat"][-1].content["text"])


@pytest.mark.spec("C6")
async def test_asking_again_changes_nothing_that_was_decided(fleet: Fleet) -> None:
    approval = await ask(fleet)
    await decide(fleet, approval.id, approve=False)
    [before] = await fleet.rows(Approval)
    asked = {"session_id": approval.session_id, "category": "tool", "summary": "x", "risk": "low", "agent": "demo"}
    request = Request(approval_id=approval.id, payload={"tool": "other"}, here=Place("local", "x"), **asked)
    assert await fleet.db.transact(lambda conn: put_request(conn, request, [], 600)) == []
    assert await fleet.rows(Approval) == [before]


async def test_a_turn_that_goes_on_says_nothing_again(make_fleet: MakeFleet, launcher: Launcher) -> None:
    fleet = await make_fleet(launcher.registry())
    acts = "{think: hm}, {say: Off we go.}, {tool: launch}, {say: And again.}, {tool: launch}, {answer: '{result}'}"
    await fleet.add_group(script=f"- play: [{acts}]")
    await ask(fleet)
    for _ in range(2):
        [pending] = [row for row in await fleet.rows(Approval) if row.status == "pending"]
        await decide(fleet, pending.id)
        await fleet.answer_wakes()
    told = {"thinking": "text", "message": "text", "tool_call": "id", "tool_result": "id", "result": "text"}
    assert [row.payload[told[row.type]] for row in await fleet.events() if row.type in told] == [
        "hm", "Off we go.", "call-1", "call-1", "And again.", "call-2", "call-2", "launched prod"
    ]  # fmt: skip


@pytest.mark.spec("C6", "M17")
async def test_a_risky_call_waits_for_a_yes_and_is_done_once(fleet: Fleet, launcher: Launcher) -> None:
    approval = await ask(fleet)
    assert launcher.done == []
    assert approval.payload["tool"] == "launch"
    assert approval.payload["arguments"] == {"what": "prod"}
    [session] = await fleet.sessions()
    assert (session.lease_owner, session.activity) == (None, "awaiting human")
    assert "approval_requested" in [row.type for row in await fleet.events()]
    assert "approved, once" in await decide(fleet, approval.id)
    assert await answer(fleet) == "so: launched prod"
    assert launcher.done == ["prod"]
    [approval] = await fleet.rows(Approval)
    assert (approval.status, approval.decided_by) == ("used", "cli")


@pytest.mark.spec("C6")
async def test_no_means_no(fleet: Fleet, launcher: Launcher) -> None:
    approval = await ask(fleet)
    await decide(fleet, approval.id, approve=False)
    assert "launch was not approved: cli said no" in await answer(fleet)
    assert launcher.done == []


@pytest.mark.spec("C6")
async def test_too_late_is_told_on_both_sides(fleet: Fleet, launcher: Launcher) -> None:
    approval = await ask(fleet)
    await fleet.execute(update(Approval).values(expires_at=now(-1)))
    with pytest.raises(RefusedError, match="already expired"):
        await decide(fleet, approval.id)

    await fleet.execute(update(Session).values(resume_after=now(-1)))
    await fleet.sweep()
    assert "was not approved in time" in await answer(fleet)
    assert launcher.done == []
    with pytest.raises(RefusedError, match="already expired"):
        await decide(fleet, approval.id)


@pytest.mark.spec("C6")
async def test_the_first_decision_stands(fleet: Fleet, launcher: Launcher) -> None:
    approval = await ask(fleet)
    await decide(fleet, approval.id, approve=False)
    with pytest.raises(RefusedError, match="already denied"):
        await decide(fleet, approval.id)
    await answer(fleet)
    assert launcher.done == []


@pytest.mark.spec("C6")
async def test_what_cannot_be_decided(fleet: Fleet) -> None:
    approval = await ask(fleet)
    with pytest.raises(RefusedError, match="there is no approval 'nothing'"):
        await decide(fleet, "nothing")
    with pytest.raises(RefusedError, match="an amount is for a budget"):
        await approvals.decide(fleet.db, approval.id, approve=True, usd=3.0)
    [approval] = await fleet.rows(Approval)
    assert approval.status == "pending"


@pytest.mark.spec("C6")
@pytest.mark.parametrize("changed", ["shown", "hash", "call"])
async def test_a_payload_changed_after_approval_is_not_run(fleet: Fleet, launcher: Launcher, changed: str) -> None:
    approval = await ask(fleet)
    await decide(fleet, approval.id)
    other = approval.payload | {"arguments": {"what": "everything"}}
    if changed == "shown":
        await fleet.execute(update(Approval).values(payload=other))
    elif changed == "hash":
        await fleet.execute(update(Approval).values(payload_hash="0" * 64))
    else:
        options = {"provider_options": {"script": SCRIPT.replace("what: prod", "what: everything")}}
        await fleet.execute(update(AgentGroup).values(config=options))
    assert "this is not the call that was approved" in await answer(fleet)
    assert launcher.done == []


@pytest.mark.spec("C6", "M7")
@pytest.mark.parametrize("idempotent", [True, False])
async def test_an_approval_used_by_a_worker_that_died(
    make_fleet: MakeFleet, launcher: Launcher, idempotent: bool
) -> None:
    """It was begun and nobody knows how it ended: run again only if that does no harm, and never asked for twice."""
    fleet = await make_fleet(Registry(tools=Drivers("tool", {"launch": launcher.tool(idempotent=idempotent)})))
    await fleet.add_group(script=SCRIPT)
    approval = await ask(fleet)
    await decide(fleet, approval.id)
    launcher.dies = 1
    assert await fleet.answer_wakes() == ["lost"]

    await fleet.execute(update(Session).values(lease_expires_at=now(-1)))
    other = await make_fleet(Registry(tools=Drivers("tool", {"launch": launcher.tool(idempotent=idempotent)})))
    await other.sweep()
    said = await answer(other)
    assert launcher.done == (["prod", "prod"] if idempotent else ["prod"])
    assert ("launched prod" if idempotent else "whether it took effect is unknown") in said
    assert len(await fleet.rows(Approval)) == 1


@pytest.mark.spec("C6")
async def test_a_policy_makes_any_tool_ask(make_fleet: MakeFleet, launcher: Launcher) -> None:
    fleet = await make_fleet(Registry(tools=Drivers("tool", {"launch": launcher.tool(risky=False)})))
    await fleet.add_group(config={"provider_options": {"script": SCRIPT}, "policy": {"approve": ["launch"]}})
    await fleet.send("go")
    assert await fleet.answer_wakes() == ["parked"]
    assert launcher.done == []


@pytest.mark.spec("C6")
async def test_those_who_decide_are_told(fleet: Fleet) -> None:
    user = "local:olga"
    place = await fleet.db.transact(lambda conn: ensure_messaging_group(conn, "local", "olga"))
    await fleet.insert(User, {"id": user, "kind": "local"})
    await fleet.insert(UserRole, {"id": new_id(), "user_id": user, "role": "owner"})
    await fleet.insert(UserDm, {"user_id": user, "channel_type": "local", "messaging_group_id": place})
    approval = await ask(fleet)
    here, told = [row for row in await fleet.outbox() if row.kind == "notice"]
    assert (here.platform_id, told.platform_id) == ("inbox", "olga")
    assert here.content["text"].startswith("I wait for an approval")
    assert f"longshore approve {approval.id[-8:]}" in told.content["text"]
    assert "launch(what=prod)" in told.content["text"]


@pytest.mark.spec("C6", "M17")
async def test_decided_while_the_turn_is_just_being_parked(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker still has the session when the yes comes; nobody else will ring."""
    asked = Consent._ask

    async def ask_and_hear(self: Consent, step_id: str, *rest: Any) -> None:
        await asked(self, step_id, *rest)
        await approvals.decide(fleet.db, step_id, approve=True)

    monkeypatch.setattr(Consent, "_ask", ask_and_hear)
    await fleet.send("go")
    assert await answer(fleet) == "so: launched prod"


@pytest.mark.spec("C6")
async def test_a_turn_that_is_given_up_takes_its_approval_along(fleet: Fleet, launcher: Launcher) -> None:

    approval = await ask(fleet)
    await fleet.execute(update(Step).values(status="started"))
    await fleet.db.transact(lambda conn: _bury(conn, approval.turn_id))
    with pytest.raises(RefusedError, match="already expired"):
        await decide(fleet, approval.id)
    await fleet.execute(update(Session).values(resume_after=None))
    assert launcher.done == []


async def _bury(conn: Any, turn_id: str) -> None:
    await close_questions(conn, turn_id)


@pytest.mark.spec("C6")
async def test_what_the_database_cannot_hold_does_not_make_it_another_call(
    make_fleet: MakeFleet, launcher: Launcher
) -> None:
    fleet = await make_fleet(Registry(tools=Drivers("tool", {"launch": launcher.tool()})))
    await fleet.add_group(script='- play: [{tool: launch, with: {what: [a, .nan]}}, {answer: "so: {result}"}]')
    approval = await ask(fleet)
    await decide(fleet, approval.id)
    assert (await answer(fleet)).startswith("so: launched ['a', ")
    assert len(launcher.done) == 1


@pytest.mark.spec("C6")
async def test_a_yes_does_not_last_for_ever(fleet: Fleet, launcher: Launcher) -> None:
    """It was given in time, but nobody could act on it: the fleet was away."""
    approval = await ask(fleet)
    await decide(fleet, approval.id)
    await fleet.execute(update(Approval).values(expires_at=now(-1)))
    assert "launch was not approved in time" in await answer(fleet)
    assert launcher.done == []


@pytest.mark.spec("C6")
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_yes_that_ends_just_before_it_is_used_up_runs_nothing(
    make_fleet: MakeFleet, launcher: Launcher, monkeypatch: pytest.MonkeyPatch, idempotent: bool
) -> None:
    fleet = await make_fleet(Registry(tools=Drivers("tool", {"launch": launcher.tool(idempotent=idempotent)})))
    await fleet.add_group(script=SCRIPT)
    approval = await ask(fleet)
    await decide(fleet, approval.id)

    async def look_and_expire(conn: AsyncConnection, approval_id: str) -> Any:
        found = await find_approval(conn, approval_id)
        await fleet.execute(update(Approval).values(status="expired", expires_at=now(-1)))
        return found

    monkeypatch.setattr("workers.consent.risky_calls.find_approval", look_and_expire)
    assert "launch was not approved in time" in await answer(fleet)
    assert launcher.done == []


@pytest.mark.spec("C6")
async def test_a_tool_that_is_gone_when_the_yes_comes(fleet: Fleet, make_fleet: MakeFleet, launcher: Launcher) -> None:
    approval = await ask(fleet)
    decided = await approvals.decide(fleet.db, approval.id, approve=True)
    other = await make_fleet(Registry(tools=Drivers("tool", {})))
    other.bells.wakes = [(session_id, provider or "scripted") for session_id, provider in decided.wakes]
    assert "there is no tool 'launch' here" in await answer(other)
    [step] = await fleet.rows(Step)
    assert step.status == "failed"  # else every later parking would find it decided, and wake at once


@pytest.mark.spec("C6")
async def test_an_agents_words_do_not_look_like_ours(make_fleet: MakeFleet, launcher: Launcher) -> None:
    fleet = await make_fleet(Registry(tools=Drivers("tool", {"launch": launcher.tool()})))
    await fleet.add_group(script='- play: [{tool: launch, with: {what: "x\\n\\nAll is well: longshore approve 1"}}]')
    approval = await ask(fleet)
    assert "\n" not in approval.summary
