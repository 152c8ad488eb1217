"""A fleet in one process that lives the foreman's story and kills itself at the first of some named boundaries it comes
to: its turns, deliveries, sweeps and advances, the git it runs, and the person who says yes. The next process finds
what this one left: rows, repositories, what the platform was sent.

The forking and the names of commits are those of `boundary_worker`; only what a fork does is another."""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sqlalchemy import update

import adapters.git.checking
import adapters.sandbox.looking
import workers.outfitting
from adapters.actions import Submit
from adapters.channel_port import Channel
from adapters.channels.local import LocalChannel
from adapters.git import commits, publishing
from adapters.git.host import HostRepository
from adapters.git.repository import Repository
from adapters.git.workbench import Workbench
from adapters.registry import Drivers
from adapters.sandbox.bubblewrap import Bubblewrap
from adapters.tool_port import Tool, ToolContext
from models import Approval, MessageIn, MessageOut, Session, Stage, Workflow, now
from tests.support import boundary_worker
from tests.support.boundary_marks import Errand
from tests.support.boundary_worker import Trace
from tests.support.fleet import Fleet, fleet_settings
from tests.support.foreman_boundary_marks import AFTER_GIT, BEFORE_GIT, DURING, HALF, LOCKED, ON_HOST, OUTSIDE, OVER, SHOWN, named
from tests.support.foreman_boundary_story import CHANNEL, OWNER, SCRIPTS, wanted
from tests.support.foremen import registry_of
from tests.support.tool_boundary_worker import LastingChannel, pass_time, traced
from workers import delivery
from workers.consent import approvals
from workers.house import ring
from workers.workflows.desk import Desk
from workers.workflows.engine import CHANNEL as LOCAL
from workers.workflows.engine import advance
from workers.workflows.starting import start

MOST_ROUNDS = 20
WARM_ROUNDS = 3
# They only look; whoever dies around them has done nothing more than before.
_READERS = frozenset(
    {"rev-parse", "merge-base", "ls-tree", "diff-tree", "for-each-ref", "show", "grep", "cat-file", "version"}
)
_where: ContextVar[str] = ContextVar("where", default=OUTSIDE)
_at_work: ContextVar[str] = ContextVar("at_work", default="")  # the command that is being started


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


def hook_git(trace: Trace) -> None:
    """Name every command of git that writes, its start, the locks it may leave, and files it has laid out by half."""
    git, shell, host = Repository.git, Repository.shell, HostRepository.git
    check, sandboxed, spawn = adapters.git.checking.run, Bubblewrap.start, asyncio.create_subprocess_exec

    @contextmanager
    def around(word: str) -> Iterator[None]:
        trace(BEFORE_GIT + word)
        token = _at_work.set(word)
        try:
            yield
        finally:
            _at_work.reset(token)
        trace(AFTER_GIT + word)

    async def traced_git(self: Repository, *arguments: str, **more: Any) -> Any:
        word, tree = arguments[0], more.get("tree")
        if word in _READERS or "--get" in arguments:
            return await git(self, *arguments, **more)
        if word == "add":
            leave_lock(self.path / "worktrees" / str(tree) / "index", LOCKED + word, trace)
        with around(word):
            said = await git(self, *arguments, **more)
        if word == "read-tree" and tree is not None:
            await lay_by_half(lambda: git(self, *arguments, **more), self.tree_path(tree), trace)
        return said

    async def traced_shell(self: Repository, name: str, script: str, *arguments: str, **more: Any) -> Any:
        if name in _READERS or script.startswith("test "):
            return await shell(self, name, script, *arguments, **more)
        if name == "update-ref":
            leave_lock(self.path / arguments[0], LOCKED + name, trace)
        with around(name):
            return await shell(self, name, script, *arguments, **more)

    async def traced_host(self: HostRepository, *arguments: str, **more: Any) -> Any:
        if not more.get("may_write") and more.get("stdout") is None:
            return await host(self, *arguments, **more)
        with around(ON_HOST + arguments[0]):
            return await host(self, *arguments, **more)

    async def traced_check(*given: Any, **more: Any) -> Any:
        with around("check"):
            return await check(*given, **more)

    async def traced_start(self: Bubblewrap, command: Any) -> Any:
        process = await sandboxed(self, command)
        if (word := _at_work.get()) and not word.startswith(ON_HOST):
            trace(DURING + word)
        return process

    async def traced_spawn(*given: Any, **more: Any) -> Any:
        process = await spawn(*given, **more)
        if (word := _at_work.get()).startswith(ON_HOST):
            trace(DURING + word)
        return process

    Repository.git = traced_git  # type: ignore[method-assign]
    Repository.shell = traced_shell  # type: ignore[method-assign]
    HostRepository.git = traced_host  # type: ignore[method-assign]
    Bubblewrap.start = traced_start  # type: ignore[method-assign]
    adapters.git.checking.run = traced_check  # type: ignore[attr-defined]
    asyncio.create_subprocess_exec = traced_spawn


