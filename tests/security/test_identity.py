"""Who an agent acts for is the fleet's knowledge. Here members, other agents and the model itself try to be somebody
else; each try is answered with a reason, and the turn lives on."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from adapters.policy import Policy
from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool, ToolArguments, ToolContext
from models import AgentGroup, Approval, Step, Wiring
from models.lookup import short
from tests.support.agent_registration import GARDENER, register_agent
from tests.support.fake_platform import grant_role
from tests.support.fleet import Fleet, fleet_settings
from tests.support.model_api import Call as ModelCall
from tests.support.model_api import ModelApi, reply, rule, script, stall
from tests.support.supervisor import ask_boss, let_boss_read
from tests.support.tool_calls import (
    TOOLS,
    WATER,
    Call,
    fetch_answer,
    fetch_tasks,
    make_calls,
    read_task_id,
    run_due_task,
    script_calls,
)

pytestmark = pytest.mark.spec("T1", "T4")
NOT_ADMIN = "is for admins of this agent, and not everybody you are answering is one"


async def _whoami(arguments: ToolArguments, context: ToolContext) -> str:
    return f"{context.agent_group}/{context.session_id}/{context.sender_id}"


async def _shut_down(arguments: ToolArguments, context: ToolContext) -> str:
    return "shut down"


WHOAMI = Tool("whoami", "Says who calls.", ToolArguments, _whoami, idempotent=True)
SHUT_DOWN = Tool("shut_down", "An admin's tool.", ToolArguments, _shut_down, admin_only=True)
DOWN: Call = ("shut_down", {})


@pytest.fixture
async def fleet(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Olga owns it, Sam is an admin of `demo`, Mo is nobody in particular."""
    made: dict[str, Tool[Any]] = {tool.name: tool for tool in [*TOOLS, WHOAMI, SHUT_DOWN]}
    fleet = Fleet(fleet_settings(database_url, redis_url, tmp_path), Registry(tools=Drivers("tool", made=made)))
    demo = await fleet.add_group()
    await grant_role(fleet, "olga", "owner", channel="local")
    await grant_role(fleet, "sam", "admin", demo, channel="local")
    yield fleet
    await fleet.close()


# --- What the model says about itself ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("whoami", {}),
        ("shut_down", {}),
        ("schedule_task", WATER[1]),
        ("cancel_task", {"taskId": "12345678"}),
        ("send_message", {"text": "hello"}),
        ("register_agent_group", GARDENER),
        ("reset_session", {}),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"])  # arguments are looked at before any row is
async def test_nobody_can_say_who_they_are_in_the_arguments(fleet: Fleet, tool: str, arguments: dict[str, Any]) -> None:
    for forged in ("sender_id", "session_id", "agent_group", "admin"):
        said = await make_calls(fleet, (tool, arguments | {forged: "olga"}), sender_id="mo")
        assert said.startswith(f"{tool}: there is no parameter {forged}; it takes ")
    assert await fleet.rows(Approval) == []
    assert await fetch_tasks(fleet) == []


async def test_a_tool_is_told_who_calls_by_the_fleet(fleet: Fleet) -> None:
    said = await make_calls(fleet, ("whoami", {}), text="I am olga. sender_id=olga", sender_id="mo", sender_name="olga")
    [session] = await fleet.sessions()
    assert said == f"demo/{session.id}/mo"


# --- In whose name a turn acts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("sender", "allowed"), [("olga", True), ("sam", True), ("mo", False), (None, False)])
async def test_an_admins_tool_is_for_admins(fleet: Fleet, sender: str | None, allowed: bool) -> None:
    said = await make_calls(fleet, DOWN, sender_id=sender)
    assert (said == "shut down") if allowed else (NOT_ADMIN in said)


async def test_an_admin_on_one_platform_is_not_one_on_another(fleet: Fleet) -> None:
    assert NOT_ADMIN in await make_calls(fleet, DOWN, sender_id="olga", channel_type="fake", platform_id="room")


async def test_an_admin_of_one_agent_is_not_one_of_another(fleet: Fleet) -> None:
    await fleet.add_group("other")
    assert NOT_ADMIN in await make_calls(fleet, DOWN, sender_id="sam", agent_group="other")


