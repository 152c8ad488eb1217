"""A foreman's workflow: its turns, deliveries, sweeps and advances, the git it runs and the person who says yes are all
in the one process that is killed. Each boundary's name begins with the stage (or what else) it is passed in."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import adapters.sandbox.looking
from adapters.channel_port import Channel
from adapters.channels.local import LocalChannel
from adapters.registry import Drivers, Registry
from models import AgentGroup, Approval, MessageIn, MessageOut, Stage, Workflow
from models.base import new_id
from tests.support.boundaries.channel import LastingChannel
from tests.support.boundaries.faults import WORKFLOW_FAULTS
from tests.support.boundaries.git_marks import mark_git
from tests.support.boundaries.ledger_workflows import WorkflowEvidence
from tests.support.boundaries.marks import BETWEEN, FLUSH, Case, Marks, place
from tests.support.boundaries.plan_workflows import BRANCH, SCRIPTS
from tests.support.boundaries.repository_state import branches, history, locks
from tests.support.boundaries.scenario import CHANNEL, OWNER, Scenario, add_owner, run_to_end
from tests.support.fleet import Fleet
from tests.support.foreman_setup import make_repository, registry_of
from workers import delivery
from workers.consent import approvals
from workers.house import ring
from workers.workflows.assignment import FOLDER
from workers.workflows.engine import CHANNEL as LOCAL
from workers.workflows.engine import advance
from workers.workflows.starting import Wanted, start
from workers.workflows.tidying import tidy_workflows

WARM_ROUNDS = 3
MOST_ROUNDS = 200  # of answering what rings
_BEFORE, _AFTER = f"{BETWEEN}before ", f"{BETWEEN}after "


class Workflows(Scenario[WorkflowEvidence]):
    """`unharmed`: what every other life is compared with."""

    name = "workflows"
    faults = WORKFLOW_FAULTS
    # Many die at one stage; that it is given up after a few is another story.
    settings = MappingProxyType({"max_tries": 1000})
    evidence = WorkflowEvidence
    unharmed: WorkflowEvidence | None = None

    async def prepare(self, fleet: Fleet, case: Case) -> None:
        make_repository(_repository(case))
        await fleet.insert(AgentGroup, {"id": new_id(), "name": "Foreman", "folder": "foreman", "config": {}})
        await add_owner(fleet)

    def branches(self, case: Case) -> Mapping[str, str]:
        return branches(_repository(case))

    def is_sure(self, boundary: str) -> bool:
        """Whether events are written on their own or with something else is a matter of milliseconds, and leases are
        renewed outside of every place."""
        return FLUSH not in boundary and BETWEEN in boundary

    async def gather(self, found: WorkflowEvidence, fleet: Fleet, case: Case) -> None:
        repository, workspaces = _repository(case), Path(case.folder) / "workspaces"
        workflows, temporary = workspaces / FOLDER, Path(case.folder).parent / "tmp"
        found.unharmed = self.unharmed
        found.branches = branches(repository)
        found.began = (repository / ".git" / "refs" / "heads" / "main").read_text().strip()
        found.history = history(repository, BRANCH) if BRANCH in found.branches else []
        left = locks(workflows, repository / ".git")
        await tidy_workflows(fleet.db, workspaces)
        beside = (path.name for path in workspaces.iterdir() if path.name not in ("foreman", FOLDER))
        found.left = [*left, *beside, *(path.name for folder in (workflows, temporary) for path in folder.iterdir())]

    def registry(self, case: Case, mark: Marks) -> Registry:
        registry = registry_of(**SCRIPTS)
        channels: dict[str, Channel] = {CHANNEL: LastingChannel.of(case, mark), LOCAL: LocalChannel(Path(case.folder))}
        registry.channels = Drivers("channel", channels)
        return registry

    def hook(self, mark: Marks) -> None:
        mark_git(mark)

    async def run(self, fleet: Fleet, case: Case) -> None:
        threads = ThreadPoolExecutor(4)
        adapters.sandbox.looking._THREADS = threads  # type: ignore[misc] # those of the process that forked are not here
        if not await fleet.rows(Workflow):
            roles = {"planner": "judge", "builders": ("smith", "other"), "reviewer": "critic"}
            wanted = Wanted(repository=_repository(case), goal="add must add", branch=BRANCH, **roles)  # type: ignore[arg-type]
            with place("start"):
                await start(fleet.runtime, "cli", wanted)
        if case.warms:  # as far as the plan: what comes later starts threads, and whoever forks must have none
            for _ in range(WARM_ROUNDS):
                await _answer_some(fleet)
            threads.shutdown()
        else:
            await run_to_end(fleet, _answer_bells, _decide, _place_of_sweep)


def _repository(case: Case) -> Path:
    return Path(case.folder) / "repo"


async def _answer_bells(fleet: Fleet) -> None:
    """Ends after MOST_ROUNDS: a workflow that wakes itself without end is found unfinished by the ledger."""
    bells = fleet.bells
    for _ in range(MOST_ROUNDS):
        if bells.wakes or bells.deliveries or bells.doubtful or bells.advances:
            await _answer_some(fleet)


async def _answer_some(fleet: Fleet) -> None:
    """Those that ring now. As `Fleet.settle_down` does, each in its place."""
    bells = fleet.bells
    wakes, bells.wakes = bells.wakes, []
    for session_id, provider in wakes:
        with place(await _place_of_session(fleet, session_id)):
            await fleet.wake(session_id, provider)
    advances, bells.advances = bells.advances, []
    for workflow_id in advances:
        with place(f"advance {await _place_of_workflow(fleet)}"):
            await advance(fleet.runtime, workflow_id)
    deliveries, bells.deliveries = bells.deliveries, []
    doubtful, bells.doubtful = bells.doubtful, []
    turns = {row.id: row.turn_id for row in await fleet.rows(MessageOut)}
    asked = {row.turn_id: row.content["workflow"] for row in await fleet.inbox()}
    for message_out_id in (*deliveries, *doubtful):
        what = asked.get(turns[message_out_id], {"stage": "card"})
        with place(f"delivery {' '.join(map(str, what.values()))}"):
            settle = delivery.settle_doubtful if message_out_id in doubtful else delivery.send
            await settle(fleet.runtime, message_out_id)


async def _decide(fleet: Fleet) -> bool:
    """Somebody says yes to all that waits."""
    waiting = [row for row in await fleet.rows(Approval, Approval.created_at) if row.status == "pending"]
    for row in waiting:
        with place(f"decide {row.category}"):
            ring(fleet.runtime, await approvals.decide(fleet.db, row.id, approve=True, user_id=f"{CHANNEL}:{OWNER}"))
    return bool(waiting)


async def _place_of_session(fleet: Fleet, session_id: str) -> str:
    for stage in await fleet.rows(Stage, Stage.number):
        if stage.session_id == session_id and stage.status == "running":
            return f"{stage.kind} {stage.task} {stage.round}".replace("  ", " ")
    return "nothing"


async def _place_of_workflow(fleet: Fleet) -> str:
    """How far it has come, whoever looks."""
    over = {row.id for row in await fleet.rows(MessageIn) if row.status == "completed"}
    stages = await fleet.rows(Stage)
    return f"after {sum(stage.id in over for stage in stages)} of {len(stages)}"


async def _place_of_sweep(fleet: Fleet) -> str:
    return f"sweep {await _place_of_workflow(fleet)}"


def is_settled(boundary: str) -> bool:
    """Whether every life comes by. One that goes on after a death looks around more, and may find two tasks in another
    order."""
    return not boundary.startswith(("advance", "sweep", "delivery")) and " #" not in boundary


def kinds_once(boundaries: Sequence[str]) -> list[str]:
    """One boundary of each kind: the kind of a stage (or what else it is passed in) and what is done there. Of those
    that are alike, the first task and round stands for the others. Between stages, and where a person decides, each is
    a kind of its own. Without those that find everything as the boundary before them has left it; but with both sides
    of a person's decision."""
    first: dict[tuple[str, str], str] = {}
    for boundary in boundaries:
        where, _, what = boundary.partition(BETWEEN)
        kind = where.split(" ")[0]
        first.setdefault((where if kind in ("advance", "decide") else kind, what.partition(" #")[0]), boundary)
    return [
        boundary
        for earlier, boundary in zip(("", *first.values()), first.values(), strict=False)
        if boundary.startswith("decide") or _BEFORE not in boundary or not (_BEFORE in earlier or _AFTER in earlier)
    ]


def deal(boundaries: Sequence[str], lives: int) -> list[list[str]]:
    """To so many lives of the story, so that those of one life are far apart."""
    return [list(boundaries[start::lives]) for start in range(lives)]


def living_below(folder: Path) -> list[str]:
    """Programs that work in a folder, or in a sandbox that holds a part of it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            own = os.readlink(process / "ns/mnt") != os.readlink("/proc/self/ns/mnt")
            works = Path(os.readlink(process / "cwd")).is_relative_to(folder)
            if works or (own and f"/{folder.parent.name}/{folder.name}/" in (process / "mountinfo").read_text()):
                found.append((process / "cmdline").read_text().replace("\0", " ").strip())
    return [command for command in found if command]  # who has ended has none


SCENARIO = Workflows
