"""Sending: in order, with one key, retried, and never guessed."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import update

from adapters.channel_port import Destination, OutboundMessage
from adapters.channels.fake import FakeChannel
from adapters.errors import DeliveryError
from adapters.registry import Drivers, Registry
from models import MessageOut, MessagingGroup, User, UserDm, UserRole
from models.base import new_id, now
from models.outbox import mark_delivered
from tests.support import cards
from tests.support.fleet import Fleet, MakeFleet
from tests.support.outgoing import SlowPlatform
from workers.delivery import sending as delivery

pytestmark = pytest.mark.both_databases

THREE_ANSWERS = "- play:\n  - answer: one\n  - answer: two\n  - answer: three"


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel()


@pytest.fixture
async def fleet(make_fleet: MakeFleet, channel: FakeChannel) -> Fleet:
    fleet = await make_fleet(_with(channel))
    await fleet.add_group(script=THREE_ANSWERS)
    return fleet


def _with(channel: FakeChannel) -> Registry:
    return Registry(channels=Drivers("channel", made={"fake": channel}))


async def _say(fleet: Fleet) -> Any:
    accepted = await fleet.send(channel_type="fake", platform_id="chat")
    await fleet.answer_wakes()
    return accepted


def texts(channel: FakeChannel) -> list[str]:
    return [message.content["text"] for message in channel.shown]


@pytest.mark.spec("M12")
async def test_replies_arrive_in_order_with_a_receipt_each(fleet: Fleet, channel: FakeChannel) -> None:
    await _say(fleet)
    fleet.bells.deliveries.reverse()  # rings may come in any order
    await fleet.settle_down()
    assert texts(channel) == ["one", "two", "three"]
    rows = await fleet.outbox()
    assert {row.status for row in rows} == {"delivered"}
    assert [row.receipt["platform_message_id"] for row in rows] == ["m1", "m2", "m3"]
    assert len({row.idempotency_key for row in rows}) == 3


@pytest.mark.spec("M12")
async def test_many_senders_at_once_send_each_message_once_and_in_order(fleet: Fleet, channel: FakeChannel) -> None:
    await _say(fleet)
    rings = fleet.bells.deliveries * 5
    fleet.bells.deliveries = []
    await asyncio.gather(*(delivery.send(fleet.runtime, ring) for ring in rings))
    assert texts(channel) == ["one", "two", "three"]


@pytest.mark.spec("M12")
async def test_nothing_overtakes_what_is_just_being_sent(make_fleet: MakeFleet) -> None:
    channel = SlowPlatform()
    fleet = await make_fleet(_with(channel))
    await fleet.add_group(script=THREE_ANSWERS)
    await _say(fleet)
    [first, *behind], fleet.bells.deliveries = fleet.bells.deliveries, []
    sending = asyncio.create_task(delivery.send(fleet.runtime, first))
    async with asyncio.timeout(10):
        await channel.has_it.wait()
        for ring in behind:
            await delivery.send(fleet.runtime, ring)
        channel.go_on.set()
        await sending
    assert channel.texts == ["one", "two", "three"]


@pytest.mark.spec("M12")
async def test_a_failed_sending_is_retried_and_holds_up_those_behind_it(fleet: Fleet, channel: FakeChannel) -> None:
    channel.failures = [DeliveryError("busy", retryable=True)]
    await _say(fleet)
    await fleet.settle_down()
    assert texts(channel) == []
    assert [row.status for row in await fleet.outbox()] == ["pending", "pending", "pending"]
    async with asyncio.timeout(10):
        while len(channel.shown) < 3:
            await fleet.sweep()
            await fleet.settle_down()
            await asyncio.sleep(0.05)
    assert texts(channel) == ["one", "two", "three"]
    assert [row.attempts for row in await fleet.outbox()] == [2, 1, 1]


@pytest.mark.spec("M12")
async def test_a_final_failure_is_told_to_agent_and_owner(fleet: Fleet, channel: FakeChannel) -> None:
    place = new_id()
    await fleet.insert(User, {"id": "fake:boss", "kind": "fake"})
    await fleet.insert(UserRole, {"user_id": "fake:boss", "role": "owner"})
    await fleet.insert(MessagingGroup, {"id": place, "channel_type": "fake", "platform_id": "boss-dm"})
    await fleet.insert(UserDm, {"user_id": "fake:boss", "channel_type": "fake", "messaging_group_id": place})
    channel.failures = [DeliveryError("the chat is gone", retryable=False)]
    await _say(fleet)
    await fleet.settle_down()
    told = [row for row in await fleet.inbox() if row.kind == "system"]
    assert [(row.wakes, row.content["status"]) for row in told] == [(False, "failed")]
    assert [m.content["text"] for m in channel.shown if m.destination.platform_id == "boss-dm"] == [
        "A message to fake `chat` could not be delivered (failed): `the chat is gone`"
    ]
    assert texts(channel)[:2] == ["two", "three"], "the others are sent all the same"


@pytest.mark.spec("M12", "S6")
async def test_a_sender_that_died_is_repeated_with_the_same_key(fleet: Fleet, channel: FakeChannel) -> None:
    await _say(fleet)
    await _die_after_sending(fleet, channel)
    async with asyncio.timeout(10):
        while {row.status for row in await fleet.outbox()} != {"delivered"}:
            await fleet.sweep()
            await fleet.settle_down()
            await asyncio.sleep(0.05)
    assert texts(channel) == ["one", "two", "three"]


@pytest.mark.spec("M12")
async def test_without_keys_on_the_platform_a_doubtful_sending_is_not_guessed(make_fleet: MakeFleet) -> None:
    channel = ForgetfulPlatform(idempotent=False)
    fleet = await make_fleet(_with(channel))
    await fleet.add_group(script=THREE_ANSWERS)
    await _say(fleet)
    await _die_after_sending(fleet, channel)
    for _ in range(3):
        await asyncio.sleep(0.06)
        await fleet.sweep()
        await fleet.settle_down()
    assert texts(channel) == ["one", "two", "three"]
    assert [row.status for row in await fleet.outbox() if row.kind == "chat"] == ["unknown", "delivered", "delivered"]


@pytest.mark.spec("M12")
async def test_a_receipt_that_comes_late_settles_what_was_unknown(make_fleet: MakeFleet) -> None:
    channel = ForgetfulPlatform(idempotent=False)
    channel.failures = [DeliveryError("connection lost", retryable=True, may_have_arrived=True)]
    fleet = await make_fleet(_with(channel))
    await fleet.add_group(script="one")
    await _say(fleet)
    await fleet.settle_down()
    [row] = [row for row in await fleet.outbox() if row.kind == "chat"]
    assert row.status == "unknown"
    assert await fleet.db.transact(lambda conn: mark_delivered(conn, row.id, row.claim_token, {}))


@pytest.mark.spec("M12")
async def test_an_agent_cannot_send_where_it_is_not_wired(fleet: Fleet, channel: FakeChannel) -> None:
    await _say(fleet)
    await fleet.execute(update(MessageOut).values(platform_id="somebody else's chat"))
    await fleet.settle_down()
    assert texts(channel) == []
    assert {row.error for row in await fleet.outbox()} == {'this agent may not send to fake "somebody else\'s chat"'}


@pytest.mark.spec("S1")
async def test_a_reminder_waits_for_its_date_and_holds_nobody_up(fleet: Fleet, channel: FakeChannel) -> None:
    await _say(fleet)
    first = (await fleet.outbox())[0]
    await fleet.execute(update(MessageOut).where(MessageOut.id == first.id).values(deliver_after=now(3600)))
    await fleet.settle_down()
    assert texts(channel) == ["two", "three"]
    await fleet.execute(
        update(MessageOut).where(MessageOut.id == first.id).values(deliver_after=now(-1), rung_at=now(-60))
    )
    await fleet.sweep()
    await fleet.settle_down()
    assert texts(channel) == ["two", "three", "one"]


class ForgetfulPlatform(FakeChannel):
    """A platform that neither honours keys nor can be asked."""

    async def find_receipt(self, destination: Destination, idempotency_key: str) -> None:
        return None


async def _die_after_sending(fleet: Fleet, channel: FakeChannel) -> None:
    """What a kill -9 between sending and writing it down leaves behind."""
    fleet.bells.deliveries.clear()
    first = (await fleet.outbox())[0]
    claimed = await delivery._claim(fleet.runtime, first.id)
    assert claimed is not None
    row, _ = claimed
    await channel.deliver(OutboundMessage(Destination(row.platform_id), row.content, row.idempotency_key))
    left = {"claim_expires_at": now(-1), "receipt": {"begun": True}}
    await fleet.execute(update(MessageOut).where(MessageOut.id == row.id).values(**left))
    await fleet.execute(update(MessageOut).values(rung_at=now(-60)))


@pytest.mark.spec("C6", "M12")
@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_an_approval_card_that_is_given_up_is_put_to_somebody_else(make_fleet: MakeFleet) -> None:
    platform = cards.Platform()
    fleet = await make_fleet(cards.Launcher().registry(platform))
    group = await fleet.add_group(script=cards.SCRIPT)
    await cards.appoint(fleet, "fake:ann", "admin", group, chat="dm-ann")
    await cards.appoint(fleet, "fake:olga", "owner", chat="dm-olga")
    approval = await cards.ask(fleet)
    [card] = await cards.cards_of(fleet, approval.id)
    await fleet.execute(update(MessageOut).where(MessageOut.id != card.message_out_id).values(status="delivered"))
    platform.failures = [DeliveryError("the chat is gone", retryable=False)]
    fleet.bells.deliveries = [card.message_out_id]
    await fleet.settle_down()
    assert "asks for an approval" in platform.text_in("dm-olga")
