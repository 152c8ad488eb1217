"""register_agent_group: an owner's or a global admin's wish, approved by a person, all of it or nothing."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import delete

from adapters.actions import Place, RegisterAgentGroup
from adapters.errors import ToolError
from adapters.policy import Policy
from models import AgentGroup, Approval, MessagingGroup, UserRole, Wiring
from tests.support.agent_registration import GARDENER, register_agent
from tests.support.fake_platform import grant_role
from tests.support.fleet import Fleet, MakeFleet
from tests.support.tool_calls import fetch_answer, make_calls, script_calls, tool_registry
from workers.actions import groups
from workers.actions.caller import Caller
from workers.consent.approvals import decide


@pytest.fixture
async def fleet(make_fleet: MakeFleet) -> Fleet:
    fleet = await make_fleet(tool_registry())
    await fleet.add_group()
    await grant_role(fleet, "olga", "owner", channel="local")
    return fleet


@pytest.mark.spec("T4")
async def test_an_agent_is_made_and_listens(fleet: Fleet) -> None:
    assert await register_agent(fleet, GARDENER) == "made agent gardener; it listens on fake garden"
    [made] = [row for row in await fleet.rows(AgentGroup) if row.folder == "gardener"]
    assert (made.name, made.provider, made.model, made.config) == ("The Gardener", "scripted", "script", {})
    [place] = [row for row in await fleet.rows(MessagingGroup) if row.platform_id == "garden"]
    [wiring] = await fleet.rows(Wiring)
    assert (wiring.agent_group_id, wiring.messaging_group_id) == (made.id, place.id)
    assert wiring.trigger_rules == {"pattern": "^plants", "mentionOnly": True, "excludeSenders": ["bot"]}
    assert wiring.session_mode == "per-thread"

    heard = {"agent_group": None, "channel_type": "fake", "platform_id": "garden", "thread_id": "t1"}
    accepted = await fleet.send("plants need water", is_mention=True, **heard)
    await fleet.settle_down()
    assert await fetch_answer(fleet, accepted.message_id) == "You said: plants need water"


@pytest.mark.spec("T4", "D4")
async def test_a_global_admin_may_too_and_the_rest_has_defaults(fleet: Fleet) -> None:
    await grant_role(fleet, "gus", "admin", channel="local")
    least = {"name": "x", "folder": "x", "platform_id": "inbox", "channel_type": "local"}
    assert await register_agent(fleet, least, "gus") == "made agent x; it listens on local inbox"
    [made] = [row for row in await fleet.rows(AgentGroup) if row.folder == "x"]
    [wiring] = await fleet.rows(Wiring)
    assert (made.provider, made.model, wiring.trigger_rules, wiring.session_mode) == (None, None, {}, "shared")
    said = await register_agent(fleet, least | {"folder": "y"}, "gus")
    assert said == "made agent y; it listens on local inbox. Asked before it there: x"


@pytest.mark.spec("T4")
async def test_without_approval_nothing_is_made(fleet: Fleet) -> None:
    assert "was not approved: local:olga said no" in await register_agent(fleet, GARDENER, approve=False)
    assert [row.folder for row in await fleet.rows(AgentGroup)] == ["demo"]
    assert await fleet.rows(Wiring) == []


@pytest.mark.spec("T4", "D4")
async def test_an_admin_of_one_agent_may_not_make_others(fleet: Fleet) -> None:
    [demo] = await fleet.rows(AgentGroup)
    await grant_role(fleet, "sam", "admin", demo.id, channel="local")
    assert "only owners and global admins may make agents" in await register_agent(fleet, GARDENER, "sam")
    assert len(await fleet.rows(AgentGroup)) == 1


@pytest.mark.spec("T4")
async def test_somebody_who_loses_the_role_before_it_is_approved_has_lost_it(fleet: Fleet) -> None:
    await grant_role(fleet, "gus", "admin", channel="local")
    await script_calls(fleet, ("register_agent_group", GARDENER))
    accepted = await fleet.send("make one", sender_id="gus")
    assert await fleet.answer_wakes() == ["parked"]
    [approval] = await fleet.rows(Approval)
    await decide(fleet.db, approval.id, approve=True, user_id="local:olga")
    await fleet.execute(delete(UserRole).where(UserRole.user_id == "local:gus"))
    assert await fleet.wake(accepted.session_id) == "completed"
    assert "is for admins of this agent" in await fetch_answer(fleet, accepted.message_id)
    assert len(await fleet.rows(AgentGroup)) == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"folder": "Garden"}, "register_agent_group: folder: "),
        ({"folder": "../up"}, "register_agent_group: folder: "),
        ({"folder": ".outbox"}, "register_agent_group: folder: "),
        ({"folder": "x" * 101}, "register_agent_group: folder: "),
        ({"name": " "}, "register_agent_group: name: "),
        ({"name": "x" * 201}, "register_agent_group: name: "),
        ({"platformId": "a\nb"}, "register_agent_group: platformId: "),
        ({"sessionMode": "none"}, "register_agent_group: sessionMode: "),
        ({"triggerRules": {"pattern": "("}}, "triggerRules.pattern: '(' is not a regular expression"),
        ({"triggerRules": {"mood": "good"}}, "there is no parameter triggerRules.mood; it takes name, folder"),
        ({"triggerRules": {"includeSenders": "ann"}}, "triggerRules.includeSenders: "),
        ({"config": {"policy": {}}}, "there is no parameter config; it takes name, folder"),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"])  # no row is looked at
@pytest.mark.spec("T4")
async def test_nobody_is_asked_to_approve_nonsense(fleet: Fleet, change: dict[str, Any], complaint: str) -> None:
    assert complaint in await make_calls(fleet, ("register_agent_group", GARDENER | change), sender_id="olga")
    assert await fleet.rows(Approval) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"folder": "demo"}, "there is already an agent 'demo'; nothing was made"),
        ({"folder": "global"}, "has a meaning of its own"),
        ({"folder": "main"}, "has a meaning of its own"),
        ({"channelType": "pigeon"}, "there is no channel 'pigeon' here; installed: "),
        ({"channelType": "agent"}, "there is no channel 'agent' here"),
        ({"provider": "oracle"}, "there is no provider 'oracle' here; installed: "),
    ],
)
@pytest.mark.spec("T4")
async def test_what_cannot_be_is_refused_and_nothing_is_written(
    fleet: Fleet, change: dict[str, Any], complaint: str
) -> None:
    assert complaint in await register_agent(fleet, GARDENER | change)
    assert len(await fleet.rows(AgentGroup)) == 1
    assert await fleet.rows(Wiring) == []
    assert "garden" not in [row.platform_id for row in await fleet.rows(MessagingGroup)]


@pytest.mark.spec("T4")
async def test_of_two_who_make_the_same_at_once_one_succeeds(
    make_fleet: MakeFleet, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is told, although the folder was free when it looked, and leaves nothing behind."""

    async def sees_nothing(*_: Any) -> None:
        return None

    monkeypatch.setattr(groups, "find_agent_group", sees_nothing)
    other = await make_fleet(tool_registry())
    outcomes = await asyncio.gather(_register(fleet, "one"), _register(other, "two"))
    assert sorted(outcomes) == ["made", "there is already an agent 'gardener'; nothing was made. Choose another folder"]
    [made] = [row for row in await fleet.rows(AgentGroup) if row.folder == "gardener"]
    [wiring] = await fleet.rows(Wiring)
    [place] = await fleet.rows(MessagingGroup)
    assert (wiring.agent_group_id, wiring.messaging_group_id) == (made.id, place.id)


async def _register(fleet: Fleet, place: str) -> str:
    """The action itself, in a transaction of its own."""

    said = SimpleNamespace(kind="chat", channel_type="local", sender_id="olga")
    turn = SimpleNamespace(agent_group_id="that of the agent who asks", messages=[said])
    olga = Caller(turn, Policy(), fleet.runtime.registry, "scripted")  # type: ignore[arg-type]
    action = RegisterAgentGroup("The Gardener", "gardener", Place("fake", place))
    try:
        await fleet.db.transact(lambda conn: groups.register(conn, olga, action, "step", 0))
    except ToolError as error:
        return str(error)
    return "made"


@pytest.mark.spec("T4", "M2")
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
async def test_a_pattern_that_could_take_long_is_refused(fleet: Fleet) -> None:
    assert "could take too long" in await register_agent(fleet, GARDENER | {"triggerRules": {"pattern": "(a+)+$"}})
    assert await fleet.rows(Wiring) == []
