"""The foreman as an operator runs it: real workers, one of which is killed with -9 each time a stage has begun, and
again when somebody has said yes. What comes of it is what would have come of it."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from models import Approval
from tests.support.boundaries.ledger import Death
from tests.support.boundaries.ledger_workflows import WorkflowEvidence
from tests.support.boundaries.plan_workflows import ALL_PARTS, BRANCH, CATEGORIES, STAGES
from tests.support.boundaries.repository_state import branches, history, locks
from tests.support.boundaries.scenario_workflows import living_below
from tests.support.fleet import Fleet, fleet_settings
from tests.support.foreman_setup import make_repository
from tests.support.processes import Operator, Process
from tests.support.servers import Valkey, private_folder, wait_until

QUEUES = "messages,upkeep,delivery,agent.scripted,agent.clerk"
WORKERS = 2
SECONDS = 240


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the sandbox's user can come."""
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def operator(folder: Path, postgres_database: str, broker: Valkey) -> Iterator[Operator]:
    # Short: another worker takes over what a killed one was running or sending before the test gives up waiting.
    patience = {"LONGSHORE_LEASE_SECONDS": "2", "LONGSHORE_DELIVERY_SECONDS": "5", "LONGSHORE_REPEAT_SECONDS": "0.5"}
    operator = Operator(folder, postgres_database, broker, **patience)
    yield operator
    operator.close()


class Watch:
    """Workers of which the one that works is killed, once for each thing that has begun; another takes its place."""

    def __init__(self, operator: Operator, repository: Path) -> None:
        self.deaths: list[Death] = []
        self._operator = operator
        self._repository = repository
        self._workers: dict[int, Process] = {}
        self._seen: set[tuple[str, int]] = set()
        self._names = 0

    def start(self, *, ready: bool) -> None:
        self._names += 1
        name = f"worker{self._names}"
        command = f"celery -A workers.app worker -Q {QUEUES} -n {name}@%h -c 50 --without-gossip --without-mingle"
        process = self._operator.start(command, name, ready)
        self._workers[process.pid] = process

    def look(self) -> None:
        """Kill whoever is at something that nobody was killed at before. A stage counts anew with each yes."""
        for stage, owner, decided in self._operator.rows(
            "SELECT s.kind || ' ' || s.task || ' ' || s.round, x.lease_owner,"
            " (SELECT count(*) FROM approvals a WHERE a.session_id = x.id AND a.status <> 'pending')"
            " FROM workflow_stages s JOIN sessions x ON x.id = s.session_id JOIN messages_in m ON m.id = s.id"
            " WHERE s.status = 'running' AND m.status = 'processing' AND x.lease_owner IS NOT NULL"
        ):
            worker = self._workers.get(int(owner.split(":")[1]))
            if worker is None or (stage, decided) in self._seen:
                continue
            self._seen.add((stage, decided))
            del self._workers[worker.pid]
            worker.kill()
            worker.wait()
            seen = branches(self._repository)
            self.deaths.append(Death(f"{stage}, {decided} decided", branches=seen, approvals=self._approvals()))
            self.start(ready=False)
            return

    def _approvals(self) -> list[Approval]:
        return [
            Approval(category=category, status=status)
            for category, status in self._operator.rows("SELECT category, status FROM approvals")
        ]


@pytest.mark.long  # tests/chaos/test_foreman_boundaries.py kills at some of the stages every time
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.spec("O1", "M7")
def test_a_worker_is_killed_at_every_stage_and_the_result_is_the_same(
    operator: Operator, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = make_repository(folder / "repo")
    operator.add_group("foreman", ALL_PARTS)
    watch = Watch(operator, repository)
    for _ in range(WORKERS):
        watch.start(ready=True)
    operator.start("celery -A workers.app beat", "beat", ready=False)
    began, started = branches(repository)["main"], time.monotonic()
    who = ("--planner", "scripted", "--builders", "scripted", "--reviewer", "scripted")
    operator.cli(
        "foreman", "run", "--repo", str(repository), "--goal", "add must add", "--branch", BRANCH, *who, "--detach"
    )

    def is_over() -> bool:
        watch.look()
        waiting = operator.value("SELECT id FROM approvals WHERE status = 'pending' ORDER BY created_at LIMIT 1")
        if waiting is not None:
            assert BRANCH not in branches(repository), "nothing is handed over before somebody says so"
            operator.cli("approve", waiting)
        return bool(operator.value("SELECT status <> 'running' FROM workflows"))

    operator.wait_for(is_over, "the workflow to end", SECONDS)
    with capsys.disabled():
        print(f"\nforeman: {len(watch.deaths)} workers killed in {time.monotonic() - started:.0f} s")
    unsent = "SELECT count(*) FROM messages_out WHERE status <> 'delivered'"
    leased = "SELECT count(*) FROM sessions WHERE lease_owner IS NOT NULL"
    operator.wait_for(lambda: operator.value(unsent) == operator.value(leased) == 0, "all that was said to be sent")
    operator.close()
    found = WorkflowEvidence(watch.deaths, began=began, decider="cli", has_cards=False)
    found.branches, found.left = branches(repository), locks(folder / "workspaces", repository / ".git")
    found.history = history(repository, BRANCH) if BRANCH in found.branches else []
    asyncio.run(_read_rows(found, operator))
    assert found.complaints() == [], operator.logs()
    assert len(watch.deaths) >= len(STAGES) + len(CATEGORIES) - 4, [death.boundary for death in watch.deaths]
    wait_until(lambda: not living_below(folder / "workspaces"), 10, "what the dead have started to end")


async def _read_rows(found: WorkflowEvidence, operator: Operator) -> None:
    fleet = Fleet(fleet_settings(operator.database_url, operator.broker.url, operator.folder))
    try:
        await found.read_rows(fleet)
    finally:
        await fleet.close()
