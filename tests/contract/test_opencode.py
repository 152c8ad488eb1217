"""The provider contract on `opencode`: the real, unmodified program over ACP, in the sandbox, with a stand-in model."""

from collections.abc import AsyncIterator

import pytest

from adapters.providers.cli.opencode import OpencodeProvider
from adapters.providers.conformance import CHECKS, EDITED_FILE, Check, NotApplicable, run_check
from tests.support import program_checks
from tests.support.model_api import Call, reply, rule
from tests.support.program_checks import LINGER_COMMAND, PROGRAM_CHECKS
from tests.support.programs import Cli, ProgramHarness, harness_of


def shell(line: str) -> Call:
    return Call("bash", {"command": line, "description": "what is asked"})


OPENCODE = Cli(
    name="opencode",
    provider=OpencodeProvider,
    rules=(
        rule("tool", reply("Let me see.", Call("~probe$", {})), "the probe says {result}"),
        rule("edit", reply(Call("write", {"filePath": f"/workspace/{EDITED_FILE}", "content": "hello\n"})), "written"),
        rule("risky", reply("I will push it.", shell("git push origin main")), "It is pushed."),
        rule("linger", reply(shell(LINGER_COMMAND)), "It has ended."),
        rule("Not allowed", "I see: {text}"),
    ),
    keys=("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    model="gpt-6.1-terra",
    bad_options={"an option it does not have": ({"temperature": 1}, "temperature")},
)


@pytest.fixture
async def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgramHarness]:
    async with harness_of(OPENCODE, monkeypatch) as made:
        yield made


@pytest.mark.spec("P15", "P8", "T1", "P14")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_opencode_keeps_the_contract(check: Check, harness: ProgramHarness) -> None:
    outcome = await run_check(check, harness)
    if isinstance(outcome, NotApplicable):
        assert check.name == "asks_for_the_same_calls_again"  # a second attempt is another conversation of the model


@pytest.mark.spec("P8", "P12", "F9", "F10")
@pytest.mark.parametrize("check", PROGRAM_CHECKS, ids=lambda check: check.__name__)
async def test_opencode_behaves_as_a_program(check: program_checks.Check, harness: ProgramHarness) -> None:
    await check(harness)