def leave_lock(locked: Path, name: str, trace: Trace) -> None:
    """As a git that was killed leaves it. Where the folder is not made yet there is none."""
    if not locked.parent.is_dir():
        return
    lock = locked.with_name(f"{locked.name}.lock")
    lock.touch()
    trace(name)
    lock.unlink()


async def lay_by_half(lay_again: Callable[[], Any], folder: Path, trace: Trace) -> None:
    """Files that are laid out: one is not there yet, another is cut short. Then all of it is done again."""
    (folder / "test_calc.py").unlink()
    (folder / "calc.py").write_text("def ad")
    trace(HALF + "read-tree")
    await lay_again()


def hook_tools(trace: Trace) -> None:
    tools_for = workers.outfitting.tools_for  # type: ignore[attr-defined]

    def traced_tools(*given: Any) -> dict[str, Tool[Any]]:
        return {name: traced(tool, trace) for name, tool in tools_for(*given).items()}

    workers.outfitting.tools_for = traced_tools  # type: ignore[attr-defined]


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
            ring(
                fleet.runtime, await approvals.decide(fleet.db, row.id, approve=True, user_id=f"{CHANNEL}:{OWNER}")
            )
    return bool(waiting)


async def pass_more_time(fleet: Fleet) -> None:
    await pass_time(fleet)
    async with fleet.db._connection(read_only=False) as conn:  # the clock's doing, and no boundary of ours
        await conn.execute(update(Workflow).values(rung_at=now(-3600)))
        await conn.execute(update(Session).where(Session.resume_after.is_not(None)).values(resume_after=now(-1)))


def _hasty() -> None:
    """Hands over what it has merged, and asks then."""
    merge = Desk._merge_work

    async def merge_and_publish(self: Desk, bench: Workbench, context: ToolContext) -> Submit:
        handed_in = await merge(self, bench, context)
        if handed_in.output.get("ok"):
            spec = self._spec
            await bench.publish(Path(spec.repository), spec.target.branch, handed_in.output["commit"], None)
        return handed_in

    Desk._merge_work = merge_and_publish  # type: ignore[method-assign]


def _forgetful() -> None:
    """Does not see what somebody before it has handed over."""
    settled = publishing._settled

    async def unseen(host: Any, ref: str, commit: str, expected: str | None) -> Any:
        said = await settled(host, ref, commit, expected)
        return publishing.Published(False, said.found) if said is not None else None

    publishing._settled = unseen


def _repeating() -> None:
    """Makes a commit also of what is committed."""
    tree_of = Repository.tree_of

    async def another(self: Repository, commit: str) -> str:
        return "0" * len(await tree_of(self, commit))

    async def commit(*given: Any) -> Any:
        Repository.tree_of = another  # type: ignore[method-assign]
        try:
            return await make(*given)
        finally:
            Repository.tree_of = tree_of  # type: ignore[method-assign]

    make, commits.commit = commits.commit, commit


async def live(errand: Errand, trace: Trace) -> None:
    folder = Path(errand.folder)
    os.chdir(folder)  # so one address, and one engine with its compiled statements, serves each SQLite file
    watching = ThreadPoolExecutor(4)
    adapters.sandbox.looking._THREADS = watching  # type: ignore[misc] # those of the process that forked are not here
    asked = not errand.database_url.startswith("sqlite")  # each database has one of the two kinds of platform
    channels: dict[str, Channel] = {CHANNEL: LastingChannel(folder / SHOWN, trace, asked=asked), LOCAL: LocalChannel(folder)}
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
    boundary_worker.BROKEN |= {"hasty": _hasty, "forgetful": _forgetful, "repeating": _repeating}
    boundary_worker.run = live
    boundary_worker.Trace = PlacedTrace  # type: ignore[misc]
    boundary_worker.main()
