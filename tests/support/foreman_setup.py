"""A small repository with a bug, and agents that play their parts in mending it: for tests of the foreman."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from adapters.contracts import QueryInput
from adapters.providers.clerk import ClerkProvider
from adapters.providers.scripted import ScriptedProvider, ScriptedQuery
from adapters.registry import Drivers, Registry
from models import Approval
from tests.support.fleet import Fleet
from tests.support.repositories import git
from workers.consent.approvals import decide
from workers.house import ring
from workers.workflows.starting import Started, Wanted, start
from workers.workflows.view import WorkflowView, look

CALC = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a + a + a\n"
MENDED = CALC.replace("a - b", "a + b")
TEST = (
    "import unittest\n\nfrom calc import add\n\n\nclass TestAdd(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
)
PLAN = """
- play:
  - tool: submit_plan
    with:
      summary: Mend add where it subtracts.
      tasks:
        - {key: mend-add, title: Mend add, goal: add adds, acceptance: ["add(2, 3) is 5"]}
  - answer: The plan is handed in.
"""
APPROVE = """
- play:
  - tool: submit_review
    with: {verdict: approve, summary: It adds now., findings: []}
  - answer: Approved.
"""


def make_repository(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for name, text in (files or {"calc.py": CALC, "test_calc.py": TEST}).items():
        (folder / name).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Begin")
    return folder


class Player(ScriptedProvider):
    """Plays a script of its own, under a name of its own."""

    def __init__(self, name: str, script: str) -> None:
        self.manifest = replace(ScriptedProvider.manifest, adapter_id=name)
        self.script = script
        self.prompts: list[str] = []

    def query(self, given: QueryInput) -> ScriptedQuery:
        self.prompts.append(str(given.prompt))
        return ScriptedQuery(replace(given, options={"script": self.script}))


def writes(path: str, content: str, says: str = "Done.") -> str:
    """A script that writes a file, whatever it is asked."""
    call = f"  - tool: write_file\n    with: {{path: {path!r}, content: {_quoted(content)}}}\n"
    return f"- play:\n{call}  - answer: {says}\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def registry_of(**players: str) -> Registry:
    """Providers by name, each with its script; and the clerk."""
    made: dict[str, Any] = {name: Player(name, script) for name, script in players.items()}
    return Registry(providers=Drivers("provider", made={**made, "clerk": ClerkProvider()}))


async def foreman(make_fleet: Callable[..., Awaitable[Fleet]], folder: Path, **players: str) -> Fleet:
    parts = {"judge": PLAN, "smith": writes("calc.py", MENDED), "critic": APPROVE} | players
    return await make_fleet(registry_of(**parts), workspace_root=folder / "workspaces")


async def begin(fleet: Fleet, repository: Path, **more: Any) -> Started:
    roles: dict[str, Any] = {"planner": "judge", "builders": ("smith",), "reviewer": "critic"}
    wanted = Wanted(repository=repository, goal="add must add", **roles | more)
    return await start(fleet.runtime, "cli", wanted)


async def seen(fleet: Fleet, started: Started) -> WorkflowView:
    view = await fleet.db.read(lambda conn: look(conn, started.workflow_id))
    assert view is not None
    return view


async def say(fleet: Fleet, *, approve: bool, category: str | None = None) -> list[Any]:
    """Decide all that waits (or that of one category) and go on. Returns what was decided."""
    waiting = [row for row in await fleet.rows(Approval, Approval.created_at) if row.status == "pending"]
    waiting = [row for row in waiting if category in (None, row.category)]
    for row in waiting:
        ring(fleet.runtime, await decide(fleet.db, row.id, approve=approve, user_id=None))
    await fleet.settle_down()
    return waiting
