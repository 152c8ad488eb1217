"""What tools do outside of their turn: a file is sent, another agent asked and its answer passed on, a task scheduled,
a risky tool run once somebody has approved it, and the conversation begun anew while messages wait.

Doors, turns, deliveries and sweeps, and the people it talks to, are all in the one process that is killed. The next one
finds what this one left: rows, files, and what the platform was sent."""

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from adapters.channel_port import Channel
from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool, ToolContext
from adapters.tools.messaging import SEND_FILE, SEND_MESSAGE, SEND_TO_AGENT
from adapters.tools.sessions import RESET_SESSION
from adapters.tools.tasks import SCHEDULE_TASK
from adapters.workspace import Workspace
from models import AgentGroup, Approval
from models.base import new_id
from tests.support.boundaries import plan_tools as plan
from tests.support.boundaries.channel import LastingChannel
from tests.support.boundaries.ledger_tools import ToolEvidence
from tests.support.boundaries.marks import Case, Marks
from tests.support.boundaries.scenario import CHANNEL, OWNER, Scenario, add_owner, run_to_end
from tests.support.fleet import Fleet
from workers.consent import approvals
from workers.house import ring
from workers.outbox import Outbox, tidy


class Target(BaseModel):
    what: str


def launch(effects: Path) -> Tool[Target]:
    async def handler(arguments: Target, context: ToolContext) -> str:
        with effects.open("a") as file:
            file.write(f"{arguments.what}\n")
        return f"launched {arguments.what}"

    return Tool("launch", "Launches.", Target, handler, risky=True)


class Tools(Scenario[ToolEvidence]):
    name = "tools"
    evidence = ToolEvidence

    async def prepare(self, fleet: Fleet, case: Case) -> None:
        workspace = Path(case.folder) / "workspaces" / plan.AGENT
        workspace.mkdir()
        (workspace / plan.FILE).write_text(plan.REPORT)
        expert = _agent(plan.EXPERT, plan.ADVICE)
        await fleet.insert(AgentGroup, _agent(plan.AGENT, plan.SCRIPT, agents=[plan.EXPERT]), expert)
        await add_owner(fleet)

    async def gather(self, found: ToolEvidence, fleet: Fleet, case: Case) -> None:
        outbox = Outbox(Path(case.folder) / "workspaces").root
        found.left = [left.name for left in outbox.iterdir()] if outbox.exists() else []

    def registry(self, case: Case, mark: Marks) -> Registry:
        launches = launch(case.effects)
        tools: tuple[Tool[Any], ...] = (SEND_FILE, SEND_TO_AGENT, SCHEDULE_TASK, launches, SEND_MESSAGE, RESET_SESSION)
        return Registry(
            channels=Drivers[Channel]("channel", {CHANNEL: LastingChannel.of(case, mark)}),
            tools=Drivers[Tool[Any]]("tool", {tool.name: tool for tool in tools}),
        )

    def hook(self, mark: Marks) -> None:
        """Copies may be torn apart in the middle."""
        copy_out = Workspace.copy_out

        def copy(self: Workspace, path: str, target: int | Path, limit: int) -> int:
            if isinstance(target, Path) and not target.exists():
                target.write_text("half a")
                mark(plan.HALF_COPIED)
                target.unlink()
            return copy_out(self, path, target, limit)

        Workspace.copy_out = copy  # type: ignore[method-assign]

    async def run(self, fleet: Fleet, case: Case) -> None:
        await _say(fleet, plan.GO)
        await run_to_end(fleet, Fleet.settle_down, _decide)
        outbox = fleet.runtime.outbox
        for left in outbox.root.iterdir() if outbox.root.exists() else ():
            os.utime(left, (0, 0))  # a day later
        await tidy(fleet.db, outbox)


def _agent(folder: str, script: str, **policy: Any) -> dict[str, Any]:
    config = {"provider_options": {"script": script}, "policy": policy}
    return {"id": new_id(), "name": folder, "folder": folder, "provider": "scripted", "config": config}


async def _say(fleet: Fleet, text: str) -> None:
    """Said again after every crash, under the same key, as a platform repeats what nobody acknowledged."""
    chat = {"channel_type": CHANNEL, "platform_id": plan.ROOM, "sender_id": "ann"}
    await fleet.send(text, agent_group=plan.AGENT, message_id=text, **chat)


async def _decide(fleet: Fleet) -> bool:
    """Somebody says one more thing, then an approver says yes."""
    waiting = [row.id for row in await fleet.rows(Approval) if row.status == "pending"]
    for approval_id in waiting:
        await _say(fleet, plan.WAITS)
        ring(fleet.runtime, await approvals.decide(fleet.db, approval_id, approve=True, user_id=f"{CHANNEL}:{OWNER}"))
    return bool(waiting)


SCENARIO = Tools