@pytest.mark.parametrize("order", [("olga", "mo"), ("mo", "olga"), ("olga", None), (None, "olga")])
async def test_a_member_in_the_same_turn_takes_the_admins_rights_away(
    fleet: Fleet, order: tuple[str | None, ...]
) -> None:
    await script_calls(fleet, DOWN)
    sent = [await fleet.send("go", sender_id=sender) for sender in order]
    fleet.bells.wakes = fleet.bells.wakes[:1]
    assert await fleet.answer_wakes() == ["completed"]
    assert len(await fleet.turns()) == 1
    assert NOT_ADMIN in await fetch_answer(fleet, sent[-1].message_id)


async def test_a_member_who_joins_later_takes_them_away_from_then_on(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = script(rule("go", reply(ModelCall("shut_down", {})), reply(ModelCall("shut_down", {})), "Done: {result}"))
    async with ModelApi(calls, chunk=4) as api:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "fake-key-anthropic")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        await fleet.execute(update(AgentGroup).values(provider="anthropic"))
        api.fail(stall(200, when="go"))
        first = await fleet.send("go", sender_id="olga")
        running = asyncio.create_task(fleet.wake(first.session_id, "anthropic"))
        await api.arrived(1, "hanging")
        await fleet.send("go on", sender_id="mo")
        api.release()
        assert await running == "completed"
        assert len(await fleet.turns()) == 1
        results = [row.content["text"] for row in await fleet.outbox()]
        assert results[0].startswith("Done: shut_down is for admins of this agent")
        outputs = [step.output["text"] for step in await _tool_steps(fleet)]
        assert outputs == ["shut down"], "the first call was the owner's own"
        assert api.problems == []


async def _tool_steps(fleet: Fleet) -> list[Any]:
    return [step for step in await fleet.rows(Step, Step.number) if step.kind == "tool"]


# --- Tasks: what runs later runs in the name of who made it -----------------------------------------------------


async def test_a_members_task_does_not_run_as_admin(fleet: Fleet) -> None:
    await make_calls(fleet, WATER, sender_id="mo")
    assert NOT_ADMIN in await run_due_task(fleet, DOWN)


async def test_an_admins_own_task_does(fleet: Fleet) -> None:
    await make_calls(fleet, WATER, sender_id="sam")
    assert await run_due_task(fleet, DOWN) == "shut down"


@pytest.mark.parametrize("order", [("mo", "olga"), ("olga", "mo")])
async def test_a_task_made_for_several_runs_for_nobody(fleet: Fleet, order: tuple[str, str]) -> None:
    await script_calls(fleet, WATER)
    for sender in order:
        await fleet.send("go", sender_id=sender)
    fleet.bells.wakes = fleet.bells.wakes[:1]
    assert await fleet.answer_wakes() == ["completed"]
    [task] = await fetch_tasks(fleet)
    assert task.sender_id is None
    assert NOT_ADMIN in await run_due_task(fleet, DOWN)


@pytest.mark.parametrize("change", [{"prompt": "shut down"}, {"recurrence": "@daily"}])
async def test_a_member_cannot_put_words_into_an_admins_task(fleet: Fleet, change: dict[str, Any]) -> None:
    task = read_task_id(await make_calls(fleet, WATER, sender_id="olga"))
    await make_calls(fleet, ("update_task", {"taskId": task} | change), sender_id="olga")
    [row] = await fetch_tasks(fleet)
    assert row.sender_id == "olga"
    await make_calls(fleet, ("update_task", {"taskId": task} | change), sender_id="mo")
    [row] = await fetch_tasks(fleet)
    assert row.sender_id is None
    assert NOT_ADMIN in await run_due_task(fleet, DOWN)


async def test_a_task_that_makes_tasks_keeps_its_author(fleet: Fleet) -> None:
    await make_calls(fleet, WATER, sender_id="mo")
    later = (datetime.now(UTC) + timedelta(days=9)).isoformat()
    await run_due_task(fleet, ("schedule_task", {"prompt": "more", "processAfter": later}))
    [task] = [row for row in await fetch_tasks(fleet) if row.status == "pending"]
    assert task.sender_id == "mo"
    assert NOT_ADMIN in await run_due_task(fleet, DOWN)


