"""The provider contract on `acp`: a program that this fleet knows nothing of, led by configuration alone."""

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.errors import ErrorClass, ProviderError
from adapters.events import Progress, Result, SessionStarted
from adapters.policy import Policy
from adapters.providers.cli.acp.provider import MEMORY, AcpProvider
from adapters.providers.cli.home import put
from adapters.providers.cli.installation import VARIABLE
from adapters.providers.conformance import CHECKS, EDITED_FILE, NotApplicable, ProbeBox, run_check
from tests.support import tiny_acp_agent
from tests.support.model_api import Call, reply, rule
from tests.support.program_checks import LINGER_COMMAND, PROGRAM_CHECKS, failed, play
from tests.support.programs import NO_PRICE, PRICE, Cli, Doorman, ProgramHarness, harness_of
from tests.support.servers import private_folder

OPTIONS: dict[str, Any] = {
    "command": "tiny",
    "args": ["--quietly"],
    "env": {"TINY_MOOD": "good"},
    "wire": "openai",
    "url_variable": "TINY_URL",
    "url_path": "/v1",
    "key_variable": "TINY_KEY",
    "model_variable": "TINY_MODEL",
    "state": [".tiny/*.json"],
    **PRICE,
}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    **NO_PRICE,
    "an option it does not have": ({"temperature": 1}, "temperature"),
    "a command that is none": ({"command": ["sh", "-c"]}, "command"),
    "a wire nobody speaks": ({"wire": "morse"}, "wire"),
    "a key": ({"env": {"OPENAI_API_KEY": "sk-1"}}, "key_variable"),
    "a variable that is none": ({"key_variable": "A B"}, "key_variable"),
    "memory outside the home": ({"state": ["../*"]}, "relative"),
    "the whole system": ({"readable": ["/"]}, "absolute"),
    "an address in place of a path": ({"url_path": "http://elsewhere"}, "url_path"),
}
TINY = Cli(
    name="tiny",
    provider=AcpProvider,
    rules=(
        rule("tool", reply("Let me see.", Call("probe", {})), "the probe says {result}"),
        rule("edit", reply(Call("write", {"path": EDITED_FILE, "content": "hello\n"})), "It is written."),
        rule("risky", reply("I will push it.", Call("bash", {"command": "git push origin main"})), "It is pushed."),
        rule("linger", reply(Call("bash", {"command": LINGER_COMMAND})), "It has ended."),
        rule("Not allowed", "I see: {text}"),
    ),
    keys=("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    model="some-model",
    good_options=OPTIONS,
    bad_options=BAD,
)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the agent is installed."""
    made = private_folder()
    made.chmod(0o755)
    system = Path("/usr/bin/python3")
    python, readable = (str(system), []) if system.exists() else (os.path.realpath(sys.executable), [sys.base_prefix])
    shutil.copy(tiny_acp_agent.__file__, made / "agent.py")
    facts = {"argv": [python, "agent.py"], "readable": [".", *readable]}
    (made / "tiny.json").write_text(json.dumps(facts))
    monkeypatch.setenv(VARIABLE, str(made))
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def harness(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgramHarness]:
    async with harness_of(TINY, monkeypatch) as made:
        plain = made.given
        monkeypatch.setattr(made, "given", lambda *about, **more: plain(*about, **({"options": OPTIONS} | more)))
        yield made


@pytest.mark.spec("P15", "P12", "T1", "P14")
async def test_an_agent_by_configuration_keeps_the_contract(harness: ProgramHarness) -> None:
    for check in CHECKS:
        outcome = await run_check(check, harness)
        assert not isinstance(outcome, NotApplicable) or check.name == "asks_for_the_same_calls_again"


@pytest.mark.spec("P12", "F9", "F10")
async def test_an_agent_by_configuration_behaves_as_a_program(harness: ProgramHarness) -> None:
    for check in PROGRAM_CHECKS:
        await check(harness)


@pytest.mark.spec("P12")
async def test_what_was_said_before_is_not_said_again(harness: ProgramHarness) -> None:
    first = await play(harness, "tool", system_prompt="You are a sailor.")
    assert isinstance(first[0], SessionStarted)
    assert first[0].version == "1.2.3"
    told = [event.text for event in first if isinstance(event, Progress)]
    assert told == ["plan: answer (in_progress)", "acp: of_the_future"]
    again = await play(harness, "resume", continuation=first[0].continuation)
    assert again[0] == first[0]
    assert not any("marmalade" in event.model_dump_json() for event in again)
    sent = json.dumps(harness.api.bodies[-1])
    assert "marmalade" in sent
    assert sent.count("You are a sailor.") == 1


@pytest.mark.spec("P12", "P14")
async def test_a_refusal_is_explained(harness: ProgramHarness) -> None:
    harness.guard = Doorman(Policy(shell_deny=("git push*",), approve_for=()))
    events = await play(harness, "risky")
    [answer] = [event.text for event in events if isinstance(event, Result)]
    assert "shell_deny" in answer


@pytest.mark.spec("P12")
async def test_a_program_that_is_not_there_is_told_in_words(harness: ProgramHarness) -> None:
    for options, word in (({}, "`command`"), ({"command": "no-such-agent"}, "no-such-agent")):
        end = failed(await play(harness, "answer", options=options))
        assert (end.error_class, end.retryable) == (ErrorClass.INVALID_REQUEST, False)
        assert word in end.message
    with pytest.raises(ProviderError, match="no option colour"):
        harness.provider.check({"colour": "red"})


@pytest.mark.spec("P12", "F10")
async def test_what_an_agent_leaves_in_the_place_of_its_archive_is_not_laid_out(
    harness: ProgramHarness, folder: Path
) -> None:
    agent = (folder / "agent.py").read_text()
    forge = """
import pathlib
HOME.mkdir()
with open(HOME / "huge.json", "w") as file: file.truncate(65 << 20)
forged = pathlib.Path(os.environ["HOME"], ".longshore-acp/memory")
forged.parent.mkdir()
forged.write_text("Zm9yZ2Vk")
"""
    (folder / "agent.py").write_text(agent.replace("if __name__", f"{forge}\nif __name__"))
    events = await play(harness, "answer")
    assert isinstance(events[0], SessionStarted)
    [told] = [event.text for event in events if isinstance(event, Progress) and "could not be kept" in event.text]
    assert "64 MB" in told
    assert any(isinstance(event, Result) for event in events)
    given = harness.given("answer", ProbeBox(), continuation=events[0].continuation)
    assert given.station is not None
    assert not (given.station.home / MEMORY).exists()

    # What was kept before anybody saw to that costs the memory, and not the session.
    put(given.station.home, MEMORY, "Zm9yZ2Vk")
    (folder / "agent.py").write_text(agent)
    events = [event async for event in harness.provider.query(given).events]
    told = " ".join(event.text for event in events if isinstance(event, Progress))
    assert "the stored session cannot be laid out" in told
    assert "begins anew" in told
    assert isinstance(events[-1], Result)


NONSENSE = {
    "words": "print('Traceback')",
    "half an object": 'sys.stdout.write(\'{"id": 1, "res\')',
    "a list": "print('[1, 2]')",
    "no UTF-8": "sys.stdout.buffer.write(b'\\xff\\xfe{}\\n')",
    "50 MB in a line": "print('x' * 50_000_000)",
    "an end without a word": "sys.exit('out of cheese')",
    "an end in the middle": "say(1, {}); input(); say(2, {'sessionId': 's'}); input()",
    "a conversation without a name": "say(1, {}); input(); say(2, {'sessionId': 7}); input()",
    "an answer without an end": "say(1, {}); input(); say(2, {'sessionId': 's'}); input(); say(3, {}); input()",
    "no answer": "say(1, {}); input(); say(2, {'sessionId': 's'}); input(); say(3, {'stopReason': 'refusal'}); input()",
}


@pytest.mark.spec("P12")
async def test_nonsense_is_a_failure_in_words(harness: ProgramHarness, folder: Path) -> None:
    beginning = "import json, sys\ndef say(n, r): print(json.dumps({'id': n, 'result': r}), flush=True)\ninput()\n"
    for what, body in NONSENSE.items():
        (folder / "agent.py").write_text(beginning + body)
        end = failed(await play(harness, "answer"))
        assert end.error_class is ErrorClass.INTERNAL, (what, end)
        assert "acp" in end.message, (what, end)
        assert len(end.message) < 1000, what
