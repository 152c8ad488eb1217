"""The provider contract on codex: the real program, in the sandbox, over its app-server."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from adapters.providers.cli.codex import CodexProvider
from adapters.providers.conformance import CHECKS, Check, NotApplicable, run_check
from tests.support import program_checks
from tests.support.model_api import Call, reply, rule
from tests.support.program_checks import LINGER_COMMAND, PROGRAM_CHECKS
from tests.support.programs import Cli, ProgramHarness, harness_of

PATCH = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: conformance.txt\n+written\n*** End Patch\nEOF\n"


def shell(line: str) -> Call:
    return Call("exec_command", {"cmd": line})


CODEX = Cli(
    name="codex",
    provider=CodexProvider,
    rules=(
        rule("tool", reply("Let me see.", Call("~probe$", {})), "the probe says {result}"),
        rule("edit", reply(shell(PATCH)), "It is written."),
        rule("risky", reply("I will push it.", shell("git push origin main")), "It is pushed."),
        rule("linger", reply(shell(LINGER_COMMAND)), "It has ended."),
    ),
    keys=("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    model="a-model-it-does-not-know",  # which gets plain tools, and not a language of its own to call them in
    good_options={"thinking": "low", "price": {"input": 1.0, "output": 2.0}},
    bad_options={
        "an option it does not have": ({"temperature": 1}, "temperature"),
        "a way of thinking it does not know": ({"thinking": "hard"}, "thinking"),
        "a price in words": ({"price": "cheap"}, "price"),
    },
)


@pytest.fixture
async def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgramHarness]:
    async with harness_of(CODEX, monkeypatch) as harness:
        yield harness


@pytest.mark.spec("P15", "P6", "T1", "P14")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_codex_keeps_the_contract(check: Check, harness: ProgramHarness) -> None:
    outcome = await run_check(check, harness)
    if isinstance(outcome, NotApplicable):
        assert check.name == "asks_for_the_same_calls_again"  # a second attempt is another conversation of the model


@pytest.mark.spec("P6", "P12", "F9", "F10")
@pytest.mark.parametrize("check", PROGRAM_CHECKS, ids=lambda check: check.__name__)
async def test_codex_behaves_as_a_program(check: program_checks.Check, harness: ProgramHarness) -> None:
    await check(harness)
