"""The provider contract on `gemini`: the real, unmodified program over ACP, in the sandbox, with a stand-in model."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from adapters.contracts import ContentBlock
from adapters.events import ApprovalRequested, Message, Progress, SessionStarted, ToolResult
from adapters.policy import Policy
from adapters.providers.conformance import CHECKS, Check, NotApplicable, ProbeBox, run_check
from tests.support import program_checks
from tests.support.cli_agents.gemini import GEMINI, plant_hostile_settings
from tests.support.program_checks import PROGRAM_CHECKS, play, result_texts
from tests.support.programs import Doorman, ProgramHarness, all_but, find_pwned_files, harness_of, plant_secrets
from tests.support.recorded_runs import Rehearsed

pytestmark = pytest.mark.long

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6364f8cf500f00038601805a347d6b"
    "0000000049454e44ae426082"
)


# What is the driver's doing rather than the program's: `test_acp.py` checks it each time.
DRIVERS = (
    *("says_the_same_for_the_same_work", "keeps_two_queries_apart", "stops_while_it_hangs"),
    *("survives_a_tool_that_fails", "a_killed_program_is_a_failure", "a_follow_up_after_the_end_is_too_late"),
)

# Seven seconds each, and claude and codex are asked the same each time: `make test-all`.
RARELY = (
    *("a_refused_key_is_told_as_that", "a_servers_fault_can_pass", "a_limit_is_told_with_its_date"),
    *("it_remembers_what_it_has_continued", "an_unknown_continuation_is_no_silence"),
)


@pytest.fixture
async def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgramHarness]:
    async with harness_of(GEMINI, monkeypatch) as made:
        yield made


@pytest.mark.spec("P7", "P12", "F9", "F10")
@pytest.mark.parametrize("check", all_but(PROGRAM_CHECKS, (*DRIVERS, *RARELY)))
async def test_gemini_behaves_as_a_program(
    check: program_checks.Check, harness: ProgramHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "provider", Rehearsed(harness.provider, check.__name__))
    await check(harness)
    # A conversation laid out again must be one that the model's real server accepts.
    assert harness.api.problems == []


@pytest.mark.spec("P15", "P7", "T1", "P14")
@pytest.mark.parametrize("check", all_but(CHECKS, DRIVERS))
async def test_gemini_keeps_the_contract(
    check: Check, harness: ProgramHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "provider", Rehearsed(harness.provider, check.name))
    outcome = await run_check(check, harness)
    if isinstance(outcome, NotApplicable):
        assert check.name == "asks_for_the_same_calls_again"  # a second attempt is another conversation of the model


@pytest.mark.spec("P7", "P14")
async def test_what_a_person_must_decide_ends_the_query_and_it_can_be_continued(harness: ProgramHarness) -> None:
    events = await play(harness, "risky")
    assert [event.category for event in events if isinstance(event, ApprovalRequested)] == ["merge"]
    assert [event.text for event in events if isinstance(event, Message)] == ["I will push it."]
    assert result_texts(events) == []
    [started] = [event for event in events if isinstance(event, SessionStarted)]
    # What it reads is asked about as well. (And the conversation that was broken off goes on.)
    plant_secrets(harness)
    again = await play(harness, "look around", continuation=started.continuation)
    asked = [(intent.tool, intent.paths, intent.writes) for intent in harness.guard.asked[1:]]
    assert asked == [("read_file", ("notes.txt",), False), ("read_file", ("keys/id_rsa",), False)]
    assert [event.category for event in again if isinstance(event, ApprovalRequested)] == ["secrets"]
    sent = harness.api.bodies[-1]
    assert "risky" in json.dumps(sent["contents"])
    assert "marmalade" in json.dumps(sent["contents"])
    assert "swordfish" not in json.dumps(harness.api.bodies)
    # A helper's questions do not come over ACP: it would wait for an answer for ever.
    assert "invoke_agent" not in {tool["name"] for tool in sent["tools"][0]["functionDeclarations"]}
    assert harness.api.problems == []


@pytest.mark.spec("P7", "P14")
async def test_a_refusal_is_explained_and_commands_of_its_own_are_not_obeyed(harness: ProgramHarness) -> None:
    harness.guard = Doorman(Policy(shell_deny=("git push*",), approve_for=()))
    (harness.workspace / "dot.png").write_bytes(PIXEL)
    prompt = (ContentBlock("text", "/extensions risky"), ContentBlock("image", media_type="image/png", path="dot.png"))
    given = replace(harness.given("risky", ProbeBox()), prompt=prompt, system_prompt="You are a sailor.")
    events = [event async for event in harness.provider.query(given).events]
    assert [event.ok for event in events if isinstance(event, ToolResult)] == [False]
    [answer] = result_texts(events)
    assert "shell_deny" in answer, "the agent is not told why"
    first = harness.api.bodies[0]
    assert "You are a sailor." in json.dumps(first["systemInstruction"])
    assert "iVBORw0KGgo" in json.dumps(first["contents"])


@pytest.mark.spec("P7", "P14")
async def test_settings_of_the_repository_are_not_obeyed(harness: ProgramHarness) -> None:
    plant_hostile_settings(harness)
    events = await play(harness, "tool")
    assert find_pwned_files(harness) == []
    assert len(result_texts(events)) == 1
    assert not any(isinstance(event, Progress) for event in events)
    # What is plain text for the agent is read.
    assert "swordfish" in json.dumps(harness.api.bodies[-1])
    # Nor when the conversation goes on, and editing is asked about although the settings say otherwise.
    [started] = [event for event in events if isinstance(event, SessionStarted)]
    events = await play(harness, "edit", continuation=started.continuation)
    assert find_pwned_files(harness) == []
    assert [intent.tool for intent in harness.guard.asked] == ["write_file"]
    assert "marmalade" in json.dumps(harness.api.bodies[-1])


@pytest.mark.spec("P7", "P14")
async def test_settings_of_the_repository_are_obeyed_where_the_policy_says_so(harness: ProgramHarness) -> None:
    plant_hostile_settings(harness)
    await play(harness, "answer", policy=Policy(obey_repository=True))
    assert "PWNED-by-discovery" in find_pwned_files(harness)
