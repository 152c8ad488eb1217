"""The provider contract on claude: the real program, in the sandbox, by stream-json both ways."""

from collections.abc import AsyncIterator

import pytest

from adapters.providers.cli.claude import ClaudeCodeProvider
from adapters.providers.conformance import CHECKS, EDITED_FILE, Check, NotApplicable, run_check
from tests.support import program_checks
from tests.support.model_api import Call, reply, rule
from tests.support.program_checks import LINGER_COMMAND, PROGRAM_CHECKS
from tests.support.programs import Cli, ProgramHarness, harness_of

CLAUDE = Cli(
    name="claude",
    provider=ClaudeCodeProvider,
    rules=(
        rule("tool", reply("Let me see.", Call("~probe$", {})), "the probe says {result}"),
        rule("edit", reply(Call("Write", {"file_path": EDITED_FILE, "content": "written\n"})), "It is written."),
        rule("risky", reply("I will push it.", Call("Bash", {"command": "git push origin main"})), "It is pushed."),
        rule("linger", reply(Call("Bash", {"command": LINGER_COMMAND})), "It has ended."),
    ),
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    model="claude-sonnet-5-5",
    bad_options={"an option it does not have": ({"temperature": 1}, "temperature")},
)


@pytest.fixture
async def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgramHarness]:
    async with harness_of(CLAUDE, monkeypatch) as harness:
        yield harness


@pytest.mark.spec("P15", "P5", "T1", "P14")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_claude_keeps_the_contract(check: Check, harness: ProgramHarness) -> None:
    outcome = await run_check(check, harness)
    if isinstance(outcome, NotApplicable):
        assert check.name == "asks_for_the_same_calls_again"  # a second attempt is another conversation of the model


@pytest.mark.spec("P5", "P12", "F9", "F10")
@pytest.mark.parametrize("check", PROGRAM_CHECKS, ids=lambda check: check.__name__)
async def test_claude_behaves_as_a_program(check: program_checks.Check, harness: ProgramHarness) -> None:
    await check(harness)
