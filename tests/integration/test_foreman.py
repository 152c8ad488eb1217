"""The foreman, from a goal to a branch: on a real repository, with agents that play their parts, in the sandbox."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from models import Audit, Turn, Workflow
from tests.support.fleet import MakeFleet
from tests.support.foreman_setup import (
    MENDED,
    begin,
    foreman,
    make_repository,
    say,
    seen,
)
from tests.support.repositories import git
from tests.support.servers import private_folder
from workers.operations import workflows
from workers.refusals import RefusedError
from workers.workflows.engine import advance

pytestmark = pytest.mark.spec("O1")


@pytest.fixture
def folder() -> Iterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def repository(folder: Path) -> Path:
    return make_repository(folder / "repo")


async def test_a_bug_is_planned_mended_checked_reviewed_approved_and_handed_over(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    fleet = await foreman(make_fleet, folder)
    before = git(repository, "rev-parse", "HEAD")
    started = await begin(fleet, repository)
    await fleet.settle_down()
    view = await seen(fleet, started)
    assert view.row.status == "running", view.row.outcome
    assert [(stage.kind, stage.provider, stage.state) for stage in view.stages] == [
        ("prepare", "clerk", "completed"),
        ("plan", "judge", "completed"),
        ("build", "smith", "completed"),
        ("check", "clerk", "completed"),
        ("review", "critic", "completed"),
        ("merge", "clerk", "completed"),
        ("publish", "clerk", "waiting"),
    ]
    [asked] = view.waiting
    assert asked.category == "merge"
    assert git(repository, "branch", "--list", "longshore/*") == "", "nothing is handed over before somebody says so"
    await say(fleet, approve=True)
    view = await seen(fleet, started)
    branch = started.spec.target.branch
    commit = git(repository, "rev-parse", branch)
    assert (view.row.status, view.row.outcome) == ("completed", f"branch {branch} at {commit[:12]}")
    assert view.row.result["commit"] == commit
    assert git(repository, "show", f"{branch}:calc.py") + "\n" == MENDED
    assert git(repository, "rev-parse", "HEAD") == before, "what is checked out is not touched"
    assert git(repository, "status", "--porcelain") == ""
    message = git(repository, "show", "-s", "--format=%B", branch)
    assert message.startswith("Mend add\n\nGoal: add must add")
    assert "built by smith, reviewed by critic" in message
    lines = {row.act for row in await fleet.rows(Audit)}
    assert {"workflow.start", "approval.decide"} <= lines


async def test_a_no_means_that_nothing_is_merged(make_fleet: MakeFleet, folder: Path, repository: Path) -> None:
    fleet = await foreman(make_fleet, folder)
    started = await begin(fleet, repository)
    await fleet.settle_down()
    await say(fleet, approve=False)
    view = await seen(fleet, started)
    assert view.row.status == "failed"
    assert "was not approved: cli said no" in view.row.outcome
    assert git(repository, "branch", "--list", "longshore/*") == ""


async def test_it_can_be_cancelled_while_it_waits_and_its_card_is_closed(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    fleet = await foreman(make_fleet, folder)
    started = await begin(fleet, repository)
    await fleet.settle_down()
    await workflows.cancel(fleet.runtime, "web:ann", started.workflow_id)
    await fleet.settle_down()
    view = await seen(fleet, started)
    assert (view.row.status, view.row.outcome) == ("cancelled", "cancelled by web:ann")
    assert not view.waiting
    assert {row.status for row in await fleet.rows(Turn)} <= {"completed", "cancelled"}
    with pytest.raises(RefusedError, match="over already"):
        await workflows.cancel(fleet.runtime, "cli", started.workflow_id)


async def test_lost_rings_only_cost_time(make_fleet: MakeFleet, folder: Path, repository: Path) -> None:
    fleet = await foreman(make_fleet, folder)
    started = await begin(fleet, repository)
    async with asyncio.timeout(60):
        while not (await seen(fleet, started)).waiting:
            # Whatever was rung for is lost; the sweep finds it.
            fleet.bells.wakes, fleet.bells.advances, fleet.bells.deliveries = [], [], []
            await fleet.sweep()
            advances, fleet.bells.advances = fleet.bells.advances, []
            await fleet.answer_wakes()
            for workflow_id in advances:
                await advance(fleet.runtime, workflow_id)


async def test_the_time_of_the_whole_is_limited(make_fleet: MakeFleet, folder: Path, repository: Path) -> None:
    fleet = await foreman(
        make_fleet, folder, smith="- play:\n  - tool: ask_user_question\n    with: {title: a, question: b}\n"
    )
    started = await begin(fleet, repository, minutes=1)
    await fleet.settle_down()
    assert (await seen(fleet, started)).row.status == "running"
    await fleet.execute(update(Workflow).values(deadline_at=Workflow.created_at))
    await fleet.sweep()
    await fleet.settle_down()
    view = await seen(fleet, started)
    assert view.row.status == "failed"
    assert "it took longer than" in view.row.outcome
