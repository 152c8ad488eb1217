"""Workflows in every state people may find them in, written straight as rows: for whatever shows them. No engine runs;
what `put_workflow` returns can write on from where the story ends, so that a test can watch a stage end."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from models import AgentGroup
from models.base import new_id
from models.workflows import Workflow
from tests.support.fleet import Fleet
from tests.support.workflow_writing import WorkflowRows
from workers.workflows.spec import FOREMAN

State = Literal["planning", "running", "negative", "asking", "waiting", "failed", "cancelled", "completed"]
BASE, BUILT, MERGED = "a" * 40, "b" * 40, "c" * 40
DIFF: Final = """diff --git a/totals.py b/totals.py
--- a/totals.py
+++ b/totals.py
@@ -1,2 +1,2 @@
 def total(prices):
-    return sum(prices) - 1
+    return sum(prices)
"""


def spec(word: str = "", **changes: Any) -> dict[str, Any]:
    """codex and claude-code build, gemini reviews, and a branch of the repository gets the result."""
    given: dict[str, Any] = {
        "repository": "/srv/shop",
        "planner": {"provider": "claude-code", "model": "opus", "why": f"plans well {word}".strip()},
        "builders": [{"provider": "codex", "why": "edits files by itself"}, {"provider": "claude-code"}],
        "reviewers": {"codex": {"provider": "gemini"}, "claude-code": {"provider": "gemini"}},
        "target": {"branch": "longshore/right-totals"},
        "notes": [f"the repository has changes that are not committed: nobody sees them {word}".strip()],
    }
    return given | changes


def plan(word: str = "") -> dict[str, Any]:
    """Two tasks: `totals` and `docs`."""
    told = {"constraints": ["no new dependency"], "acceptance": [f"make test passes {word}".strip()]}
    return {
        "summary": f"The sum is mended, and said in the documentation. {word}".strip(),
        "tasks": [
            {"key": "totals", "title": f"Mend the sum {word}".strip(), "goal": "The total is right.", **told},
            {"key": "docs", "title": "Say what a total is", "goal": "The README says it.", **told},
        ],
    }


def checked(ok: bool = True, word: str = "") -> dict[str, Any]:
    files = [{"path": "totals.py", "added": 1, "removed": 1}]
    made = {"ok": ok, "commit": BUILT, "tree": "d" * 40, "files": files, "diff": DIFF + f"+# {word}\n" * bool(word)}
    failed = {"why": "make test ended with 1", "log": f"FAILED test_totals.py::test_sum {word}\n1 failed in 0.02s"}
    return made if ok else made | failed


def reviewed(approve: bool = True, word: str = "") -> dict[str, Any]:
    blocking: dict[str, Any] = {"severity": "blocking"}
    blocking |= {"title": f"An empty list breaks it {word}".strip(), "file": "totals.py"}
    blocking |= {"line": 2, "detail": "sum of nothing", "suggestion": "start with 0"}
    minor = {"severity": "minor", "title": "A name is long", "detail": "prices says enough"}
    words = "Looked at all of it."
    if approve:
        return {"verdict": "approve", "summary": words, "findings": [minor]}
    return {"verdict": "request_changes", "summary": words, "findings": [blocking, minor]}


def merged(word: str = "") -> dict[str, Any]:
    return {**checked(word=word), "commit": MERGED, "onto": BASE}


async def put_workflow(fleet: Fleet, state: State, *, folder: str = "foreman", word: str = "") -> WorkflowRows:
    """A workflow of that agent (made if there is none) in that state; `word` stands in all that agents, programs and
    people have said of it."""
    rows = await _begun(fleet, folder, word)
    await _STORIES[state](rows, word)
    return rows


async def _begun(fleet: Fleet, folder: str, word: str) -> WorkflowRows:
    groups = {row.folder: row.id for row in await fleet.rows(AgentGroup)}
    group_id = groups.get(folder) or await fleet.add_group(folder)
    now, workflow_id = datetime.now(UTC), new_id()
    began = now - timedelta(minutes=40)
    row = {"id": workflow_id, "kind": FOREMAN, "agent_group_id": group_id, "started_by": "cli", "budget_usd": 5.0}
    row |= {"goal": f"Totals are one too small: mend them. {word}".strip(), "spec": spec(word), "created_at": began}
    await fleet.insert(Workflow, {**row, "deadline_at": now + timedelta(hours=3)})
    return WorkflowRows(fleet, workflow_id, group_id, began)


async def _planning(rows: WorkflowRows, word: str) -> None:
    """The planner is at it."""
    await rows.do("prepare", {"ok": True, "commit": BASE, "check": "make test", "branch": "main"}, minutes=1)
    await rows.begin("plan", provider="claude-code", model="opus", doing=f"tool: read_file {word}".strip())


async def _planned(rows: WorkflowRows, word: str) -> None:
    await rows.do("prepare", {"ok": True, "commit": BASE, "check": "make test", "branch": "main"}, minutes=1)
    await rows.do("plan", plan(word), provider="claude-code", model="opus", cost="0.21")


async def _running(rows: WorkflowRows, word: str) -> None:
    """Both tasks are being built."""
    await _planned(rows, word)
    await rows.begin("build", "totals", provider="codex", doing=f"tool: run_command {word}".strip())
    await rows.begin("build", "docs", provider="claude-code")


async def _negative(rows: WorkflowRows, word: str) -> None:
    """Checks of `totals` have failed, then changes were asked for, and it is mended; `docs` is done."""
    await _planned(rows, word)
    await rows.do("build", None, "totals", provider="codex", cost="0.4")
    await rows.do("build", None, "docs", provider="claude-code", cost="0.1")
    await rows.do("check", checked(False, word), "totals", minutes=1)
    await rows.do("check", checked(), "docs", minutes=1)
    await rows.do("fix", None, "totals", round=1, provider="codex", cost="0.2")
    await rows.do("review", reviewed(), "docs", provider="gemini", cost="0.02")
    await rows.do("check", checked(word=word), "totals", round=1, minutes=1)
    await rows.do("review", reviewed(False, word), "totals", round=1, provider="gemini", cost="0.03")
    await rows.begin("fix", "totals", round=2, provider="codex")


async def _asking(rows: WorkflowRows, word: str) -> None:
    """A builder has asked a question."""
    await _planned(rows, word)
    stage = await rows.begin("build", "totals", provider="codex")
    await rows.ask_question(stage, f"Which currency? {word}".strip(), ["euro", "dollar"])
    await rows.begin("build", "docs", provider="claude-code")


async def _together(rows: WorkflowRows, word: str) -> None:
    await _planned(rows, word)
    for task, provider in (("totals", "codex"), ("docs", "claude-code")):
        await rows.do("build", None, task, provider=provider, cost="0.4")
        await rows.do("check", checked(word=word), task, minutes=1)
        await rows.do("review", reviewed(), task, provider="gemini", cost="0.02")
    await rows.do("merge", merged(word), minutes=1)


async def _waiting(rows: WorkflowRows, word: str) -> None:
    """All is done; handing it over waits for somebody's word."""
    await _together(rows, word)
    stage = await rows.begin("publish")
    where = {"repository": "/srv/shop", "branch": "longshore/right-totals", "commit": MERGED}
    arguments = {"category": "merge", "why": "it is merged", **where, "files": [f"totals.py +1 -1 {word}".strip()]}
    summary = f"to merge {MERGED[:12]} into longshore/right-totals of /srv/shop {word}".strip()
    await rows.ask_approval(stage, summary, {"tool": "ask_approval", "arguments": arguments}, "merge")


