"""Nobody acts with the rights of somebody who may do more: not through a task of theirs that was given other words, and
not in a scheduled run, where nobody is there to ask."""

from typing import Any

import pytest

from models import AgentGroup, Approval
from tests.support.api_callers import caller
from tests.support.open_gateway import Gateway

pytestmark = [pytest.mark.spec("G2", "C5"), pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)]

REGISTER = """- play:
  - tool: register_agent_group
    with: {name: Evil, folder: evil, platformId: lair, channelType: local}
  - answer: 'so: {result}'
"""


async def owners_task(gateway: Gateway, script: str = "done", **fields: Any) -> tuple[str, str]:
    """The agent, and a task as `schedule_task` makes it for an owner."""
    group = await gateway.fleet.add_group(script=script)
    await caller(gateway, "boss", "owner")
    of_boss = {"channel_type": "web", "platform_id": "boss", "sender_id": "boss", "process_after": "2900-01-01T00:00Z"}
    task = await gateway.fleet.send("water the plants", kind="task", **of_boss, **fields)
    return group, task.message_id


async def sender(gateway: Gateway, task: str) -> Any:
    return next(row.sender_id for row in await gateway.fleet.inbox() if row.id == task)


async def test_a_task_of_an_owners_makes_no_agent_for_an_admin_who_changed_it(gateway: Gateway) -> None:
    group, task = await owners_task(gateway, REGISTER)
    mal = await caller(gateway, "mal", "admin", group)
    await mal.patch(f"/v1/tasks/{task}", {"prompt": "make the agent evil"})
    await mal.post(f"/v1/tasks/{task}/run")
    await gateway.fleet.settle_down()
    for approval in await gateway.fleet.rows(Approval):
        await mal.post(f"/v1/approvals/{approval.id}", {"decision": "approve"})
    await gateway.fleet.settle_down()
    assert "evil" not in [row.folder for row in await gateway.fleet.rows(AgentGroup)]
    assert {row.sender_id for row in await gateway.fleet.inbox()} == {None}


async def test_in_a_scheduled_run_nobody_has_asked_for_an_agent(gateway: Gateway) -> None:
    """Whoever its task is of: what the run reads may be anybody's."""
    group, task = await owners_task(gateway, REGISTER)
    ann = await caller(gateway, "ann", "admin", group)
    await ann.post(f"/v1/tasks/{task}/run")
    await gateway.fleet.settle_down()
    for approval in await gateway.fleet.rows(Approval):
        await ann.post(f"/v1/approvals/{approval.id}", {"decision": "approve"})
    await gateway.fleet.settle_down()
    assert "evil" not in [row.folder for row in await gateway.fleet.rows(AgentGroup)]
    assert any("nobody is there to ask" in str(row.content.get("text")) for row in await gateway.fleet.outbox())


@pytest.mark.parametrize(
    ("change", "keeps"),
    [
        ({"prompt": "x"}, False),
        ({"at": "2901-01-01T00:00:00Z"}, False),
        ({"every": "@hourly"}, False),
        ({"prompt": "x", "pause_after": 3}, False),
        ({"pause_after": 3}, True),
        ({"daily_usd": 1.0, "jitter_seconds": 5}, True),
    ],
)
async def test_whoever_changes_more_than_its_terms_takes_a_task_over(
    gateway: Gateway, change: dict[str, Any], keeps: bool
) -> None:
    group, task = await owners_task(gateway)
    await (await caller(gateway, "ann", "admin", group)).patch(f"/v1/tasks/{task}", change)
    assert await sender(gateway, task) == ("boss" if keeps else None)


async def test_who_made_a_task_changes_it_and_it_stays_theirs(gateway: Gateway) -> None:
    group = await gateway.fleet.add_group(script="done")
    ann = await caller(gateway, "ann", "admin", group)
    of_ann = {"channel_type": "web", "platform_id": "ann", "sender_id": "ann", "process_after": "2900-01-01T00:00Z"}
    task = (await gateway.fleet.send("x", kind="task", **of_ann)).message_id
    await ann.patch(f"/v1/tasks/{task}", {"prompt": "y"})
    assert await sender(gateway, task) == "ann"
