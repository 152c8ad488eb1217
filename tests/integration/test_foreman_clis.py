"""The foreman with real programs: claude and codex build, gemini reviews, each in the sandbox, without a key."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from models import Approval
from tests.support.fleet import MakeFleet
from tests.support.foreman_models import FILES, MENDED, foreman_script, set_environment, wishes
from tests.support.foreman_setup import make_repository
from tests.support.model_api import ModelApi
from tests.support.programs import living_in, require
from tests.support.repositories import git
from tests.support.servers import private_folder
from workers.consent.approvals import decide
from workers.house import ring
from workers.workflows.starting import Wanted, start
from workers.workflows.view import look

pytestmark = [
    pytest.mark.spec("O1", "O2", "P5", "P6", "P7"),
    pytest.mark.parametrize("database_kind", ["sqlite"]),
    pytest.mark.timeout(300),
]


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    for name in ("claude", "codex", "gemini"):
        require(name)
    async with ModelApi(foreman_script(), strict=False) as api:
        set_environment(monkeypatch, api)
        yield api


@pytest.fixture
async def folder() -> AsyncIterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made)


async def test_real_programs_mend_a_repository_and_another_vendor_reviews_it(
    make_fleet: MakeFleet, api: ModelApi, folder: Path
) -> None:
    repository = make_repository(folder / "repo", FILES)
    fleet = await make_fleet(workspace_root=folder / "workspaces")
    wanted = Wanted(repository, "add must add, double must double", **wishes())
    started = await start(fleet.runtime, "cli", wanted)
    await fleet.settle_down()
    view = await fleet.db.read(lambda conn: look(conn, started.workflow_id))
    assert view is not None
    assert view.row.status == "running", view.row.outcome
    assert [(task.key, task.builder, task.reviewer) for task in view.tasks] == [
        ("add", "codex", "gemini"),
        ("double", "claude-code", "gemini"),
    ]
    [asked] = view.waiting
    ring(fleet.runtime, await decide(fleet.db, asked.id, approve=True))
    await fleet.settle_down()
    view = await fleet.db.read(lambda conn: look(conn, started.workflow_id))
    assert view is not None
    assert view.row.status == "completed", view.row.outcome
    branch = started.spec.target.branch
    assert git(repository, "show", f"{branch}:calc.py") + "\n" == MENDED
    assert set(view.spent) == {"claude-code", "codex", "gemini"}
    assert all(spent.output_tokens > 0 for spent in view.spent.values())
    assert {stage.provider for stage in view.stages if stage.spent} == {"claude-code", "codex", "gemini"}
    assert all(stage.spent is not None for stage in view.stages if stage.provider != "clerk")
    changed = git(repository, "diff", "--name-only", "main", branch).split()
    assert changed == ["calc.py"], "what programs leave lying about is not committed"
    assert living_in(folder) == []
    [approval] = await fleet.rows(Approval)
    assert (approval.category, approval.status) == ("merge", "used")
