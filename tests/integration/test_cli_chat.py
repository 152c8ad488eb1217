"""A conversation in the terminal: deciding, stopping and answering where one talks."""

import io
from collections.abc import AsyncIterator

import pytest
from rich.console import Console

from gateway.cli.chat_printer import ChatPrinter
from gateway.cli.conversation import Conversation
from gateway.cli.desk import Desk
from models import Approval
from models.groups import find_agent_group
from models.lookup import short
from tests.support.fleet import Fleet
from workers.events import redis_client
from workers.refusals import RefusedError

pytestmark = pytest.mark.spec("G4", "M17")

SCRIPT = """
- when: "ask"
  play:
    - tool: ask_user_question
      with: {title: Tea, question: "Now or later?", options: [Now, Later], timeout: 600}
    - answer: "So: {result}"
- play:
    - tool: clock
      with: {timezone: UTC}
    - answer: "I looked."
"""


class Chat:
    """Somebody's terminal, on which nobody types."""

    def __init__(self, fleet: Fleet, desk: Desk, conversation: Conversation, paper: io.StringIO) -> None:
        self._paper = paper
        self.fleet = fleet
        self.desk = desk
        self.conversation = conversation

    async def say(self, text: str) -> None:
        accepted = await self.conversation.say(text)
        accepted.ring(self.fleet.bells)
        await self.fleet.settle_down()

    async def opened_anew(self) -> str:
        """What somebody sees who comes back."""
        self._paper.truncate(0)
        await self.conversation.open()
        return self._paper.getvalue().lstrip("\0")


@pytest.fixture
async def chat(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Chat]:
    config = {"provider_options": {"script": SCRIPT}, "policy": {"approve": ["clock"]}}
    await fleet.add_group("demo", config=config)
    monkeypatch.setattr(Desk, "bells", fleet.bells)
    desk, client = Desk(fleet.runtime.settings), redis_client(fleet.runtime.settings.redis_url)
    group = await desk.db.read(lambda conn: find_agent_group(conn, "demo"))
    assert group is not None
    paper = io.StringIO()
    printer = ChatPrinter(Console(file=paper, width=100, highlight=False, color_system=None))
    yield Chat(fleet, desk, Conversation(desk, client, group, "chat", printer), paper)
    await client.aclose()
    await desk.close()


async def test_what_waits_is_approved_where_it_was_asked_for(chat: Chat) -> None:
    with pytest.raises(RefusedError, match="nothing waits"):
        await chat.conversation.decide(True, "")
    await chat.say("look at the clock")
    [approval] = await approvals(chat)
    seen = await chat.opened_anew()
    assert f"/approve or /deny {short(approval)}" in seen
    assert "waiting for approval" in seen
    with pytest.raises(RefusedError, match=rf"by its code: {short(approval)} \(.*clock"):
        await chat.conversation.decide(True, "zzz")
    assert "approved" in await chat.conversation.decide(True, short(approval))
    await chat.fleet.settle_down()
    assert [row.status for row in await chat.fleet.turns()] == ["completed"]
    with pytest.raises(RefusedError, match="nothing waits"):
        await chat.conversation.decide(False, "")


async def test_what_waits_is_denied_without_a_code(chat: Chat) -> None:
    await chat.say("look at the clock")
    assert "denied" in await chat.conversation.decide(False, "")
    await chat.fleet.settle_down()
    assert [row.status for row in await chat.fleet.turns()] == ["completed"]


async def test_what_the_agent_is_at_is_stopped(chat: Chat) -> None:
    with pytest.raises(RefusedError, match="nothing has been said yet"):
        await chat.conversation.stop()
    await chat.say("ask me")
    assert "Now or later?" in await chat.opened_anew()
    assert "cancelled" in await chat.conversation.stop()
    assert [row.status for row in await chat.fleet.turns()] == ["cancelled"]
    with pytest.raises(RefusedError, match="nothing to cancel"):
        await chat.conversation.stop()


async def test_an_option_is_chosen_by_its_number(chat: Chat) -> None:
    await chat.say("ask me")
    await chat.say("2")
    texts = [row.content.get("text") for row in await chat.fleet.outbox()]
    assert "So: Later" in texts


async def approvals(chat: Chat) -> list[str]:
    return [row.id for row in await chat.fleet.rows(Approval)]
