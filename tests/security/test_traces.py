"""What is done in a roundabout way is in the audit log as well: a task that came in as a message, a conversation that
was cleared by a command, and words that were put into somebody else's mouth."""

from typing import Any

import pytest

from models import AgentGroupMember
from models.audit import Audit
from tests.support.api_callers import Caller, caller
from tests.support.open_gateway import Gateway, wire

pytestmark = [pytest.mark.spec("G2"), pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)]


@pytest.fixture
async def group(gateway: Gateway) -> str:
    group = await gateway.fleet.add_group(script="hi")
    for name in ("crm", "ada"):
        await wire(gateway.fleet, group, "web", name)
    await caller(gateway, "ada")
    await gateway.fleet.insert(AgentGroupMember, {"user_id": "web:ada", "agent_group_id": group})
    return group


@pytest.fixture
async def crm(gateway: Gateway, group: str) -> Caller:
    return await caller(gateway, "crm", "admin", group)


async def lines(gateway: Gateway, act: str) -> list[Any]:
    return [row for row in await gateway.fleet.rows(Audit, Audit.id) if row.act == act]


async def test_a_task_that_came_in_as_a_message_is_noted_once(gateway: Gateway, group: str, crm: Caller) -> None:
    body = {"agent_group": "demo", "kind": "task", "text": "p", "recurrence": "@hourly", "message_id": "t"}
    task, again = [await crm.post("/v1/messages", body, expected=202) for _ in range(2)]
    [line] = await lines(gateway, "task.add")
    assert (line.who, line.target, line.agent_group_id) == ("web:crm", task["id"], group)
    assert again["duplicate"]


async def test_a_conversation_that_was_cleared_is_noted(gateway: Gateway, group: str, crm: Caller) -> None:
    said = await crm.post("/web/crm/messages", {"text": "hello"}, expected=202)
    await gateway.fleet.settle_down()
    cleared = await crm.post("/web/crm/messages", {"text": "/clear"}, expected=202)
    assert cleared["handled"] == "command"
    [line] = await lines(gateway, "session.reset")
    assert (line.who, line.target, line.agent_group_id) == ("web:crm", said["session"], group)


async def test_who_speaks_for_somebody_else_is_noted(gateway: Gateway, group: str, crm: Caller) -> None:
    body = {"agent_group": "demo", "channel_type": "web", "platform_id": "ada", "sender_id": "ada"}
    sent = await crm.post("/v1/messages", body | {"text": "I am ada"}, expected=202)
    [line] = await lines(gateway, "message.send")
    assert (line.who, line.target, line.agent_group_id) == ("web:crm", sent["id"], group)
    assert line.detail == {"sender": "web:ada"}


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"sender_name": "Ada"},
        {"channel_type": "web", "platform_id": "crm", "sender_id": "crm"},
        {"sender_id": "customer-7"},  # in the house, and nobody's name to the agent
    ],
)
async def test_what_is_said_in_ones_own_name_is_not(gateway: Gateway, crm: Caller, said: dict[str, str]) -> None:
    await crm.post("/v1/messages", {"agent_group": "demo", "text": "x"} | said, expected=202)
    assert await lines(gateway, "message.send") == []
