"""`omnara` in the fleet: a conversation is one of its agents, and its failures are the fleet's to judge."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from models import Usage
from tests.support.fleet import Fleet
from tests.support.omnara_api import CONFIG, KEY, ORG, PROJECT, OmnaraApi

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"])  # which one plays no part
GROUP: dict[str, Any] = {
    "provider": "omnara",
    "config": {"provider_options": {"org": ORG, "project": PROJECT, "config": CONFIG}},
}


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OmnaraApi]:
    async with OmnaraApi() as server:
        monkeypatch.setenv("OMNARA_API_KEY", KEY)
        monkeypatch.setenv("OMNARA_BASE_URL", server.url)
        yield server
        assert server.problems == []


@pytest.mark.spec("P10")
async def test_a_conversation_is_one_agent_of_omnara(fleet: Fleet, api: OmnaraApi) -> None:
    await fleet.add_group(**GROUP)
    for text in ("first", "second"):
        await fleet.send(text)
        assert await fleet.answer_wakes() == ["completed"]
    assert len(api.only.inputs) == 2
    replies = [reply.content["text"] for reply in await fleet.outbox()]
    assert ["first" in replies[0], "second" in replies[1]] == [True, True]
    assert "first" not in replies[1]
    used = await fleet.rows(Usage)
    assert [(row.provider, row.model, row.output_tokens) for row in used][:1] == [("omnara", "m-1", 5)]


@pytest.mark.spec("P10")
async def test_a_wrong_key_ends_in_a_dead_letter_that_says_so(
    fleet: Fleet, api: OmnaraApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNARA_API_KEY", "omnara_pat_wrong")
    await fleet.add_group(**GROUP)
    await fleet.send("hello")
    await fleet.answer_wakes()
    [row] = await fleet.inbox()
    assert (row.status, row.error_class) == ("failed", "auth")
    assert "OMNARA_API_KEY" in row.error
    assert "omnara_pat_wrong" not in row.error
