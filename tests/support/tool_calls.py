"""An agent that makes the tool calls a test gives it, and what they came to."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from sqlalchemy import update

from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool
from adapters.tools import groups, messaging, sessions, tasks
from adapters.tools.clock import CLOCK
from models import AgentGroup, MessageIn
from models.base import now
from tests.support.fleet import Fleet, MakeFleet

TOOLS: list[Tool[Any]] = [
    CLOCK,
    messaging.SEND_MESSAGE,
    messaging.SEND_TO_AGENT,
    tasks.SCHEDULE_TASK,
    tasks.LIST_TASKS,
    tasks.CANCEL_TASK,
    tasks.PAUSE_TASK,
    tasks.RESUME_TASK,
    tasks.UPDATE_TASK,
    groups.REGISTER_AGENT_GROUP,
    sessions.RESET_SESSION,
    sessions.LIST_SESSIONS,
    sessions.READ_SESSION,
    sessions.STEER_SESSION,
]
Call = tuple[str, dict[str, Any]]
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).replace(minute=0, second=0, microsecond=0)
WATER: Call = ("schedule_task", {"prompt": "water the plants", "processAfter": TOMORROW.isoformat()})
# So seldom that no test runs over the moment it comes due.
YEARLY: Call = ("schedule_task", WATER[1] | {"recurrence": "@yearly", "timezone": "Europe/Vienna"})


def tool_registry() -> Registry:
    return Registry(tools=Drivers("tool", made={tool.name: tool for tool in TOOLS}))


@pytest.fixture
async def fleet(make_fleet: MakeFleet) -> Fleet:
    fleet = await make_fleet(tool_registry())
    await fleet.add_group()
    return fleet


async def script_calls(fleet: Fleet, *calls: Call, group: str = "demo", answer: str = "") -> None:
    """What the agent does from now on, whatever it is asked."""
    acts: list[dict[str, Any]] = [{"tool": name, "with": arguments} for name, arguments in calls]
    script = yaml.safe_dump([{"play": [*acts, {"answer": answer or ("{result}" if calls else "done")}]}])
    [row] = [row for row in await fleet.rows(AgentGroup) if row.folder == group]
    config = dict(row.config or {}) | {"provider_options": {"script": script}}
    await fleet.execute(update(AgentGroup).where(AgentGroup.folder == group).values(config=config))


async def make_calls(fleet: Fleet, *calls: Call, text: str = "go", **fields: Any) -> str:
    """Somebody says something, and the agent makes these calls. Returns what the last of them came to; the turn has
    completed in any case."""
    await script_calls(fleet, *calls, group=fields.get("agent_group", "demo"))
    accepted = await fleet.send(text, **fields)
    assert await fleet.answer_wakes() == ["completed"]
    return await fetch_answer(fleet, accepted.message_id)


async def fetch_answer(fleet: Fleet, message_id: str) -> str:
    [answer] = [row for row in await fleet.outbox() if row.in_reply_to == message_id and row.kind == "chat"]
    return str(answer.content["text"])


async def fetch_tasks(fleet: Fleet) -> list[Any]:
    return [row for row in await fleet.rows(MessageIn, MessageIn.process_after, MessageIn.id) if row.kind == "task"]


async def run_due_task(fleet: Fleet, *calls: Call) -> str:
    """The one task that waits comes due, and the agent makes these calls in its run."""
    [task] = [row for row in await fetch_tasks(fleet) if row.status == "pending"]
    await script_calls(fleet, *calls)
    await fleet.execute(update(MessageIn).where(MessageIn.id == task.id).values(process_after=now(-60)))
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]
    return await fetch_answer(fleet, task.id)


def read_task_id(said: str) -> str:
    """From `scheduled as task X: ...`."""
    return said.split("task ")[1][:8]
