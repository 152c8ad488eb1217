"""Agents that steer others: reset, replay beside, and again where it was said; only for admins of the other agent."""

import functools
import itertools
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import SteerSession
from adapters.policy import Policy
from models import AgentGroup, Audit, MessageIn, Session, Step
from models.base import new_id, now
from models.lookup import short
from models.turns import count_steps, finish_step
from models.upsert import insert_ignoring
from tests.support.fake_platform import grant_role, post_message
from tests.support.fleet import Fleet
from tests.support.steered_fleet import ANSWER_PREFIXES, fetch_answers, fetch_sessions, fleet, hold_conversation
from tests.support.tool_calls import YEARLY, fetch_answer, fetch_tasks, script_calls
from workers.actions.caller import Caller, Performed
from workers.actions.steering import MAX_AT_ONCE, steer
from workers.actions.table import IN_A_REPLAY
from workers.opening import OpenedTurn, open_next
from workers.operations.again import Again, again, put_again
from workers.operations.replays import Wish, compare
from workers.operations.replays import replay as make_replay
from workers.refusals import RefusedError

__all__ = ["fleet"]
pytestmark = [pytest.mark.spec("M15", "T4", "D4"), pytest.mark.both_databases]


async def change_worker(fleet: Fleet) -> None:
    config = {"provider_options": {"script": f"{ANSWER_PREFIXES[1]}: {{texts}}"}}
    await fleet.execute(update(AgentGroup).where(AgentGroup.folder == "worker").values(config=config))


async def boss(fleet: Fleet, sender: str = "ada", chat: str = "office", **arguments: Any) -> str:
    """What the supervisor was told when somebody asked it for this; nothing that it set off has run yet."""
    await script_calls(fleet, ("steer_session", arguments), group="boss")
    accepted = await post_message(fleet, "do it", sender, chat)
    own = [wake for wake in fleet.bells.wakes if wake[0] == accepted.session_id]
    fleet.bells.wakes = [wake for wake in fleet.bells.wakes if wake[0] != accepted.session_id]
    for session_id, provider in own:
        assert await fleet.wake(session_id, provider) == "completed"
    return await fetch_answer(fleet, accepted.message_id)


async def test_again_the_thread_begins_anew_and_its_messages_are_answered_where_they_were_said(fleet: Fleet) -> None:
    old = await hold_conversation(fleet, "one", "two")
    await change_worker(fleet)
    told = await boss(fleet, act="again", sessionId=short(old))
    first, new = await fetch_sessions(fleet, "worker")
    assert told == f"worker answers {short(old)} again, in {short(new.id)}"
    assert (first.status, new.status, new.thread_id, new.replay_of) == ("closed", "active", "t1", None)
    assert fleet.bells.wakes == [(new.id, "scripted")]
    await fleet.settle_down()
    assert await fetch_answers(fleet, old) == [
        ("delivered", f"{ANSWER_PREFIXES[0]}: {text}") for text in ("one", "two")
    ]
    assert await fetch_answers(fleet, new.id) == [
        ("delivered", f"{ANSWER_PREFIXES[1]}: {text}") for text in ("one", "two")
    ]
    places = {(row.platform_id, row.thread_id) for row in await fleet.outbox() if row.session_id in (old, new.id)}
    assert places == {("room", "t1")}
    pairs = await fleet.db.read(lambda conn: compare(conn, new.id))
    sides = [(pair.original.answers[0]["text"], pair.replayed.answers[0]["text"]) for pair in pairs]
    assert sides == [(f"{ANSWER_PREFIXES[0]}: {text}", f"{ANSWER_PREFIXES[1]}: {text}") for text in ("one", "two")]
    assert await hold_conversation(fleet, "three") == new.id, "and people go on there"
    [line] = [row for row in await fleet.rows(Audit) if row.act == "session.again"]
    assert (line.who, line.target, line.agent_group_id) == ("fake:ada", old, first.agent_group_id)
    assert (line.detail["agent"], line.detail["to"], line.detail["turns"]) == ("boss", new.id, [1, 2])