async def _failed(rows: WorkflowRows, word: str) -> None:
    """`totals` failed its checks three times."""
    await _planned(rows, word)
    await rows.do("build", None, "totals", provider="codex", cost="0.4")
    await rows.do("check", checked(False, word), "totals", minutes=1)
    for turn in (1, 2):
        await rows.do("fix", None, "totals", round=turn, provider="codex", cost="0.2")
        await rows.do("check", checked(False, word), "totals", round=turn, minutes=1)
    await rows.do("build", None, "docs", provider="claude-code", status="cancelled", error="the workflow is over")
    await rows.end(
        "failed", f"“Mend the sum” was given up after 3 tries by codex: make test ended with 1 {word}".strip()
    )


async def _cancelled(rows: WorkflowRows, word: str) -> None:
    await _planned(rows, word)
    over = f"the workflow is over: cancelled by the command line {word}".strip()
    await rows.do("build", None, "totals", provider="codex", status="cancelled", error=over)
    await rows.end("cancelled", f"cancelled by the command line {word}".strip())


async def _completed(rows: WorkflowRows, word: str) -> None:
    await _together(rows, word)
    published = {"ok": True, "branch": "longshore/right-totals", "commit": MERGED}
    await rows.do("publish", published, minutes=1)
    summary = (
        f"Mend the sum\n\n- **Mend the sum** built by codex, reviewed by gemini {word}\n\nChecked with `make test`.\n"
    )
    result = {"branch": "longshore/right-totals", "commit": MERGED, "summary": summary, "files": ["totals.py"]}
    await rows.end("completed", f"branch longshore/right-totals at {MERGED[:12]}", result)


_STORIES: Final[Mapping[State, Callable[[WorkflowRows, str], Awaitable[None]]]] = {
    "planning": _planning,
    "running": _running,
    "negative": _negative,
    "asking": _asking,
    "waiting": _waiting,
    "failed": _failed,
    "cancelled": _cancelled,
    "completed": _completed,
}
STATES: Final = tuple(_STORIES)
