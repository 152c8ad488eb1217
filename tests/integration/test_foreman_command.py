"""`longshore foreman` on a fleet's rows: what it shows, what it does, what it refuses, and how it exits."""

import asyncio
import io
import json
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from sqlalchemy import select
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from gateway.cli import desk
from gateway.cli.foreman_board import board
from gateway.cli.main import app
from models import Approval, Audit, Workflow
from models.fleet import report_alive
from models.lookup import short
from tests.support.fleet import Fleet, MakeFleet
from tests.support.foreman_setup import foreman, make_repository, say
from tests.support.repositories import git
from tests.support.servers import private_folder
from tests.support.workflow_rows import DIFF, STATES, State, put_workflow
from workers.workflows.view import look

pytestmark = pytest.mark.spec("O1", "G4")

Cli = Callable[..., Awaitable[Result]]
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"])  # the words do not depend on it
# Colours, a turned reading direction, markup of ours, and a window's title.
HOSTILE = "\x1b[31m \x9b2J \u202e [red]tide[/red] \x1b]0;x\x07"


@pytest.fixture
async def cli(fleet: Fleet, database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return command_line(fleet, database_url, redis_url, tmp_path, monkeypatch)


def command_line(fleet: Fleet, database_url: str, redis_url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """`longshore foreman` in this process, with the fleet's bells and providers."""
    env = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "LONGSHORE_HOME": str(home / "home")}
    env |= {"HOME": str(home), "TERM": "dumb", "DEFAULT_PROVIDER": "scripted"}
    monkeypatch.setattr(desk, "configure_logs", lambda *_, **__: None)  # those of other tests
    monkeypatch.setattr(desk.Desk, "bells", fleet.bells)
    monkeypatch.setattr(desk.Desk, "registry", fleet.runtime.registry)
    monkeypatch.setattr(desk.out, "_width", 150)

    async def call(*arguments: str, code: int = 0, given: str | None = None) -> Result:
        with capture_logs():
            done = await asyncio.to_thread(CliRunner().invoke, app, ["foreman", *arguments], input=given, env=env)
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    return call


def said(result: Result) -> str:
    """On one line, however the terminal has broken it."""
    return " ".join((result.stdout + result.stderr).split())


@pytest.mark.parametrize("state", STATES)
async def test_every_state_is_shown_whole_and_steers_no_terminal(cli: Cli, fleet: Fleet, state: State) -> None:
    rows = await put_workflow(fleet, state, word=HOSTILE)
    outputs = [await cli("list"), await cli("show", short(rows.id)), await cli("show", rows.id, "--diff")]
    if state in ("failed", "cancelled", "completed"):
        outputs.append(await cli("watch", rows.id, code=0 if state == "completed" else 1))
    for output in outputs:
        odd = [char for char in output.stdout + output.stderr if char != "\n" and not char.isprintable()]
        assert odd == [], repr(output.stdout)
    story = said(outputs[1])
    assert "[red]tide[/red]" in story, "what looks like our markup is shown as it is"
    for words in (short(rows.id), "Totals are one too small", "/srv/shop", "plans claude-code:opus: plans well",
                  "builds codex: edits files by itself", "reviews gemini", "branch longshore/right-totals of /srv/shop",
                  "at most 4 tasks, 3 tries each, 4 h, $5.00", "not committed", "checked by make test"):  # fmt: skip
        assert words in story


async def test_the_story_of_one_names_findings_failures_costs_and_what_to_type(cli: Cli, fleet: Fleet) -> None:
    negative = said(await cli("show", (await put_workflow(fleet, "negative")).id))
    for words in ("check clerk make test ended with 1", "changes asked for (1 blocking, 1 minor)",
                  "blocking: An empty list breaks it totals.py:2", "suggestion: start with 0", "done if make test",
                  "codex: 24k tokens in, 1.6k out, $0.60", "together: $0.96"):  # fmt: skip
        assert words in negative
    failed = said(await cli("show", (rows := await put_workflow(fleet, "failed")).id))
    assert "| FAILED test_totals.py::test_sum" in failed
    assert "failed: “Mend the sum” was given up after 3 tries by codex" in failed
    assert f"longshore foreman restart {short(rows.id)}" in failed
    waiting = said(await cli("show", (await put_workflow(fleet, "waiting")).id))
    [approval] = await fleet.rows(Approval)
    assert "waits for you: merge: to merge cccccccccccc into longshore/right-totals of /srv/shop" in waiting
    for command in ("approve", "approvals", "deny"):
        assert f"longshore {command} {short(approval.id)}" in waiting
    asking = said(await cli("show", (await put_workflow(fleet, "asking")).id))
    assert "waits for you: Which currency? (1 euro 2 dollar) longshore answer" in asking
    standing = said(await cli("list"))
    for words in ("1 of 2 tasks done", "waits for you", "was given up after 3 tries"):
        assert words in standing


async def test_the_change_is_the_whole_or_what_there_is_so_far(cli: Cli, fleet: Fleet) -> None:
    planning = await put_workflow(fleet, "planning")
    assert (await cli("show", planning.id, "--diff")).stdout == "nothing has been changed yet\n"
    tasks = await put_workflow(fleet, "negative")
    assert (await cli("show", tasks.id, "--diff")).stdout == DIFF * 2
    whole = await put_workflow(fleet, "waiting")
    assert (await cli("show", whole.id, "--diff")).stdout == DIFF
    assert json.loads((await cli("show", whole.id, "--diff", "--json")).stdout)["diff"] == DIFF


async def test_programs_get_all_of_it(cli: Cli, fleet: Fleet) -> None:
    rows = await put_workflow(fleet, "negative", word=HOSTILE)
    shown = json.loads((await cli("show", rows.id, "--json")).stdout)
    assert (shown["id"], shown["agent"], shown["status"], shown["outcome"]) == (rows.id, "foreman", "running", None)
    assert shown["roles"]["planner"] == {"provider": "claude-code", "model": "opus", "why": f"plans well {HOSTILE}"}
    assert [task["key"] for task in shown["tasks"]] == ["totals", "docs"]
    assert [task["is_done"] for task in shown["tasks"]] == [False, True]
    stages = {stage["id"]: stage for stage in shown["stages"]}
    totals = [stages[stage_id] for stage_id in shown["tasks"][0]["stages"]]
    assert [(stage["kind"], stage["state"]) for stage in totals] == [
        ("build", "completed"),
        ("check", "negative"),
        ("fix", "completed"),
        ("check", "completed"),
        ("review", "negative"),
        ("fix", "running"),
    ]
    assert "diff" not in totals[1]["output"]
    assert totals[1]["output"]["log"].startswith("FAILED")
    assert (totals[0]["usage"]["cost_usd"], shown["usage"]["codex"]["cost_usd"]) == (0.4, pytest.approx(0.6))
    listed = json.loads((await cli("list", "--json")).stdout)
    assert listed == [{name: shown[name] for name in listed[0]}]


@ONE_DATABASE
@pytest.mark.parametrize("columns", [120, 80, 40])
async def test_the_board_fits_the_terminal(fleet: Fleet, columns: int) -> None:
    for state in STATES:
        rows = await put_workflow(fleet, state, word=HOSTILE)
        view = await fleet.db.read(lambda conn, rows=rows: look(conn, rows.id))  # type: ignore[misc]
        assert view is not None
        console = Console(width=columns, file=io.StringIO(), legacy_windows=False)
        console.print(board(view, "the database is away"))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert all(cell_len(line) <= columns for line in text.splitlines()), text
        assert [char for char in text if char != "\n" and not char.isprintable()] == []
        assert view.row.status in text
        # What cannot be made shorter is there at any width: how each part stands, and how long it took.
        assert "✓" in text
        assert "1 min" in text


async def test_one_is_cancelled_and_goes_on_after_all(cli: Cli, fleet: Fleet) -> None:
    rows = await put_workflow(fleet, "running")
    name = short(rows.id)
    assert f"workflow {name} is running: there is nothing to restart" in said(await cli("restart", name, code=1))
    assert f"workflow {name} was cancelled" in said(await cli("cancel", name))
    [row] = await fleet.rows(Workflow)
    assert (row.status, row.outcome) == ("cancelled", "cancelled by the command line")
    assert "is over already (cancelled)" in said(await cli("cancel", name, code=1))
    assert f"longshore foreman watch {name}" in said(await cli("restart", name, "--minutes", "90"))
    [row] = await fleet.rows(Workflow)
    assert row.status == "running"
    assert fleet.bells.advances == [rows.id]
    assert [(line.who, line.act, line.target) for line in await fleet.rows(Audit, Audit.id)] == [
        ("cli", "workflow.cancel", rows.id),
        ("cli", "workflow.restart", rows.id),
    ]


@ONE_DATABASE
async def test_what_cannot_be_is_refused_before_anything_begins(cli: Cli, fleet: Fleet, tmp_path: Path) -> None:
    assert "no workflow ends with 'zzz'; see: longshore foreman list" in said(await cli("show", "zzz", code=1))
    assert "no workflow ends with" in said(await cli("show", "\udcff", code=1)), "bytes that are no text"
    for _ in range(2):
        await put_workflow(fleet, "planning")
    assert "several workflows end with ''" in said(await cli("cancel", "", code=1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    here = ("run", "--repo", str(tmp_path))
    for arguments, words in (
        ((*here,), "say what must be true in the end"),
        ((*here, "--goal", "x", "--goal-file", "-"), "say what must be true in the end"),
        ((*here, "--goal", "  "), "the goal must have 1 to"),
        ((*here, "--goal-file", str(tmp_path / "none")), "cannot be read (No such file"),
        ((*here, "--goal-file", str(tmp_path / "binary")), "it is not UTF-8"),
        ((*here, "--goal", "x", "--into", "main"), "add --pull-request"),
        ((*here, "--goal", "x", "--remote", "mine"), "add --pull-request"),
        ((*here, "--goal", "x", "--builders", "codex,"), "name providers with commas"),
        ((*here, "--goal", "x", "--tries", "0"), "--tries"),
        ((*here, "--goal", "x", "--tasks", "99"), "--tasks"),
        ((*here, "--goal", "x", "--budget", "0"), "--budget"),
        ((*here, "--goal", "x", "--minutes", "0"), "--minutes"),
        (("run", "--repo", str(tmp_path / "none"), "--goal", "x"), "is not a folder"),
        (("restart", "x", "--minutes", "-1"), "--minutes"),
    ):
        assert words in said(await cli(*arguments, code=2)), arguments
    # Of the right form, and still not possible: nothing was begun.
    assert "git" in said(await cli(*here, "--goal", "x", code=1))
    assert len(await fleet.rows(Workflow)) == 2


@ONE_DATABASE
@pytest.mark.spec("O2")
async def test_who_would_do_what_is_shown_with_reasons(
    cli: Cli, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, no_programs: None
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "fake")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    await fleet.db.transact(
        lambda conn: report_alive(conn, "w@h", "worker", pid=1, queues=["agent.anthropic", "agent.scripted"])
    )
    words = said(await cli("roles"))
    assert "now it would be: anthropic: planner;" in words
    assert "anthropic reviews its own work: no other provider is usable for that" in words
    table = json.loads((await cli("roles", "--json")).stdout)
    assert table["chosen"]["planner"] == "anthropic"
    points = {(row["role"], row["provider"]): row["score"] for row in table["table"]}
    assert points["builder", "anthropic"] > 0
    assert points["builder", "openai"] is None


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the sandbox's user may go."""
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def repository(folder: Path) -> Path:
    return make_repository(folder / "repo")


ROLES = ("--planner", "judge", "--builders", "smith", "--reviewer", "critic")


async def test_a_goal_is_reached_in_front_of_whoever_began_it(
    make_fleet: MakeFleet,
    folder: Path,
    repository: Path,
    database_url: str,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = await foreman(make_fleet, folder)
    cli = command_line(fleet, database_url, redis_url, folder, monkeypatch)
    (repository / "notes.txt").write_text("mine")
    limits = ("--budget", "5", "--minutes", "30", "--tries", "2", "--tasks", "2")
    more = (*ROLES, *limits, "--check", "python3 -m unittest")
    running = asyncio.ensure_future(
        cli("run", "--repo", str(repository), "--goal-file", "-", *more, given="add must add\n")
    )
    await asyncio.wait_for(_until_asked(fleet), 60)
    await say(fleet, approve=True)
    done = await asyncio.wait_for(running, 60)
    [row] = await fleet.rows(Workflow)
    assert (row.goal, row.budget_usd, row.spec["tries"], row.spec["most_tasks"]) == ("add must add", 5.0, 2, 2)
    commit, branch = git(repository, "rev-parse", "HEAD")[:12], row.spec["target"]["branch"]
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in (
        f"workflow {short(row.id)} of foreman",
        f"repository {repository}, from {commit}",
        "checked by python3 -m unittest",
        "note 1 file has changes that are not committed: builders will not see them",
        f"result branch {branch} of {repository}",
        "limits at most 2 tasks, 2 tries each, 30 min, $5.00",
        "plan begins (judge)",
        "mend-add: Mend add (smith, reviewed by critic)",
        "mend-add: build begins (smith)",
        f"completed: {row.outcome}",
        f"branch {branch} of {repository}",
    ):
        assert line in lines, done.stdout
    assert any(line.startswith("mend-add: check done: passed (") for line in lines)
    assert any(line.startswith("approved by cli: foreman wants to merge ") for line in lines), done.stdout
    assert "note no worker runs now: nothing begins until one does" in lines, "no process of this fleet says it lives"
    assert git(repository, "log", "-1", "--format=%s", branch) == "Mend add"


async def test_one_is_begun_and_left_alone(
    make_fleet: MakeFleet,
    folder: Path,
    repository: Path,
    database_url: str,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = await foreman(make_fleet, folder)
    cli = command_line(fleet, database_url, redis_url, folder, monkeypatch)
    begin = ("run", "--repo", str(repository), "--goal", "add must add", *ROLES, "--detach")
    told = said(await cli(*begin))
    [row] = await fleet.rows(Workflow)
    assert "found by looking at the repository's files" in told
    assert f"watch it: longshore foreman watch {short(row.id)}" in told
    made = json.loads((await cli(*begin, "--branch", "mended", "--json")).stdout)
    assert (made["status"], made["target"]["branch"], made["started_by"]) == ("running", "mended", "cli")
    assert fleet.bells.advances == [row.id, made["id"]]
    refused = said(await cli(*begin, "--reviewer", "nobody", code=1))
    assert "there is no provider 'nobody' here" in refused


async def _until_asked(fleet: Fleet) -> None:
    """The fleet works until it waits for somebody."""

    async def asked(conn: Any) -> bool:
        return (await conn.execute(select(Approval.id).where(Approval.status == "pending"))).first() is not None

    while not await fleet.db.read(asked):
        await fleet.settle_down()
        await asyncio.sleep(0.05)
