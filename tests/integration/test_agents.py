"""Agents write to agents: what is asked arrives once, the answer finds its way back, and no chain goes on for ever."""

from typing import Any

import pytest
from sqlalchemy import update

from models import MessageIn, MessageOut
from models.base import now
from tests.support.fleet import Fleet, MakeFleet
from workers import agents
from workers.actions import messages
from workers.delivery import sending as delivery
from workers.refusals import RefusedError


def script(*scenes: tuple[str | None, str]) -> str:
    lines = []
    for when, acts in scenes:
        head = f"- when: '{when}'\n  play: {acts}" if when else f"- play: {acts}"
        lines.append(head)
    return "\n".join(lines)


def config(text: str, **policy: Any) -> dict[str, Any]:
    return {"provider_options": {"script": text}, "policy": policy}


ASKS = script(
    ("^ask", "[{tool: send_to_agent, with: {agentGroupId: expert, text: 'how much?'}}, {answer: 'I asked'}]"),
    (None, "[{answer: 'they say {text}'}]"),
)


async def two(fleet: Fleet, expert: str = "It is 42") -> None:
    await fleet.add_group("demo", config=config(ASKS, agents=["expert"]))
    await fleet.add_group("expert", config=config(expert))


@pytest.mark.spec("M14", "T2")
async def test_the_answer_comes_back_to_who_asked_and_goes_on_to_their_people(fleet: Fleet) -> None:
    await two(fleet)
    await fleet.send("ask them", platform_id="room", sender_id="ann")
    await fleet.settle_down()
    said = [(row.channel_type, row.platform_id, row.content["text"]) for row in await fleet.outbox()]
    local = [text for channel, place, text in said if (channel, place) == ("local", "room")]
    assert local == ["I asked", "they say It is 42"]
    assert len([row for row in await fleet.outbox() if row.channel_type == "agent"]) == 2
    assert all(row.status == "delivered" for row in await fleet.outbox())
    asked = next(row for row in await fleet.inbox() if row.content.get("text") == "how much?")
    assert asked.content["sender"] == "agent demo"
    assert asked.sender_id is None  # an agent's word is nobody's: it makes no admin


@pytest.mark.spec("M14")
async def test_the_conversation_of_two_agents_is_one_session(fleet: Fleet) -> None:
    await two(fleet)
    for _ in range(2):
        await fleet.send("ask them", platform_id="room")
        await fleet.settle_down()
    assert len(await fleet.sessions()) == 2
    await fleet.send("ask them", platform_id="another room")
    await fleet.settle_down()
    assert len(await fleet.sessions()) == 4  # what is said in one room is not heard in the other