async def test_what_is_said_again_is_said_in_nobodys_name(fleet: Fleet) -> None:
    """Else an admin could have an owner's words carried out once more, with the owner's rights."""
    old = await hold_conversation(fleet, "one")
    await boss(fleet, act="again", sessionId=old)
    [copy] = [row for row in await fleet.rows(MessageIn) if row.replay_of is not None]
    assert (copy.sender_id, copy.content["sender"], copy.platform_message_id) == (None, "ada", None)


async def test_what_waits_comes_behind_what_is_said_again_and_what_runs_is_given_up(fleet: Fleet) -> None:
    old = await hold_conversation(fleet, "one")
    runtime = fleet.runtime
    await post_message(fleet, "two", "ada", thread_id="t1")
    await fleet.db.transact(lambda conn: open_next(conn, runtime.registry, runtime.settings, old, "busy", None))
    fleet.bells.wakes.clear()
    await post_message(fleet, "three", "ada", thread_id="t1")
    await change_worker(fleet)
    await boss(fleet, act="again", sessionId=old)
    assert fleet.bells.nudges == [old], "whoever runs it is told to stop"
    assert [one.event.type for one in fleet.bells.told] == ["turn_ended"]
    _, new = await fetch_sessions(fleet, "worker")
    await fleet.settle_down()
    assert [text for _, text in await fetch_answers(fleet, new.id)] == [
        f"{ANSWER_PREFIXES[1]}: {n}" for n in ("one", "two", "three")
    ]
    assert [turn.status for turn in await fleet.turns() if turn.session_id == old] == ["completed", "cancelled"]


async def test_a_reset_keeps_what_waits_and_forgets_the_rest(fleet: Fleet) -> None:
    old = await hold_conversation(fleet, "one")
    told = await boss(fleet, act="reset", sessionId=old)
    first, new = await fetch_sessions(fleet, "worker")
    assert told == f"worker has begun anew, in {short(new.id)}"
    assert (first.status, new.status, new.message_seq) == ("closed", "active", 0)
    assert fleet.bells.wakes == []
    [line] = [row for row in await fleet.rows(Audit) if row.act == "session.reset"]
    assert (line.who, line.target, line.detail["agent"], line.detail["to"]) == ("fake:ada", old, "boss", new.id)
    assert "is closed already. Nothing was done" in await boss(fleet, act="reset", sessionId=old)
    assert await boss(fleet, act="again", sessionId=old) != "", "what was said before the reset can be had again"
    await fleet.settle_down()
    [*_, last] = await fetch_sessions(fleet, "worker")
    assert [text for _, text in await fetch_answers(fleet, last.id)] == [f"{ANSWER_PREFIXES[0]}: one"]


async def test_a_replay_stands_beside_it_and_nothing_leaves(fleet: Fleet) -> None:
    old = await hold_conversation(fleet, "one")
    told = await boss(fleet, act="replay", sessionId=old, provider="scripted", model="other")
    [original, replay] = await fetch_sessions(fleet, "worker")
    assert told == f"worker: {short(old)} is said again on scripted, in the replay {short(replay.id)}"
    assert (original.status, replay.replay_of, replay.delivers, replay.model) == ("active", old, False, "other")
    await fleet.settle_down()
    assert await fetch_answers(fleet, replay.id) == [("cancelled", f"{ANSWER_PREFIXES[0]}: one")]
    [line] = [row for row in await fleet.rows(Audit) if row.act == "session.replay"]
    assert (line.who, line.detail["agent"]) == ("fake:ada", "boss")


