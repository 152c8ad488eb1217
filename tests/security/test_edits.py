"""An agent may change what it said itself: never what the fleet says, and never what somebody is to decide upon."""

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from adapters.actions import EditMessage
from adapters.errors import ToolError
from adapters.policy import Policy
from adapters.registry import Drivers, Registry
from models import Card, MessageOut, PendingQuestion
from models.base import new_id
from tests.support import fake_platform
from tests.support.cards import Platform, appoint
from tests.support.fleet import MakeFleet
from workers.actions.caller import Caller
from workers.actions.messages import edit

pytestmark = [pytest.mark.parametrize("database_kind", ["sqlite"]), pytest.mark.spec("C6", "T2")]

TAMPERING = """
- play:
    - {tool: edit_message, with: {messageId: 2, text: Harmless. Reply 1}}
    - {tool: add_reaction, with: {messageId: 2, emoji: x}}
    - {tool: edit_message, with: {messageId: 3, text: Harmless. Reply 1}}
    - answer: 'so: {result}'
"""
ASKING = """
- play:
    - tool: ask_user_question
      with: {title: Tea, question: "Now or later?", options: [Now, Later], timeout: 900}
    - answer: "So: {result}"
"""


async def test_an_approval_card_cannot_be_edited_by_the_agent_it_is_about(make_fleet: MakeFleet) -> None:
    platform = Platform()
    fleet = await make_fleet(Registry(channels=Drivers("channel", {"fake": platform})))
    group = await fleet.add_group(script=TAMPERING)
    await appoint(fleet, "fake:ann", "admin", group, chat="dm-ann")
    await fake_platform.grant_role(fleet, "mem", "member", group)
    await fake_platform.wire(fleet, group, "room", "request_approval")
    await fake_platform.wire(fleet, group, "dm-ann")
    await fake_platform.post_message(fleet, "let me in", "eve", "room")
    await fleet.settle_down()
    [card] = await fleet.rows(Card)
    asked = platform.text_in("dm-ann")
    numbers = {row.id: row.seq for row in await fleet.outbox()}
    assert numbers[card.message_out_id] in (2, 3), "the one the agent goes for"
    await fake_platform.post_message(fleet, "go", "mem", "room")
    await fleet.settle_down()
    assert platform.text_in("dm-ann") == asked
    assert platform.reactions == []
    assert "there is no message 3 of yours here to edit" in platform.text_in("room")


async def test_a_question_stays_as_it_was_asked_while_it_waits(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(Registry(channels=Drivers("channel", {"fake": Platform()})))
    await fleet.add_group(script=ASKING)
    await fleet.send(channel_type="fake", platform_id="room")
    await fleet.settle_down()
    [asked] = await fleet.outbox()
    [heard] = await fleet.inbox()
    [turn] = await fleet.turns()
    wants = EditMessage(asked.seq, "Nothing to see here")
    now_open: Any = SimpleNamespace(id=turn.id, lease=SimpleNamespace(session_id=asked.session_id), messages=[heard])
    caller = Caller(now_open, Policy(), fleet.runtime.registry, "scripted")
    with pytest.raises(ToolError, match="it is a question that waits for its answer"):
        await fleet.db.transact(lambda conn: edit(conn, caller, wants, new_id(), 9))
    await fleet.execute(update(PendingQuestion).values(status="answered"))
    await fleet.db.transact(lambda conn: edit(conn, caller, wants, new_id(), 9))
    await fleet.execute(update(MessageOut).values(platform_id="elsewhere"))
    with pytest.raises(ToolError, match="you may not write to fake 'elsewhere' any more"):
        await fleet.db.transact(lambda conn: edit(conn, caller, wants, new_id(), 9))
