"""The provider contract on `gemini`: the real, unmodified program over ACP, in the sandbox, with a stand-in model."""

from collections.abc import AsyncIterator

import pytest

from adapters.providers.cli.gemini import GeminiProvider
from adapters.providers.conformance import CHECKS, EDITED_FILE, Check, NotApplicable, run_check
from tests.support import program_checks
from tests.support.model_api import Call, reply, rule
from tests.support.program_checks import LINGER_COMMAND, PROGRAM_CHECKS
from tests.support.programs import Cli, ProgramHarness, harness_of

GEMINI = Cli(
    name="gemini",
    provider=GeminiProvider,
    rules=(
        rule("tool", reply("Let me see.", Call("~probe$", {})), "the probe says {result}"),
        rule("edit", reply(Call("write_file", {"file_path": EDITED_FILE, "content": "hello\n"})), "written"),
        rule("risky", reply(Call("run_shell_command", {"command": "git push origin main"})), "pushed"),
        rule("linger", reply(Call("run_shell_command", {"command": LINGER_COMMAND})), "done"),
    ),
    keys=("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", ""),
    model="gemini-2.5-flash",
    bad_options={"an option it does not have": ({"temperature": 1}, "temperature")},
)


@pytest.fixture
async def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgramHarness]:
    async with harness_of(GEMINI, monkeypatch) as made:
        yield made


@pytest.mark.spec("P15", "P7")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_gemini_keeps_the_contract(check: Check, harness: ProgramHarness) -> None:
    outcome = await run_check(check, harness)
    if isinstance(outcome, NotApplicable):
        assert check.name == "asks_for_the_same_calls_again"


@pytest.mark.spec("P15", "P7", "P12", "F9", "F10")
@pytest.mark.parametrize("check", PROGRAM_CHECKS, ids=lambda check: check.__name__)
async def test_gemini_behaves_as_a_program(check: program_checks.Check, harness: ProgramHarness) -> None:
    await check(harness)