async def test_all_conversations_of_an_agent_with_people_at_once(fleet: Fleet) -> None:
    for thread in ("t1", "t2"):
        await hold_conversation(fleet, f"in {thread}", thread=thread)
    await fleet.execute(update(AgentGroup).where(AgentGroup.folder == "boss").values(config=_may(agents=["worker"])))
    await script_calls(fleet, ("send_to_agent", {"agentGroupId": "worker", "text": "hello"}), group="boss")
    await post_message(fleet, "greet it", "ada", "office")
    await fleet.settle_down()
    assert len(await fetch_sessions(fleet, "worker")) == 3
    await change_worker(fleet)
    told = await boss(fleet, act="again", agentGroup="worker")
    assert len(told.splitlines()) == 2, "not what the two agents have said to each other"
    await fleet.settle_down()
    said = [row.content["text"] for row in await fleet.outbox() if row.content["text"].startswith(ANSWER_PREFIXES[1])]
    assert sorted(said) == [f"{ANSWER_PREFIXES[1]}: in t1", f"{ANSWER_PREFIXES[1]}: in t2"]
    await fleet.execute(update(Session).where(Session.thread_id == "t1").values(status="closed"))
    for n in range(MAX_AT_ONCE):
        await hold_conversation(fleet, "x", thread=f"many {n}")
    assert "has more than 20 conversations" in await boss(fleet, act="again", agentGroup="worker")


def _may(**policy: Any) -> dict[str, Any]:
    return {"policy": {"steers": ["worker"], **policy}}


# --- who may ---


@pytest.mark.parametrize("role", ["stranger", "member", "admin of boss", "admin and a stranger", "nobody"])
async def test_everybody_the_turn_answers_must_be_an_admin_of_the_other_agent(fleet: Fleet, role: str) -> None:
    old = await hold_conversation(fleet, "one")
    groups = {row.folder: row.id for row in await fleet.rows(AgentGroup)}
    await grant_role(fleet, "bob", "member", groups["boss"])
    if role == "member":
        await grant_role(fleet, "bob", "member", groups["worker"])
    if role == "admin of boss":
        await grant_role(fleet, "bob", "admin", groups["boss"])
    if role == "admin and a stranger":
        await post_message(fleet, "me too", "ada", "office")
        fleet.bells.wakes.clear()
    if role == "nobody":  # a producer of the operator's own that names no sender
        await script_calls(fleet, ("steer_session", {"act": "reset", "sessionId": old}), group="boss")
        accepted = await fleet.send("do it", agent_group="boss")
        await fleet.settle_down()
        told = await fetch_answer(fleet, accepted.message_id)
    else:
        await script_calls(fleet, ("steer_session", {"act": "reset", "sessionId": old}), group="boss")
        accepted = await post_message(fleet, "do it", "bob", "office")
        assert await fleet.wake(accepted.session_id) == "completed"
        told = await fetch_answer(fleet, accepted.message_id)
    assert told.startswith("only admins of worker may have its sessions reset or replayed")
    assert [row.status for row in await fetch_sessions(fleet, "worker")] == ["active"]
    assert not [row for row in await fleet.rows(Audit) if row.act.startswith("session.")]


@pytest.mark.parametrize("who", ["global admin", "owner"])
async def test_owners_and_global_admins_may(fleet: Fleet, who: str) -> None:
    old = await hold_conversation(fleet, "one")
    await grant_role(fleet, "zoe", "owner" if who == "owner" else "admin")
    assert "has begun anew" in await boss(fleet, "zoe", act="reset", sessionId=old)


async def test_in_a_scheduled_run_nobody_is_there_to_ask(fleet: Fleet) -> None:
    old = await hold_conversation(fleet, "one")
    await ask_boss(fleet, YEARLY)
    await script_calls(fleet, ("steer_session", {"act": "reset", "sessionId": old}), group="boss")
    [task] = await fetch_tasks(fleet)
    await fleet.execute(update(MessageIn).where(MessageIn.id == task.id).values(process_after=now(-60)))
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]
    assert "a scheduled run does not" in await fetch_answer(fleet, task.id)
    assert len(await fetch_sessions(fleet, "worker")) == 1


