"""Commands for claude: given by somebody who may, it obeys them; anything else that begins with a slash is a text."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from adapters.events import Result, SessionStarted
from tests.support.cli_agents.claude import CLAUDE
from tests.support.model_api import rule
from tests.support.program_checks import play
from tests.support.programs import ProgramHarness, harness_of

SUMMARY = rule("Respond with plain text only", "<summary>They said hello.</summary>")


@pytest.fixture
async def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgramHarness]:
    async with harness_of(replace(CLAUDE, rules=(SUMMARY,)), monkeypatch) as harness:
        harness.api.heal()  # its own words for a summary have some of theirs in them
        yield harness


@pytest.mark.spec("M16", "P5")
async def test_a_command_is_obeyed_only_as_one(harness: ProgramHarness) -> None:
    [as_text] = [event.text for event in await play(harness, "/cost") if isinstance(event, Result)]
    assert as_text == "You said: /cost"
    before = len(harness.api.bodies)
    events = await play(harness, "/cost", raw=True)
    [told] = [event.text for event in events if isinstance(event, Result)]
    assert told.startswith("Total cost:")
    assert len(harness.api.bodies) == before  # no model was asked


@pytest.mark.long
@pytest.mark.spec("M16", "P17")
async def test_it_sums_up_its_conversation_when_told_to(harness: ProgramHarness) -> None:
    [conversation] = {event.continuation for event in await play(harness, "hello") if isinstance(event, SessionStarted)}
    await play(harness, "/compact", raw=True, continuation=conversation)
    await play(harness, "and now?", continuation=conversation)
    assert "They said hello." in str(harness.api.bodies[-1]["messages"])