@pytest.mark.spec("M14")
@pytest.mark.parametrize("at", ["before", "after"])
async def test_handed_over_twice_it_arrives_once(
    fleet: Fleet, make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A sender dies before or after the transaction that hands a message over; another settles it."""
    await two(fleet)
    await fleet.send("ask them", platform_id="room")
    await fleet.answer_wakes()
    row = next(row for row in await fleet.outbox() if row.channel_type == "agent")
    claimed = await delivery._claim(fleet.runtime, row.id)
    assert claimed is not None
    if at == "after":
        await fleet.db.transact(lambda conn: agents.hand_to_agent(conn, claimed[0], 5.0))
    await fleet.execute(update(MessageOut).where(MessageOut.id == row.id).values(claim_expires_at=now(-1)))
    other = await make_fleet(delivery_seconds=0.001)
    while (await _status(other, row.id)) != "delivered":
        await other.sweep()
        await other.settle_down()
    await delivery._send_claimed(fleet.runtime, claimed[0], True, 0.0)  # the first one wakes up after all
    arrived = [row for row in await fleet.rows(MessageIn) if row.content.get("text") == "how much?"]
    assert len(arrived) == 1


async def _status(fleet: Fleet, message_id: str) -> str:
    return str({row.id: row.status for row in await fleet.outbox()}[message_id])


@pytest.mark.spec("M14")
@pytest.mark.parametrize(
    ("allowed", "target", "complaint"),
    [
        (["other"], "expert", "you may not write to 'expert'; you may write to: other"),
        (["*"], "nobody", "you may not write to 'nobody'"),
        (["*"], "demo", "that is yourself"),
    ],
)
async def test_permission(fleet: Fleet, allowed: list[str], target: str, complaint: str) -> None:
    act = f"{{tool: send_to_agent, with: {{agentGroupId: {target}, text: hello}}}}"
    await fleet.add_group("demo", config=config(script((None, f"[{act}, {{answer: '{{result}}'}}]")), agents=allowed))
    await fleet.add_group("expert")
    await fleet.send("go")
    await fleet.settle_down()
    [answer] = await fleet.outbox()
    assert complaint in answer.content["text"]


@pytest.mark.spec("M14")
async def test_two_that_ask_each_other_come_to_an_end(fleet: Fleet) -> None:
    def passes_on_to(other: str) -> str:
        act = f"{{tool: send_to_agent, with: {{agentGroupId: {other}, text: over to you}}}}"
        return script((None, f"[{act}, {{answer: 'passed on: {{result}}'}}]"))

    await fleet.add_group("demo", config=config(passes_on_to("expert"), agents=["*"]))
    await fleet.add_group("expert", config=config(passes_on_to("demo"), agents=["*"]))
    await fleet.send("go")
    await fleet.settle_down()
    asked = [row for row in await fleet.outbox() if row.content.get("text") == "over to you"]
    assert max(row.content["agent"]["hops"] for row in asked) == messages.MAX_HOPS
    refused = [row.content["text"] for row in await fleet.outbox() if "not passed on again" in row.content["text"]]
    assert refused
    assert {turn.status for turn in await fleet.turns()} == {"completed"}


@pytest.mark.spec("M14")
async def test_a_session_of_somebody_else_cannot_be_named(fleet: Fleet) -> None:
    await fleet.add_group("bystander")
    theirs = await fleet.send("private", agent_group="bystander", platform_id="diary")
    act = f"{{tool: send_to_agent, with: {{agentGroupId: expert, sessionId: {theirs.session_id}, text: psst}}}}"
    await fleet.add_group("demo", config=config(script((None, f"[{act}, {{answer: '{{result}}'}}]")), agents=["*"]))
    await fleet.add_group("expert")
    await fleet.send("go")
    await fleet.settle_down()
    assert "expert has no session" in (await fleet.outbox())[-1].content["text"]
    assert not [row for row in await fleet.inbox() if row.content.get("text") == "psst"]


@pytest.mark.spec("M14")
async def test_into_a_named_session_its_answer_goes_to_its_own_people(fleet: Fleet) -> None:
    await fleet.add_group("expert", config=config("noted: {texts}"))
    theirs = await fleet.send("hello", agent_group="expert", platform_id="their room")
    await fleet.settle_down()
    act = f"{{tool: send_to_agent, with: {{agentGroupId: expert, sessionId: {theirs.session_id}, text: news}}}}"
    await fleet.add_group("demo", config=config(script((None, f"[{act}, {{answer: told}}]")), agents=["expert"]))
    await fleet.send("go", platform_id="my room")
    await fleet.settle_down()
    said = [(row.platform_id, row.content["text"]) for row in await fleet.outbox() if row.channel_type == "local"]
    assert ("their room", "noted: news") in said
    assert ("my room", "told") in said
    assert len(await fleet.sessions()) == 2


@pytest.mark.spec("M14", "M9")
async def test_an_expert_that_cannot_answer_says_so_to_who_asked(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(max_tries=1)
    await two(fleet, script((None, "[{fail: {class: auth, message: no key}}]")))
    await fleet.send("ask them", platform_id="room")
    await fleet.settle_down()
    heard = [row.content["text"] for row in await fleet.inbox() if row.content.get("agent")]
    assert any("could not answer" in text for text in heard)


async def test_producers_cannot_pose_as_agents(fleet: Fleet) -> None:
    await fleet.add_group()
    with pytest.raises(RefusedError, match="there is no channel 'agent'"):
        await fleet.send("hello", channel_type="agent", platform_id="demo")
    await fleet.send(None, content={"text": "hi", "agent": {"from": "boss", "hops": "many"}})  # type: ignore[arg-type]
    await fleet.settle_down()
    assert [turn.status for turn in await fleet.turns()] == ["completed"]


@pytest.mark.spec("M14", "T3")
async def test_a_task_in_between_does_not_begin_the_count_anew(fleet: Fleet) -> None:
    """Two agents that set each other to work by tasks would otherwise never come to an end."""
    act = "{tool: schedule_task, with: {prompt: later, processAfter: '2099-01-01T00:00:00Z'}}"
    await fleet.add_group("demo", config=config(ASKS, agents=["expert"]))
    await fleet.add_group("expert", config=config(script((None, f"[{act}, {{answer: '{{result}}'}}]")), agents=["*"]))
    await fleet.send("ask them")
    await fleet.settle_down()
    [task] = [row for row in await fleet.inbox() if row.kind == "task"]
    assert agents.hops_of(task) == 1