async def ask_boss(fleet: Fleet, *calls: Any) -> None:
    await script_calls(fleet, *calls, group="boss")
    await post_message(fleet, "go", "ada", "office")
    await fleet.settle_down()


async def test_only_agents_that_the_policy_names(fleet: Fleet) -> None:
    old = await hold_conversation(fleet, "one")
    other = await fleet.add_group("other")
    await grant_role(fleet, "ada", "admin", other)
    theirs = (await fleet.send("hi", agent_group="other")).session_id
    await fleet.settle_down()
    for handle in (theirs, "00000000"):
        assert await boss(fleet, act="reset", sessionId=handle) == (
            f"there is no session {handle!r} of an agent that you steer; list_sessions shows those you may read"
        )
    assert await boss(fleet, act="again", agentGroup="other") == "you steer no agent 'other'"
    assert "name a sessionId or an agentGroup" in await boss(fleet, act="reset")
    assert "there is no provider 'x'" in await boss(fleet, act="again", sessionId=old, provider="x")
    await fleet.execute(update(AgentGroup).where(AgentGroup.folder == "boss").values(config={}))
    assert "there is no tool 'steer_session' here" in await boss(fleet, act="reset", sessionId=old)
    assert len(await fetch_sessions(fleet, "worker")) == 1


async def test_stages_of_workflows_are_the_workflows_own(fleet: Fleet) -> None:
    old = await hold_conversation(fleet, "one")
    await fleet.execute(update(Session).where(Session.id == old).values(workflow_id=new_id()))
    assert "is part of a workflow: it is not reset" in await boss(fleet, act="reset", sessionId=old)
    assert "which says what is done there" in await boss(fleet, act="again", sessionId=old)
    assert "has no conversation with people that is open" in await boss(fleet, act="again", agentGroup="worker")
    assert [row.status for row in await fetch_sessions(fleet, "worker")] == ["active"]


async def test_its_own_session_is_not_steered(fleet: Fleet) -> None:
    everything = {"policy": {"steers": ["*"]}}
    await fleet.execute(update(AgentGroup).where(AgentGroup.folder == "boss").values(config=everything))
    groups = {row.folder: row.id for row in await fleet.rows(AgentGroup)}
    await grant_role(fleet, "ada", "admin", groups["boss"])
    own = (await post_message(fleet, "hello", "ada", "office")).session_id
    await fleet.settle_down()
    assert await boss(fleet, act="reset", sessionId=own) == (
        "that is this session: reset_session begins it anew, and you are in the middle of it"
    )


async def test_within_a_replay_nobody_is_steered(fleet: Fleet) -> None:
    old = await hold_conversation(fleet, "one")
    await boss(fleet, act="reset", sessionId=old)
    await fleet.settle_down()
    [own] = await fetch_sessions(fleet, "boss")
    replayed = await make_replay(fleet.runtime, "cli", own.id)
    await script_calls(fleet, ("steer_session", {"act": "again", "sessionId": old}), group="boss")
    await fleet.settle_down()
    assert [text for _, text in await fetch_answers(fleet, replayed.session_id)] == [IN_A_REPLAY]
    assert len(await fetch_sessions(fleet, "worker")) == 2


# --- once ---