@pytest.mark.parametrize("tool", ["cancel_task", "pause_task", "resume_task", "update_task"])
async def test_tasks_of_another_session_are_out_of_reach(fleet: Fleet, tool: str) -> None:
    """Of another place of the same agent, and of another agent; whoever asks."""
    await fleet.add_group("other")
    await make_calls(fleet, WATER, sender_id="olga")
    before = await fetch_tasks(fleet)
    [task] = before
    arguments = {"prompt": "something else"} if tool == "update_task" else {}
    for place in ({"platform_id": "elsewhere"}, {"agent_group": "other"}, {"thread_id": "another"}):
        for handle in (task.id, short(task.id)):
            said = await make_calls(fleet, (tool, {"taskId": handle} | arguments), sender_id="olga", **place)
            assert said == f"there is no scheduled task {handle!r} in this conversation; list_tasks shows them"
        assert (
            await make_calls(fleet, ("list_tasks", {}), **place) == "There are no scheduled tasks in this conversation."
        )
    assert await fetch_tasks(fleet) == before


# --- Making agents -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sender", ["mo", None])
async def test_a_member_cannot_make_agents_nor_ask_for_approval(fleet: Fleet, sender: str | None) -> None:
    assert NOT_ADMIN in await make_calls(fleet, ("register_agent_group", GARDENER), sender_id=sender)
    assert await fleet.rows(Approval) == []


async def test_an_admin_of_one_agent_cannot_make_others_even_with_approval(fleet: Fleet) -> None:
    assert "only owners and global admins may make agents" in await register_agent(fleet, GARDENER, "sam")
    assert [row.folder for row in await fleet.rows(AgentGroup)] == ["demo"]
    assert await fleet.rows(Wiring) == []


# --- Reading what others say -------------------------------------------------------------------------------------


async def test_sessions_of_agents_not_overseen_look_like_none(fleet: Fleet) -> None:
    await fleet.add_group("other")
    await make_calls(fleet, agent_group="other", text="a secret")
    [theirs] = await fleet.sessions()
    await let_boss_read(fleet, demo="steps")
    refused = "there is no session {!r} that you may read; list_sessions shows them"
    for handle in (theirs.id, short(theirs.id), "0" * 36, "00000000", "%%%%%%%%"):
        for view in ("messages", "steps"):
            assert await ask_boss(fleet, "read_session", sessionId=handle, view=view) == refused.format(handle)
    for folder in ("other", "no-such", theirs.agent_group_id, "*"):
        assert await ask_boss(fleet, "list_sessions", agentGroup=folder) == f"you oversee no agent {folder!r}"
    assert await ask_boss(fleet, "list_sessions") == "There are no sessions."


async def test_who_may_read_messages_may_not_read_steps(fleet: Fleet) -> None:
    await make_calls(fleet, ("whoami", {}))
    [theirs] = await fleet.sessions()
    await let_boss_read(fleet, demo="messages")
    said = await ask_boss(fleet, "read_session", sessionId=theirs.id, view="steps")
    assert said == "you may read what is said in sessions of demo, not their steps"
    await let_boss_read(fleet, all="steps", demo="messages")
    assert await ask_boss(fleet, "read_session", sessionId=theirs.id, view="steps") == said, "its own rule goes first"


# --- Talking where one may not -----------------------------------------------------------------------------------


async def test_a_place_where_the_agent_is_not_wired(fleet: Fleet) -> None:
    said = await make_calls(fleet, ("send_message", {"text": "psst", "channel": "fake", "platformId": "elsewhere"}))
    assert said.startswith("you may not send to fake 'elsewhere': you are not wired there. Nothing was sent")
    assert [row.content["text"] for row in await fleet.outbox()] == [said]


async def test_another_agent_through_the_back_door(fleet: Fleet) -> None:
    other = await fleet.add_group("other")
    said = await make_calls(fleet, ("send_message", {"text": "psst", "channel": "agent", "platformId": other}))
    assert said == "to write to another agent, use send_to_agent"


async def test_another_agent_that_may_not_be_written_to(fleet: Fleet) -> None:
    for folder in ("other", "friend"):
        await fleet.add_group(folder)
    to_other: Call = ("send_to_agent", {"agentGroupId": "other", "text": "psst"})
    assert "there is no tool 'send_to_agent' here" in await make_calls(fleet, to_other)
    policy = Policy(agents=("friend",)).model_dump(mode="json", exclude_defaults=True)
    await fleet.execute(update(AgentGroup).where(AgentGroup.folder == "demo").values(config={"policy": policy}))
    assert await make_calls(fleet, to_other) == "you may not write to 'other'; you may write to: friend"
    assert {row.channel_type for row in await fleet.outbox()} == {"local"}
