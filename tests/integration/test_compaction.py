"""Long conversations: archived, summed up, and gone on with; and what becomes of one that is too long all the same."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from models import Compaction, Step, TranscriptItem, Usage
from tests.support.fleet import Fleet
from tests.support.model_api import Call, ModelApi, refuse, reply, rule, script

pytestmark = pytest.mark.both_databases

LONG = "a long story about ships. " * 200
SMALL = {"provider_options": {"context_tokens": 4500, "max_tokens": 1000}}


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    rules = script(
        rule("about to be replaced", "They like ships."), rule("story", LONG), rule(None, "You said: {text}")
    )
    async with ModelApi(rules) as server:
        for vendor, url in (("ANTHROPIC", server.url), ("OPENAI", server.openai_url)):
            monkeypatch.setenv(f"{vendor}_API_KEY", "fake-key")
            monkeypatch.setenv(f"{vendor}_BASE_URL", url)
        yield server
        assert server.problems == []


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
@pytest.mark.spec("P17", "P3")
async def test_a_long_conversation_is_archived_and_summed_up(
    fleet: Fleet, api: ModelApi, provider: str, tmp_path: Path
) -> None:
    await fleet.add_group(provider=provider, config=SMALL)
    for _ in range(4):
        await fleet.send("tell me a story")
        await fleet.settle_down()
    assert {turn.status for turn in await fleet.turns()} == {"completed"}
    [compaction] = await fleet.rows(Compaction)
    assert compaction.summary == "They like ships."
    archived = (tmp_path / "workspaces" / "demo" / compaction.archive).read_text()
    assert compaction.archive.startswith("conversations/20")
    assert compaction.archive.endswith("-tell-me-a-story.md")
    assert archived.count(LONG.strip()) == compaction.through_turn
    last = json.dumps(api.bodies[-1])
    assert "They like ships." in last
    assert last.count("tell me a story") == 4 - compaction.through_turn
    assert [row.status for row in await fleet.rows(Step) if row.key.startswith("compact:")] == ["finished"]
    assert len(await fleet.rows(Usage)) == 5, "the summary is paid for as well"
    items = await fleet.rows(TranscriptItem)
    assert len(items) == 8, "nothing is removed"


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
@pytest.mark.spec("P17", "M9")
async def test_context_too_long_leads_to_compaction_and_not_to_failure(
    fleet: Fleet, api: ModelApi, provider: str
) -> None:
    await fleet.add_group(provider=provider)
    await fleet.send("tell me a story")
    await fleet.settle_down()
    api.fail(refuse("too_long", when="and now"))
    await fleet.send("and now?")
    assert await fleet.answer_wakes() == ["completed"]
    assert (await fleet.outbox())[-1].content == {"text": "You said: and now?"}
    assert len(await fleet.rows(Compaction)) == 1


@pytest.mark.spec("P17")
async def test_a_turn_that_grows_too_long_has_its_older_results_cut(fleet: Fleet, api: ModelApi) -> None:
    calls = [reply(Call("clock", {"timezone": "UTC"})) for _ in range(3)]
    api.script = script(rule("work", *calls, "done"))
    await fleet.add_group(provider="anthropic")
    api.fail(refuse("too_long", when="work"))
    await fleet.send("work")
    assert await fleet.answer_wakes() == ["failed"], "there is nothing to make shorter"
    [message] = await fleet.inbox()
    assert message.error_class == "context_too_long"