async def test_done_twice_by_one_step_it_is_done_once(fleet: Fleet) -> None:
    """The answer of a commit is lost, and the transaction is run again from its start."""
    await hold_conversation(fleet, "one")
    await post_message(fleet, "do it", "ada", "office")
    [session] = await fetch_sessions(fleet, "boss")
    runtime = fleet.runtime
    turn = await fleet.db.transact(
        lambda conn: open_next(conn, runtime.registry, runtime.settings, session.id, "x", None)
    )
    assert isinstance(turn, OpenedTurn)
    caller = Caller(turn, Policy(), runtime.registry, "scripted")
    await hold_conversation(fleet, "two", thread="t2")
    for act, every in itertools.product(("replay", "again", "reset"), (False, True)):
        latest = [
            row.id for row in await fetch_sessions(fleet, "worker") if row.status == "active" and row.thread_id == "t1"
        ][-1]
        named = {"agent_group": "worker"} if every else {"session_id": latest}
        done = functools.partial(_do, caller, SteerSession(act, **named), new_id())  # type: ignore[arg-type]
        before = len(await fetch_sessions(fleet, "worker"))
        told = [await fleet.db.transact(done) for _ in range(2)]
        assert (told[1].text, told[1].wakes) == (told[0].text, [])
        assert len(await fetch_sessions(fleet, "worker")) == before + (2 if every else 1)
        fleet.bells.wakes += told[0].wakes
        await fleet.settle_down()
        for thread in ("t1", "t2"):
            await hold_conversation(fleet, "more", thread=thread)
    assert len([row for row in await fleet.rows(Audit) if row.act.startswith("session.")]) == 9


async def _do(caller: Caller, action: SteerSession, step_id: str, conn: AsyncConnection) -> Performed:
    """As the tool box does it."""
    facts = {"turn_id": caller.turn.id, "number": await count_steps(conn, caller.turn.id) + 1, "key": step_id}
    await insert_ignoring(conn, Step, id=step_id, kind="tool", name="steer_session", input={}, **facts)
    performed = await steer(conn, caller, action, step_id, 0)
    await finish_step(conn, step_id, ok=True, output={"text": performed.text})
    return performed


# --- the operator's door ---


async def test_an_operator_has_it_answered_again_by_chosen_turns_and_provider(fleet: Fleet) -> None:
    old = await hold_conversation(fleet, "one", "two", "three")
    made = await again(fleet.runtime, "cli", old, turns=[2, 3], provider="scripted", model="other")
    assert made.turns == (2, 3)
    assert fleet.bells.wakes == [(made.session_id, "scripted")]
    await fleet.settle_down()
    assert [text for _, text in await fetch_answers(fleet, made.session_id)] == [
        f"{ANSWER_PREFIXES[0]}: {n}" for n in ("two", "three")
    ]
    assert {turn.model for turn in await fleet.turns() if turn.session_id == made.session_id} == {"other"}
    for words, wish in (("there is no turn 9", {"turns": [9]}), ("there is no provider 'x'", {"provider": "x"})):
        with pytest.raises(RefusedError, match=words):
            await again(fleet.runtime, "cli", old, **wish)
    assert len(await fetch_sessions(fleet, "worker")) == 2, "what is refused has changed nothing"
    with pytest.raises(RefusedError, match="there is no session 'x'"):
        await again(fleet.runtime, "cli", "x")
    twice = functools.partial(_again, fleet, old, new_id())  # the answer of the first commit was lost
    assert [len((await fleet.db.transact(twice)).done.wakes) for _ in range(2)] == [1, 0]
    assert len(await fetch_sessions(fleet, "worker")) == 3


async def _again(fleet: Fleet, session_id: str, new: str, conn: AsyncConnection) -> Again:
    return await put_again(conn, fleet.runtime.registry, "cli", session_id, new, Wish(), "scripted")


async def test_tasks_are_not_answered_again_but_go_on(fleet: Fleet) -> None:
    await script_calls(fleet, YEARLY, group="worker")
    old = await hold_conversation(fleet, "one")
    await script_calls(fleet, group="worker", answer="again: {texts}")
    [task] = await fetch_tasks(fleet)
    await fleet.execute(update(MessageIn).where(MessageIn.id == task.id).values(process_after=now(-60)))
    await fleet.sweep()
    await fleet.settle_down()
    made = await again(fleet.runtime, "cli", old)
    await fleet.settle_down()
    assert [text for _, text in await fetch_answers(fleet, made.session_id)] == ["again: one"]
    waiting = [row for row in await fetch_tasks(fleet) if row.status == "pending"]
    assert [row.session_id for row in waiting] == [made.session_id]
