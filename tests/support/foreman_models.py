"""What the stand-in model server answers when real CLI agents plan, build and review for a foreman: claude plans and
mends one function with its shell, codex the other, gemini reviews both."""

from typing import Final, TypedDict

import pytest

from tests.support.cli_agents.claude import CLAUDE
from tests.support.cli_agents.codex import CODEX
from tests.support.cli_agents.gemini import GEMINI
from tests.support.foreman_setup import CALC, TEST
from tests.support.model_api import Call, ModelApi, ModelApiThread, Script, reply, rule, script
from tests.support.programs import Cli, ProgramHarness

PROGRAMS: Final[tuple[Cli, ...]] = (CLAUDE, CODEX, GEMINI)
FILES: Final = {
    "calc.py": CALC,
    "test_calc.py": TEST.replace("import add", "import add, double")
    + "\n    def test_double(self):\n        self.assertIn(double(2), (4, 6))\n",
}
MENDED: Final = CALC.replace("a - b", "a + b").replace("a + a + a", "a + a")
_PLAN: Final = {
    "summary": "Two functions are wrong; each is a task.",
    "tasks": [
        {"key": "add", "title": "Mend add", "goal": "add adds", "acceptance": ["add(2, 3) is 5"]},
        {"key": "double", "title": "Mend double", "goal": "double doubles", "acceptance": ["double(2) is 4"]},
    ],
}
_REVIEW: Final = {"verdict": "approve", "summary": "It does what it says.", "findings": []}
_ADD: Final = "sed -i 's/a - b/a + b/' calc.py"
# The test of `add` fails until that is mended, also where only `double` is to be.
_DOUBLE: Final = f"sed -i 's/a + a + a/a + a/' calc.py; {_ADD}"


def foreman_script() -> Script:
    return script(
        rule("Review this change", reply(Call("~submit_review$", _REVIEW)), "Approved."),
        rule("Plan how this goal", reply("I look.", Call("~submit_plan$", _PLAN)), "Planned."),
        rule("Task: Mend add|“Mend add”", reply(Call("exec_command", {"cmd": _ADD})), "I mended add."),
        rule(
            "Task: Mend double|“Mend double”",
            reply(Call("Bash", {"command": f"{_DOUBLE}; {_ADD}"})),
            "I mended double.",
        ),
        rule("was interrupted|were interrupted", "I had done it."),
    )


class Wishes(TypedDict):
    planner: str
    builders: tuple[str, ...]
    reviewer: str


def wishes() -> Wishes:
    """Who does what, as `Wanted` takes it. codex is given a model it does not know: those get plain tools."""
    return {
        "planner": f"claude-code:{CLAUDE.model}",
        "builders": (f"codex:{CODEX.model}", f"claude-code:{CLAUDE.model}"),
        "reviewer": f"gemini:{GEMINI.model}",
    }


def environment(api: ModelApi | ModelApiThread) -> dict[str, str]:
    """Where the programs find their models."""
    found: dict[str, str] = {}
    for cli in PROGRAMS:
        key, address, path = cli.keys
        found |= {key: ProgramHarness.key, address: f"{api.url}{path}"}
    return found


def set_environment(monkeypatch: pytest.MonkeyPatch, api: ModelApi) -> None:
    for name, value in environment(api).items():
        monkeypatch.setenv(name, value)
