"""A fleet in one process that kills itself at a named boundary of the story: its doors, turns, deliveries and sweeps,
and the people it talks to. The next process finds what this one left: the rows, and what the platform was sent.

The forking and the names of commits are those of `boundary_worker`; only what a fork does is another."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy import update

from adapters.actions import Action
from adapters.channel_port import Channel, Destination, OutboundMessage, Receipt
from adapters.channels.fake import FakeChannel
from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool, ToolContext
from adapters.tools.messaging import SEND_FILE, SEND_MESSAGE, SEND_TO_AGENT
from adapters.tools.sessions import RESET_SESSION
from adapters.tools.tasks import SCHEDULE_TASK
from adapters.workspace import Workspace
from models import Approval, MessageOut, Session, now
from tests.support import boundary_worker
from tests.support.boundary_marks import AFTER_EFFECT, BEFORE_EFFECT, Errand
from tests.support.boundary_worker import Trace
from tests.support.fleet import Fleet, fleet_settings
from tests.support.tool_boundary_marks import AFTER_DELIVERY, BEFORE_DELIVERY, HALF_COPIED, OVER, SHOWN
from tests.support.tool_boundary_story import AGENT, CHANNEL, GO, OWNER, ROOM, WAITS
from workers.consent import approvals
from workers.outbox import tidy

# Many times what the story needs. If it does not come to rest the ledger says what is left.
MOST_ROUNDS = 20


class LastingChannel(FakeChannel):
    """A platform that outlives the workers: what it was sent, by key, is in a file. `asked`: it can also say what that
    was; else whoever is in doubt has to send again."""

    def __init__(self, path: Path, trace: Trace, *, asked: bool) -> None:
        super().__init__()
        self._path = path
        self._trace = trace
        self._asked = asked

    async def deliver(self, message: OutboundMessage) -> Receipt:
        what = str(message.content["text"])[:12]
        self._trace(BEFORE_DELIVERY + what)
        shown = {
            "key": message.idempotency_key,
            "place": message.destination.platform_id,
            "text": message.content["text"],
            "files": {file.name: file.path.read_text() for file in message.files},
        }
        if message.idempotency_key not in self._keys():
            with self._path.open("a") as file:
                file.write(json.dumps(shown) + "\n")
        self._trace(AFTER_DELIVERY + what)
        return Receipt(message.idempotency_key)

    async def edit(self, *_: Any) -> None:
        """A card that is over: nothing of it is counted."""

    async def find_receipt(self, destination: Destination, idempotency_key: str) -> Receipt | None:
        return Receipt(idempotency_key) if self._asked and idempotency_key in self._keys() else None

    def _keys(self) -> set[str]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return {json.loads(line)["key"] for line in lines}


class Target(BaseModel):
    what: str


def launch(effects: Path) -> Tool[Target]:
    async def handler(arguments: Target, context: ToolContext) -> str:
        with effects.open("a") as file:
            file.write(f"{arguments.what}\n")
        return f"launched {arguments.what}"

    return Tool("launch", "Launches.", Target, handler, risky=True)


def traced(tool: Tool[Any], trace: Trace) -> Tool[Any]:
    async def handler(arguments: Any, context: ToolContext) -> str | Action:
        trace(BEFORE_EFFECT + tool.name)
        said = await tool.handler(arguments, context)
        trace(AFTER_EFFECT + tool.name)
        return said

    return replace(tool, handler=handler)


def half_copied(trace: Trace) -> Callable[..., int]:
    """A copy that may be torn apart in the middle."""
    copy_out = Workspace.copy_out

    def copy(self: Workspace, path: str, target: int | Path, limit: int) -> int:
        if isinstance(target, Path) and not target.exists():
            target.write_text("half a")
            trace(HALF_COPIED)
            target.unlink()
        return copy_out(self, path, target, limit)

    return copy


async def pass_time(fleet: Fleet) -> None:
    """An hour: leases and claims run out, rings count as lost."""
    async with fleet.db._connection(read_only=False) as conn:  # the clock's doing, and no boundary of ours
        held = Session.lease_expires_at.is_not(None)
        await conn.execute(update(Session).where(held).values(lease_expires_at=now(-1)))
        await conn.execute(update(Session).where(Session.woken_at.is_not(None)).values(woken_at=now(-3600)))
        claimed = MessageOut.claim_expires_at.is_not(None)
        await conn.execute(update(MessageOut).where(claimed).values(claim_expires_at=now(-1)))
        await conn.execute(update(MessageOut).values(rung_at=now(-3600)))


async def tidy_up(fleet: Fleet) -> None:
    """A day later."""
    outbox = fleet.runtime.outbox
    for left in outbox.root.iterdir() if outbox.root.exists() else ():
        os.utime(left, (0, 0))
    await tidy(fleet.db, outbox)


async def say(fleet: Fleet, text: str) -> None:
    """Said again after every crash, under the same key, as a platform repeats what nobody acknowledged."""
    place = {"channel_type": CHANNEL, "platform_id": ROOM, "sender_id": "ann"}
    await fleet.send(text, agent_group=AGENT, message_id=text, **place)


async def decide(fleet: Fleet) -> bool:
    """Somebody says one more thing, then an approver says yes. False: nothing waits for them."""
    waiting = [row.id for row in await fleet.rows(Approval) if row.status == "pending"]
    for approval_id in waiting:
        await say(fleet, WAITS)
        decided = await approvals.decide(fleet.db, approval_id, approve=True, user_id=f"{CHANNEL}:{OWNER}")
        for session_id, provider in decided.wakes:
            fleet.bells.wake(session_id, provider or "scripted")
        fleet.bells.deliveries += decided.deliveries
    return bool(waiting)


async def live(errand: Errand, trace: Trace) -> None:
    folder = Path(errand.folder)
    os.chdir(folder)  # so one address, and one engine with its compiled statements, serves each SQLite file
    launches = launch(Path(errand.effects))
    tools: tuple[Tool[Any], ...] = (SEND_FILE, SEND_TO_AGENT, SCHEDULE_TASK, launches, SEND_MESSAGE, RESET_SESSION)
    # Each database has one of the two kinds of platform.
    channel = LastingChannel(folder / SHOWN, trace, asked=not errand.database_url.startswith("sqlite"))
    registry = Registry(
        channels=Drivers[Channel]("channel", {CHANNEL: channel}),
        tools=Drivers[Tool[Any]]("tool", {tool.name: traced(tool, trace) for tool in tools}),
    )
    if not errand.warms:
        Workspace.copy_out = half_copied(trace)  # type: ignore[method-assign]
    settings = fleet_settings(errand.database_url, errand.redis_url, folder, lease_seconds=600.0)
    fleet = Fleet(settings, registry, name="boundary")
    await say(fleet, GO)
    for _ in range(MOST_ROUNDS):
        await fleet.settle_down()
        if await decide(fleet):
            continue
        await pass_time(fleet)
        found = await fleet.sweep()
        if not (found.wakes or found.deliveries or found.doubtful):
            break
    await tidy_up(fleet)
    trace(OVER)
    if not errand.warms:
        os._exit(0)
    await fleet.close()


if __name__ == "__main__":
    boundary_worker.run = live
    boundary_worker.main()
