"""However much one agent asks, what another waits for is shown to those who may decide about it."""

import pytest

from models import AgentGroupMember
from tests.support.api_callers import caller
from tests.support.cards import SCRIPT as LAUNCH
from tests.support.open_gateway import Gateway
from workers.consent import waiting

pytestmark = pytest.mark.spec("G2", "C5")

ASK = """- play:
  - tool: ask_user_question
    with: {title: Paint, question: 'Which colour?', options: [red, blue]}
  - answer: 'so: {result}'
"""


async def crowd(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, script: str) -> str:
    """One agent asks for as many things as are listed, and then another, whose id this is, for one."""
    monkeypatch.setattr(waiting, "LIMIT", 2)
    await gateway.fleet.add_group("noisy", script=script)
    quiet = await gateway.fleet.add_group("quiet", script=script)
    for agent, place in (("noisy", "one"), ("noisy", "two"), ("quiet", "three")):
        await gateway.fleet.send("go", agent_group=agent, platform_id=place)
        assert await gateway.fleet.answer_wakes() == ["parked"]
    return quiet


async def test_a_noisy_agent_hides_no_approvals(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = await crowd(gateway, monkeypatch, LAUNCH)
    ann = await caller(gateway, "ann", "admin", quiet)
    assert [row["agent"] for row in (await ann.get("/v1/approvals"))["items"]] == ["quiet"]
    boss = await caller(gateway, "boss", "owner")
    assert [row["agent"] for row in (await boss.get("/v1/approvals"))["items"]] == ["noisy", "noisy"]
    mia = await caller(gateway, "mia")
    await gateway.fleet.insert(AgentGroupMember, {"user_id": "web:mia", "agent_group_id": quiet})
    assert (await mia.get("/v1/approvals"))["items"] == []


async def test_a_noisy_agent_hides_no_questions(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = await crowd(gateway, monkeypatch, ASK)
    ann = await caller(gateway, "ann", "admin", quiet)
    assert [row["agent"] for row in (await ann.get("/v1/questions"))["items"]] == ["quiet"]
    assert (await (await caller(gateway, "sam")).get("/v1/questions"))["items"] == []
