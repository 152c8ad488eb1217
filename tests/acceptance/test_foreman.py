"""The foreman as an operator runs it: the command, worker processes, real programs; and every worker killed whenever a
stage begins or ends."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.foreman_models import FILES, MENDED, environment, foreman_script, wishes
from tests.support.foreman_setup import make_repository
from tests.support.model_api import ModelApiThread
from tests.support.processes import ROOT, Operator, Process
from tests.support.programs import living_in, require
from tests.support.repositories import git
from tests.support.servers import private_folder

pytestmark = [pytest.mark.spec("O1", "M7", "P5", "P6", "P7"), pytest.mark.long, pytest.mark.timeout(900)]

WORKERS = {"clis": "agent.claude-code,agent.codex,agent.gemini,agent.clerk", "messages": "messages,upkeep,delivery"}
SINCE = """
SELECT s.id, s.status = 'running' FROM workflow_stages s JOIN sessions c ON c.id = s.session_id
WHERE s.workflow_id = %s AND (s.status <> 'running' OR c.lease_owner IS NOT NULL) ORDER BY s.number
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def api() -> Iterator[ModelApiThread]:
    for name in ("claude", "codex", "gemini"):
        require(name)
    with ModelApiThread(foreman_script(), strict=False) as api:
        yield api


class Fleet:
    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.beat = operator.start("celery -A workers.app beat", "beat", ready=False)
        self.workers = {name: self._start(name) for name in WORKERS}

    def _start(self, name: str) -> Process:
        return self.operator.worker(WORKERS[name], name, "-c 8")

    def kill(self) -> None:
        for name, worker in self.workers.items():
            worker.send_signal(signal.SIGKILL)
            worker.wait(10)
            self.workers[name] = self._start(name)


@pytest.mark.parametrize("killed", [False, True], ids=["undisturbed", "killed at every boundary"])
def test_real_programs_reach_the_same_result_whatever_is_killed(
    operator: Operator, api: ModelApiThread, folder: Path, killed: bool
) -> None:
    operator.env |= environment(api) | {"LONGSHORE_CLIS": str(ROOT / ".clis"), "WORKSPACE_ROOT": str(folder / "work")}
    repository = make_repository(folder / "repo", FILES)
    fleet = Fleet(operator)
    roles = wishes()
    wished = ["--planner", roles["planner"], "--reviewer", roles["reviewer"], "--builders", ",".join(roles["builders"])]
    goal = ["--repo", str(repository), "--goal", "add must add, double must double"]
    workflow_id = json.loads(operator.cli("foreman", "run", *goal, *wished, "--detach", "--json").stdout)["id"]

    seen: set[tuple[str, bool]] = set()
    kills = 0

    def waits_or_is_over() -> bool:
        nonlocal kills
        found = set(operator.rows(SINCE, workflow_id))
        if killed and found - seen:
            seen.update(found)
            kills += 1
            fleet.kill()
        waits = operator.value("SELECT count(*) FROM approvals WHERE status = 'pending'")
        return bool(waits) or operator.value("SELECT status FROM workflows") != "running"

    operator.wait_for(waits_or_is_over, "the approval", 600)
    outcome = operator.value("SELECT outcome FROM workflows")
    assert operator.value("SELECT status FROM workflows") == "running", outcome
    assert git(repository, "branch", "--list", "longshore/*") == ""
    operator.cli("approve", operator.value("SELECT id FROM approvals WHERE status = 'pending'"))
    if killed:
        fleet.kill()
    operator.wait_for(lambda: operator.value("SELECT status FROM workflows") != "running", "the end", 120)
    assert operator.rows("SELECT status, outcome FROM workflows")[0][0] == "completed", operator.logs()
    branch = operator.value("SELECT spec -> 'target' ->> 'branch' FROM workflows")
    assert git(repository, "show", f"{branch}:calc.py") + "\n" == MENDED
    assert git(repository, "diff", "--name-only", "main", branch) == "calc.py"
    assert len(git(repository, "rev-list", f"main..{branch}").split()) == 4, "two tasks, two merges, nothing twice"
    stages = operator.rows("SELECT kind, task, round, count(*) FROM workflow_stages GROUP BY 1, 2, 3")
    assert {count for *_, count in stages} == {1}, stages
    assert len(stages) == 10, stages
    assert operator.rows("SELECT category, status FROM approvals") == [("merge", "used")]
    assert {row[0] for row in operator.rows("SELECT provider FROM usage")} == {"claude-code", "codex", "gemini"}
    assert kills >= 8 if killed else kills == 0, kills
    print(f"{kills} times all workers were killed")
    for worker in fleet.workers.values():
        operator.end(worker)
    assert living_in(folder) == []
