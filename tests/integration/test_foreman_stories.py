"""What may happen to a foreman on the way: failures, conflicts, risks, somebody who changes their mind."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from adapters.providers.anthropic import AnthropicProvider
from models import Approval, BudgetDay, MessageIn, Stage, Workflow
from models.base import new_id
from tests.support.api_fleet import model_api
from tests.support.fleet import MakeFleet
from tests.support.foreman_setup import (
    APPROVE,
    CALC,
    MENDED,
    PLAN,
    begin,
    foreman,
    make_repository,
    registry_of,
    say,
    seen,
    writes,
)
from tests.support.model_api import Call, reply, rule, script
from tests.support.repositories import git
from tests.support.servers import private_folder
from tests.support.workflow_rows import put_workflow, spec
from workers.consent.approvals import decide
from workers.house import ring
from workers.operations import workflows
from workers.refusals import RefusedError
from workers.workflows.assignment import FOLDER
from workers.workflows.engine import advance
from workers.workflows.spec import MAX_TRIES, spec_of
from workers.workflows.starting import Wanted, start
from workers.workflows.tidying import tidy_workflows

pytestmark = [pytest.mark.spec("O1"), pytest.mark.parametrize("database_kind", ["sqlite"])]


@pytest.fixture
def folder() -> Iterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def repository(folder: Path) -> Path:
    return make_repository(folder / "repo")


async def test_checks_that_fail_go_back_and_three_failures_end_in_an_honest_stop(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    fleet = await foreman(make_fleet, folder, smith=writes("calc.py", CALC.replace("a - b", "a * b")))
    started = await begin(fleet, repository)
    await fleet.settle_down()
    view = await seen(fleet, started)
    assert [(stage.kind, stage.state) for stage in view.stages][2:] == [
        ("build", "completed"),
        ("check", "negative"),
        ("fix", "completed"),
        ("check", "negative"),
        ("fix", "completed"),
        ("check", "negative"),
    ]
    assert view.row.status == "failed"
    assert view.row.outcome.startswith("“Mend add” was given up after 3 tries by smith: `python3 -m unittest` failed")
    assert "FAILED (failures=1)" in view.row.outcome
    smith = fleet.runtime.registry.providers.get("smith")
    assert "AssertionError: 6 != 5" in smith.prompts[1]  # type: ignore[union-attr]
    assert not view.waiting
    assert git(repository, "branch", "--list", "longshore/*") == ""


async def test_it_goes_on_where_it_stopped_when_somebody_wants_it_to(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    fleet = await foreman(make_fleet, folder, smith="I did nothing.")
    started = await begin(fleet, repository)
    await fleet.settle_down()
    view = await seen(fleet, started)
    assert "nothing was changed" in view.row.outcome
    fleet.runtime.registry.providers.get("smith").script = writes("calc.py", MENDED)  # type: ignore[union-attr]
    done = await workflows.restart(fleet.runtime, "cli", started.workflow_id)
    assert "goes on" in done.text
    await fleet.settle_down()
    await say(fleet, approve=True)
    view = await seen(fleet, started)
    assert view.row.status == "completed"
    assert len([stage for stage in view.stages if stage.kind == "plan"]) == 1, "what is done stays done"
    with pytest.raises(RefusedError, match="nothing to restart"):
        await workflows.restart(fleet.runtime, "cli", started.workflow_id)


async def test_one_that_had_as_many_tries_as_there_are_has_more_after_a_restart(
    make_fleet: MakeFleet, folder: Path
) -> None:
    fleet = await foreman(make_fleet, folder)
    rows = await put_workflow(fleet, "failed")
    await fleet.execute(update(Workflow).values(spec=spec(tries=MAX_TRIES)))
    await workflows.restart(fleet.runtime, "cli", rows.id)
    [row] = await fleet.rows(Workflow)
    assert spec_of(row).tries == 2 * MAX_TRIES


async def test_tasks_that_conflict_are_put_together_by_whoever_comes_second(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    plan = PLAN.replace(
        '        - {key: mend-add, title: Mend add, goal: add adds, acceptance: ["add(2, 3) is 5"]}\n',
        "        - {key: one, title: Mend add, goal: add adds, acceptance: [it adds]}\n"
        "        - {key: two, title: Say what it is, goal: add says what it does, acceptance: [it does]}\n",
    )
    documented = CALC.replace("return a - b", 'return b + a  # "sum"')
    both = CALC.replace("return a - b", 'return a + b  # "sum"')
    resolved = writes("calc.py", both).replace("- play:", "- when: conflict markers\n  play:")
    fleet = await foreman(make_fleet, folder, judge=plan, other=resolved + writes("calc.py", documented))
    started = await begin(fleet, repository, builders=("smith", "other"))
    await fleet.settle_down()
    await say(fleet, approve=True)
    view = await seen(fleet, started)
    assert view.row.status == "completed", view.row.outcome
    merges = [stage for stage in view.stages if stage.kind == "merge"]
    assert [(stage.state, stage.output.get("task")) for stage in merges] == [("negative", "two"), ("completed", None)]
    assert merges[0].output["conflicts"] == ["calc.py"]
    assert git(repository, "show", f"{started.spec.target.branch}:calc.py") + "\n" == both
    reviews = [stage for stage in view.stages if stage.kind == "review" and stage.task == "two"]
    assert len(reviews) == 2, "what was put together is reviewed again"


@pytest.mark.spec("P14")
async def test_each_risky_thing_in_a_change_is_asked_for_by_itself(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    script = (
        writes("calc.py", MENDED)[: -len("  - answer: Done.\n")]
        + "  - tool: write_file\n    with: {path: requirements.txt, content: 'leftpad==1'}\n"
        + "  - tool: write_file\n    with: {path: .github/workflows/ci.yml, content: 'on: push'}\n  - answer: Done.\n"
    )
    fleet = await foreman(make_fleet, folder, smith=script)
    started = await begin(fleet, repository)
    await fleet.settle_down()
    asked = []
    while waiting := await say(fleet, approve=True):
        asked += waiting
    assert [row.category for row in asked] == ["merge", "dependency", "deploy"]
    assert len({row.payload["arguments"]["commit"] for row in asked}) == 1
    assert "requirements.txt +1 -0" in asked[1].payload["arguments"]["files"]
    assert (await seen(fleet, started)).row.status == "completed"


async def test_a_merge_without_approval_is_impossible_even_if_the_clerk_is_told_to(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    """As if a row had been tampered with: the order to publish comes without the asks before it. What was asked before
    was not answered, and what was answered is about another commit."""
    fleet = await foreman(make_fleet, folder)
    started = await begin(fleet, repository)
    await fleet.settle_down()
    [stage] = [row for row in await fleet.rows(Stage) if row.kind == "publish"]
    await workflows.cancel(fleet.runtime, "cli", started.workflow_id)
    await workflows.restart(fleet.runtime, "cli", started.workflow_id)
    await advance(fleet.runtime, started.workflow_id)
    [again] = [row for row in await fleet.rows(Stage) if row.kind == "publish" and row.status == "running"]
    assert again.id != stage.id
    [asked] = await fleet.rows(Approval)
    other = asked.payload | {"arguments": asked.payload["arguments"] | {"commit": "0" * 40}}
    await fleet.insert(Approval, asked._asdict() | {"id": new_id(), "payload": other, "status": "used"})
    await fleet.execute(
        update(MessageIn)
        .where(MessageIn.id == again.id)
        .values(content={"prompt": '{"tool": "publish", "asks": []}', "workflow": {"stage": "publish"}})
    )
    await fleet.settle_down()
    view = await seen(fleet, started)
    assert view.row.status == "failed"
    assert "nobody has approved this (merge)" in view.row.outcome
    assert git(repository, "branch", "--list", "longshore/*") == ""


async def test_a_branch_that_has_moved_is_merged_onto_and_asked_about_again(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    fleet = await foreman(make_fleet, folder)
    started = await begin(fleet, repository, branch="main")
    await fleet.settle_down()
    (repository / "other.py").write_text("x = 1\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "Meanwhile")
    meanwhile = git(repository, "rev-parse", "HEAD")
    await say(fleet, approve=True)
    view = await seen(fleet, started)
    assert view.row.status == "running"
    assert len(view.waiting) == 1, "another commit needs another yes"
    await say(fleet, approve=True)
    view = await seen(fleet, started)
    assert view.row.status == "completed", view.row.outcome
    assert git(repository, "rev-parse", "main^1") == meanwhile
    assert (repository / "calc.py").read_text() == MENDED, "the branch is checked out: its files follow"
    assert (repository / "other.py").exists()


async def test_what_cannot_be_done_is_refused_before_anything_begins(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    fleet = await foreman(make_fleet, folder)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"goal": "  "}, "say what is to be reached"),
        ({"repository": folder}, "repository"),
        ({"base": "nowhere"}, "nowhere"),
        ({"builders": ("nobody",)}, "there is no provider 'nobody'"),
        ({"pull_request": True}, "LONGSHORE_GITHUB_TOKEN"),
        ({"into": "main"}, "--pull-request"),
        ({"branch": "a b"}, "'a b' is no name for a branch"),
        ({"pull_request": True, "into": "-x"}, "'-x' is no name for a branch"),
        ({"check": ""}, "--check: it is empty"),
        ({"check": "x" * 501}, "--check: it has 501 characters; at most 500 are taken"),
        ({"tries": 0}, "tries: 0 is not between 1 and 20"),
        ({"agent": "nobody"}, "there is no agent 'nobody'"),
    ]
    for changes, why in bad:
        wanted: dict[str, Any] = {"repository": repository, "goal": "add must add", "builders": ("smith",)}
        with pytest.raises(RefusedError, match=why):
            await start(fleet.runtime, "cli", Wanted(**{"planner": "judge", "reviewer": "critic"} | wanted | changes))
    assert await fleet.rows(Workflow) == []


async def test_a_repository_without_a_test_command_says_what_to_do(make_fleet: MakeFleet, folder: Path) -> None:
    repository = make_repository(folder / "bare", {"README": "hello\n"})
    fleet = await foreman(make_fleet, folder)
    started = await begin(fleet, repository)
    await fleet.settle_down()
    view = await seen(fleet, started)
    assert view.row.status == "failed"
    assert "--check 'make test'" in view.row.outcome


async def test_an_agent_that_hands_nothing_in_is_asked_again_and_then_it_stops(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    fleet = await foreman(make_fleet, folder, judge="I would rather not.")
    started = await begin(fleet, repository)
    await fleet.settle_down()
    judge = fleet.runtime.registry.providers.get("judge")
    assert ["You ended without calling submit_plan" in prompt for prompt in judge.prompts] == [False, True, True]  # type: ignore[union-attr]
    view = await seen(fleet, started)
    assert (view.row.status, view.row.outcome) == ("failed", "planning failed: it ended without handing anything in")


@pytest.mark.spec("P21")
async def test_the_money_of_the_whole_is_limited_and_more_can_be_granted(
    make_fleet: MakeFleet, folder: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mend = Call("write_file", {"path": "calc.py", "content": MENDED})
    plan = {"summary": "s", "tasks": [{"key": "one", "title": "Mend add", "goal": "g", "acceptance": ["a"]}]}
    answers = script(
        rule("Plan how", reply(Call("submit_plan", plan)), "Planned."), rule("Task: Mend add", reply(mend), "Mended.")
    )
    async with model_api(monkeypatch, answers):
        registry = registry_of(critic=APPROVE)
        registry.providers._made["anthropic"] = AnthropicProvider()
        fleet = await make_fleet(registry, workspace_root=folder / "workspaces")
        roles = {"planner": "anthropic", "builders": ("anthropic",), "reviewer": "critic"}
        started = await begin(fleet, repository, **roles, budget_usd=0.01)
        await fleet.execute(update(Workflow).values(budget_usd=0.000001))
        await fleet.settle_down()
        [asked] = (await seen(fleet, started)).waiting
        assert asked.category == "budget"
        assert asked.summary.startswith("the budget of workflow ")
        assert "more?" in asked.summary, "and not only for today"
        ring(fleet.runtime, await decide(fleet.db, asked.id, approve=True, usd=5.0))
        await fleet.settle_down()
        await say(fleet, approve=True, category="merge")
        assert (await seen(fleet, started)).row.status == "completed"
        [day] = [row for row in await fleet.rows(BudgetDay) if row.user_id.endswith(started.workflow_id)]
        assert day.spent_usd > 0
        assert (await seen(fleet, started)).cost_usd == pytest.approx(day.spent_usd)


@pytest.mark.spec("P14")
async def test_the_clerk_calls_nothing_for_anybody_but_a_workflow(make_fleet: MakeFleet, folder: Path) -> None:
    fleet = await foreman(make_fleet, folder)
    await fleet.add_group(provider="clerk")
    ask = {"tool": "write_file", "arguments": {"path": "a", "content": "b"}}
    await fleet.send(json.dumps({"tool": "send_message", "asks": [ask]}))
    await fleet.settle_down()
    assert not (folder / "workspaces" / "demo" / "a").exists()
    assert ["there is no tool" in row.content["text"] for row in await fleet.outbox()] == [True]


async def test_nothing_is_left_open_when_the_goal_is_reached(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    fleet = await foreman(make_fleet, folder)
    await begin(fleet, repository)
    await fleet.settle_down()
    await say(fleet, approve=True)
    assert {row.status for row in await fleet.sessions()} == {"closed"}
    root = fleet.runtime.settings.workspace_root
    assert list((root / FOLDER).iterdir())
    await tidy_workflows(fleet.db, root)
    assert list((root / FOLDER).iterdir()) == []
