"""A fleet in one process that lives the foreman's story and kills itself at the first of some named boundaries it comes
to: its turns, deliveries, sweeps and advances, the git it runs, and the person who says yes. The next process finds
what this one left: rows, repositories, what the platform was sent.

The forking and the names of commits are those of `boundary_worker`; only what a fork does is another."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from sqlalchemy import update

import adapters.sandbox.looking
from adapters.channel_port import Channel
from adapters.channels.local import LocalChannel
from adapters.registry import Drivers
from models import Approval, MessageIn, MessageOut, Session, Stage, Workflow, now
from tests.support import boundary_worker
from tests.support.boundary_marks import Errand
from tests.support.boundary_worker import Trace
from tests.support.fleet import Fleet, fleet_settings
from tests.support.foreman_boundary_faults import FAULTS
from tests.support.foreman_boundary_git import hook_git, hook_tools
from tests.support.foreman_boundary_marks import OUTSIDE, OVER, SHOWN, named
from tests.support.foreman_boundary_story import CHANNEL, OWNER, SCRIPTS, wanted
from tests.support.foreman_setup import registry_of
from tests.support.tool_boundary_worker import LastingChannel, pass_time
from workers import delivery
from workers.consent import approvals
from workers.house import ring
from workers.workflows.engine import CHANNEL as LOCAL
from workers.workflows.engine import advance
from workers.workflows.starting import start

MOST_ROUNDS = 20
WARM_ROUNDS = 3
_where: ContextVar[str] = ContextVar("where", default=OUTSIDE)


class PlacedTrace(Trace):
    """Dies at the first that it comes to of several boundaries, one a line."""

    def __init__(self, path: str, kill_at: str | None) -> None:
        super().__init__(path, None)
        self._deadly = frozenset((kill_at or "").splitlines())

    def __call__(self, name: str) -> None:
        where = named(_where.get(), name)
        times = self._seen[where] + 1
        self._kill_at = where if times == 1 else f"{where} #{times}"
        if self._kill_at not in self._deadly:
            self._kill_at = None
        super().__call__(where)


@contextmanager
def place(where: str) -> Iterator[None]:
    token = _where.set(where)
    try:
        yield
    finally:
        _where.reset(token)


async def place_of_session(fleet: Fleet, session_id: str) -> str:
    for stage in await fleet.rows(Stage, Stage.number):
        if stage.session_id == session_id and stage.status == "running":
            return f"{stage.kind} {stage.task} {stage.round}".replace("  ", " ")
    return "nothing"


async def place_of_workflow(fleet: Fleet) -> str:
    """How far it has come, whoever looks."""
    over = {row.id for row in await fleet.rows(MessageIn) if row.status == "completed"}
    stages = await fleet.rows(Stage)
    return f"after {sum(stage.id in over for stage in stages)} of {len(stages)}"


async def answer_bells(fleet: Fleet, rounds: int = MOST_ROUNDS * 10) -> None:
    bells = fleet.bells
    while rounds and (bells.wakes or bells.deliveries or bells.doubtful or bells.advances):
        rounds -= 1
        wakes, bells.wakes = bells.wakes, []
        for session_id, provider in wakes:
            with place(await place_of_session(fleet, session_id)):
                await fleet.wake(session_id, provider)
        advances, bells.advances = bells.advances, []
        for workflow_id in advances:
            with place(f"advance {await place_of_workflow(fleet)}"):
                await advance(fleet.runtime, workflow_id)
        deliveries, bells.deliveries = bells.deliveries, []
        doubtful, bells.doubtful = bells.doubtful, []
        turns = {row.id: row.turn_id for row in await fleet.rows(MessageOut)}
        kinds = {row.turn_id: row for row in await fleet.inbox()}
        for message_out_id in (*deliveries, *doubtful):
            asked = kinds.get(turns[message_out_id])
            what = asked.content["workflow"] if asked is not None else {"stage": "card"}
            with place(f"delivery {' '.join(map(str, what.values()))}"):
                settle = delivery.settle_doubtful if message_out_id in doubtful else delivery.send
                await settle(fleet.runtime, message_out_id)


async def decide(fleet: Fleet) -> bool:
    """Somebody says yes to all that waits. False: nothing does."""
    waiting = [row for row in await fleet.rows(Approval, Approval.created_at) if row.status == "pending"]
    for row in waiting:
        with place(f"decide {row.category}"):
            ring(fleet.runtime, await approvals.decide(fleet.db, row.id, approve=True, user_id=f"{CHANNEL}:{OWNER}"))
    return bool(waiting)


async def pass_more_time(fleet: Fleet) -> None:
    await pass_time(fleet)
    async with fleet.db._connection(read_only=False) as conn:  # the clock's doing, and no boundary of ours
        await conn.execute(update(Workflow).values(rung_at=now(-3600)))
        await conn.execute(update(Session).where(Session.resume_after.is_not(None)).values(resume_after=now(-1)))


async def live(errand: Errand, trace: Trace) -> None:
    folder = Path(errand.folder)
    os.chdir(folder)  # so one address, and one engine with its compiled statements, serves each SQLite file
    watching = ThreadPoolExecutor(4)
    adapters.sandbox.looking._THREADS = watching  # type: ignore[misc] # those of the process that forked are not here
    asked = not errand.database_url.startswith("sqlite")  # each database has one of the two kinds of platform
    channels: dict[str, Channel] = {
        CHANNEL: LastingChannel(folder / SHOWN, trace, asked=asked),
        LOCAL: LocalChannel(folder),
    }
    registry = registry_of(**SCRIPTS)
    registry.channels = Drivers("channel", channels)
    if not errand.warms:
        hook_git(trace)
        hook_tools(trace)
    # Many die at one stage; that it is given up after a few is another story.
    settings = fleet_settings(errand.database_url, errand.redis_url, folder, lease_seconds=600.0, max_tries=1000)
    fleet = Fleet(settings, registry, name="boundary")
    if not await fleet.rows(Workflow):
        with place("start"):
            await start(fleet.runtime, "cli", wanted(folder / "repo"))
    if errand.warms:  # as far as the plan: what comes later starts threads, and whoever forks must have none
        await answer_bells(fleet, rounds=WARM_ROUNDS)
        await fleet.close()
        watching.shutdown()
        return
    for _ in range(MOST_ROUNDS):
        await answer_bells(fleet)
        if await decide(fleet):
            continue
        await pass_more_time(fleet)
        with place(f"sweep {await place_of_workflow(fleet)}"):
            found = await fleet.sweep()
        if not (found.wakes or found.deliveries or found.doubtful or found.workflows):
            break
    trace(OVER)
    os._exit(0)


if __name__ == "__main__":
    boundary_worker.BROKEN |= FAULTS
    boundary_worker.run = live
    boundary_worker.Trace = PlacedTrace  # type: ignore[misc]
    boundary_worker.main()
