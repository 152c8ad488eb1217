"""A message may have arrived although nobody wrote it down: repeated where that shows nothing twice, looked up where
that is possible, and otherwise not guessed."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import update

from adapters.channel_port import Destination, OutboundMessage
from adapters.errors import ChannelError, DeliveryError
from models import MessageOut
from models.base import now
from tests.support.fleet import MakeFleet
from tests.support.outgoing import Outgoing, Platform, SlowPlatform
from workers.delivery import handover, sending, settle_doubtful
from workers.delivery.doubt import may_be_resolved
from workers.delivery.sending import _claim

# PostgreSQL: tests/chaos/test_delivery_doubt.py.
pytestmark = [pytest.mark.parametrize("database_kind", ["sqlite"]), pytest.mark.spec("M12")]

LOST = DeliveryError("connection lost", retryable=True, retry_after=0.0, may_have_arrived=True)


async def opened(make_fleet: MakeFleet, platform: Platform, **settings: Any) -> Outgoing:
    return await Outgoing.open(await make_fleet(platform.registry(), **settings))


async def again(outgoing: Outgoing, row: Any) -> Any:
    """Its wait is over."""
    outgoing.fleet.bells.deliver(row.id)
    await outgoing.fleet.settle_down()
    return await outgoing.row(row.id)


async def die_sending(
    outgoing: Outgoing, platform: Platform, *, arrives: bool, claimed_ago: float = 61.0, begun: bool = True
) -> Any:
    """What a kill -9 leaves behind, before or after the platform has taken the message; `begun`: the sender had written
    down that it hands it over."""
    message_id = await outgoing.put({"text": "hello"})
    outgoing.fleet.bells.deliveries.clear()
    claimed = await _claim(outgoing.fleet.runtime, message_id)
    assert claimed is not None
    if arrives:
        await platform.deliver(OutboundMessage(Destination("chat"), {"text": "hello"}, claimed[0].idempotency_key))
    resolvable = may_be_resolved(platform, outgoing.fleet.runtime.settings)
    left: dict[str, Any] = {"claim_expires_at": now(outgoing.fleet.runtime.settings.delivery_seconds - claimed_ago)}
    left |= {"receipt": {"begun": True}} if begun and not resolvable else {}
    await outgoing.fleet.execute(update(MessageOut).values(rung_at=now(-60), **left))
    await outgoing.fleet.sweep()
    await outgoing.fleet.settle_down()
    return await outgoing.row(message_id)


async def test_a_platform_that_honours_keys_is_sent_it_again(make_fleet: MakeFleet) -> None:
    platform = Platform(deaf=True)
    outgoing = await opened(make_fleet, platform)
    row = await die_sending(outgoing, platform, arrives=True)
    assert (row.status, platform.keys, platform.texts) == ("delivered", ["101", "101"], ["hello"])
    platform.failures = [LOST]
    row = await again(outgoing, await outgoing.send({"text": "more"}))
    assert (row.status, platform.keys[2:], platform.texts) == ("delivered", ["102", "102"], ["hello", "more"])


@pytest.mark.parametrize(("claimed_ago", "status"), [(61.0, "delivered"), (121.0, "unknown")])
async def test_but_only_as_long_as_it_remembers_them(make_fleet: MakeFleet, claimed_ago: float, status: str) -> None:
    platform = Platform(deaf=True, key_seconds=120.0)
    outgoing = await opened(make_fleet, platform)
    row = await die_sending(outgoing, platform, arrives=True, claimed_ago=claimed_ago)
    assert (row.status, platform.texts) == (status, ["hello"])


async def test_its_memory_counts_from_the_first_doubtful_try(make_fleet: MakeFleet) -> None:
    platform = Platform(deaf=True, key_seconds=120.0)
    outgoing = await opened(make_fleet, platform)
    platform.failures = [LOST, LOST]
    row = await again(outgoing, await outgoing.send({"text": "hello"}))
    assert (row.status, row.attempts, row.error) == ("pending", 2, "connection lost")
    long_ago = row.receipt | {"doubt_since": "2020-01-01T00:00:00+00:00"}
    await outgoing.fleet.execute(update(MessageOut).values(receipt=long_ago))
    row = await again(outgoing, row)
    assert (row.status, platform.keys) == ("unknown", ["101", "101"])
    assert row.error == "connection lost; the platform cannot say whether it arrived"


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_platform_that_can_be_asked_is_asked(make_fleet: MakeFleet, arrives: bool) -> None:
    platform = Platform(idempotent=False, findable=True)
    outgoing = await opened(make_fleet, platform)
    row = await die_sending(outgoing, platform, arrives=arrives)
    assert (row.status, row.receipt, platform.texts) == ("delivered", {"platform_message_id": "m1"}, ["hello"])
    assert (platform.asked, platform.keys) == (["101"], ["101"])


async def test_a_doubtful_answer_is_looked_up_too(make_fleet: MakeFleet) -> None:
    platform = Platform(idempotent=False, findable=True)
    outgoing = await opened(make_fleet, platform)
    platform.failures = [LOST]
    row = await outgoing.send({"text": "hello"})
    assert row.status == "pending"
    assert (await again(outgoing, row)).status == "delivered"
    assert platform.texts == ["hello"]


async def test_one_that_does_not_answer_is_asked_again_later_and_then_given_up(make_fleet: MakeFleet) -> None:
    platform = Platform(idempotent=False, findable=True)
    outgoing = await opened(make_fleet, platform, retry_base_seconds=0.001, max_tries=3)
    platform.finding = ChannelError("too much was said since")
    row = await die_sending(outgoing, platform, arrives=True)
    assert row.status == "pending"
    async with asyncio.timeout(10):
        while row.status == "pending":
            row = await again(outgoing, row)
    assert (row.status, platform.texts) == ("unknown", ["hello"])
    assert len(platform.asked) == 3 - 1, "the first try was the one that is in doubt"


@pytest.mark.spec("M12", "S6")
@pytest.mark.parametrize("died", [True, False])
async def test_otherwise_it_is_unknown_and_told(make_fleet: MakeFleet, died: bool) -> None:
    platform = Platform(idempotent=False, deaf=True)
    outgoing = await opened(make_fleet, platform)
    if died:
        row = await die_sending(outgoing, platform, arrives=True)
        why, error_class = "its sender died while sending; the platform cannot say whether it arrived", "worker_lost"
    else:
        platform.failures = [LOST]
        row = await outgoing.send({"text": "hello"})
        why, error_class = "connection lost", "transport"
    assert (row.status, row.error, row.error_class, platform.texts) == ("unknown", why, error_class, ["hello"])
    [told] = [message.content for message in await outgoing.fleet.inbox() if message.kind == "system"]
    assert (told["status"], told["result"]["error"]) == ("unknown", why)


@pytest.mark.parametrize("died", [True, False])
async def test_or_sent_again_if_the_operator_wants_that(make_fleet: MakeFleet, died: bool) -> None:
    platform = Platform(idempotent=False, deaf=True)
    outgoing = await opened(make_fleet, platform, doubtful_delivery="resend")
    if died:
        row = await die_sending(outgoing, platform, arrives=True)
    else:
        platform.failures = [LOST]
        row = await again(outgoing, await outgoing.send({"text": "hello"}))
    assert (row.status, platform.texts) == ("delivered", ["hello", "hello"])


async def test_only_the_part_that_was_being_sent_is_in_doubt(make_fleet: MakeFleet) -> None:
    platform = Platform(idempotent=False, findable=True, max_text=9)
    outgoing = await opened(make_fleet, platform)
    platform.fail_at = {"101#2": LOST}
    row = await outgoing.send({"text": "one two three four five"})
    assert row.receipt["parts"] == ["m1"]
    row = await again(outgoing, row)
    assert (row.status, row.receipt["parts"]) == ("delivered", ["m1", "m2", "m3"])
    assert platform.asked == ["101#2"]
    assert platform.texts == ["one two", "three", "four five"]


async def test_who_is_told_hears_how_much_arrived(make_fleet: MakeFleet) -> None:
    platform = Platform(idempotent=False, deaf=True, max_text=9)
    outgoing = await opened(make_fleet, platform)
    platform.fail_at = {"101#3": LOST}
    row = await outgoing.send({"text": "one two three four five"})
    assert (row.status, row.error) == ("unknown", "connection lost (2 of its parts arrived)")
    platform.fail_at = {"102#2": DeliveryError("the chat is gone", retryable=False)}
    row = await outgoing.send({"text": "one two three four five"})
    assert (row.status, row.error) == ("failed", "the chat is gone (1 of its parts arrived)")


async def test_a_doubtful_edit_is_simply_made_again(make_fleet: MakeFleet) -> None:
    class Forgetful(Platform):
        edits = 0

        async def edit(self, *given: Any) -> None:
            self.edits += 1
            await super().edit(*given)
            if self.edits == 1:
                raise LOST

    platform = Forgetful(idempotent=False, deaf=True)
    outgoing = await opened(make_fleet, platform)
    await outgoing.send({"text": "helo"})
    row = await again(outgoing, await outgoing.send({"operation": "edit", "message": 101, "text": "hello"}))
    assert (row.status, platform.texts, platform.edits) == ("delivered", ["hello"], 2)


async def test_a_message_that_kills_its_senders_does_not_do_so_for_ever(make_fleet: MakeFleet) -> None:
    platform = Platform(deaf=True)
    outgoing = await opened(make_fleet, platform, max_tries=3)
    message_id = await outgoing.put({"text": "hello"})
    for _ in range(3):
        assert await _claim(outgoing.fleet.runtime, message_id) is not None
        outgoing.fleet.bells.deliveries.clear()
        await outgoing.fleet.execute(update(MessageOut).values(claim_expires_at=now(-1), rung_at=now(-60)))
        await outgoing.fleet.sweep()
        [doubtful], outgoing.fleet.bells.doubtful = outgoing.fleet.bells.doubtful, []
        await settle_doubtful(outgoing.fleet.runtime, doubtful)
    await outgoing.fleet.settle_down()
    row = await outgoing.row(message_id)
    assert (row.status, row.error) == ("unknown", "its sender died while sending; it was tried 3 times")
    assert platform.keys == []


async def test_a_refusal_after_a_doubtful_try_leaves_the_doubt(make_fleet: MakeFleet) -> None:
    platform = Platform(deaf=True)
    outgoing = await opened(make_fleet, platform)
    platform.failures = [LOST, DeliveryError("the chat is gone", retryable=False)]
    row = await again(outgoing, await outgoing.send({"text": "hello"}))
    assert (row.status, row.error) == ("unknown", "the chat is gone")


async def lose_claim(outgoing: Outgoing) -> None:
    """Its time is over, and somebody puts it back."""
    await outgoing.fleet.execute(update(MessageOut).values(claim_expires_at=now(-1), rung_at=now(-60)))
    await outgoing.fleet.sweep()
    [doubtful], outgoing.fleet.bells.doubtful = outgoing.fleet.bells.doubtful, []
    await settle_doubtful(outgoing.fleet.runtime, doubtful)


@pytest.mark.parametrize("operation", [None, "reaction"])
async def test_a_sender_that_was_stopped_for_longer_than_its_claim_sends_nothing(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch, operation: str | None
) -> None:
    platform = Platform(idempotent=False, findable=True)
    outgoing = await opened(make_fleet, platform)
    await outgoing.send({"text": "first"})
    clock = Stopped(outgoing)
    monkeypatch.setattr(handover, "monotonic", clock)
    monkeypatch.setattr(sending, "monotonic", clock)
    monkeypatch.setattr(outgoing.fleet.runtime.rates, "take", clock.take)
    change = {"operation": operation, "message": 101, "emoji": "x"} if operation else {}
    row = await outgoing.send({"text": "hello", **change})
    assert row.status == "delivered"
    shown = [*platform.texts, *(emoji for _, emoji in platform.reactions)]
    assert shown == ["first", "x" if operation else "hello"], "once"
    assert clock.stopped == 1


class Stopped:
    """A process that is stopped between its claim and the sending, for longer than the claim lasts: another sender has
    done it all by then."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self.time, self.stopped = 1000.0, 0

    def __call__(self) -> float:
        return self.time

    async def take(self, *_: Any) -> float:
        if not self.stopped:
            self.stopped += 1
            await lose_claim(self._outgoing)
            await self._outgoing.fleet.settle_down()
            self.time += 61.0
        return 0.0


async def begin_another(outgoing: Outgoing, platform: SlowPlatform, others: list[asyncio.Task[None]]) -> None:
    """The claim is lost, and another sender has handed the message to the platform, which takes its time."""
    await lose_claim(outgoing)
    [ring], outgoing.fleet.bells.deliveries = outgoing.fleet.bells.deliveries, []
    others.append(asyncio.create_task(sending.send(outgoing.fleet.runtime, ring)))
    await platform.has_it.wait()


async def check_the_other_sends(
    outgoing: Outgoing, platform: SlowPlatform, others: Sequence[asyncio.Task[None]]
) -> None:
    """`others` has that sender once the first one has tried."""
    async with asyncio.timeout(10):
        row = await outgoing.send({"text": "hello"})
        assert row.status == "sending", "it is the other's"
        platform.go_on.set()
        await asyncio.gather(*others)
    assert (await outgoing.row(row.id)).status == "delivered"
    assert platform.texts == ["hello"], "once"


async def test_a_sender_that_comes_back_while_another_is_sending_sends_nothing(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = SlowPlatform(idempotent=False, findable=True)
    outgoing = await opened(make_fleet, platform)
    others: list[asyncio.Task[None]] = []

    class Overtaken(Stopped):
        async def take(self, *_: Any) -> float:
            if not others:
                await begin_another(outgoing, platform, others)
                self.time += 61.0
            return 0.0

    clock = Overtaken(outgoing)
    monkeypatch.setattr(handover, "monotonic", clock)
    monkeypatch.setattr(sending, "monotonic", clock)
    monkeypatch.setattr(outgoing.fleet.runtime.rates, "take", clock.take)
    await check_the_other_sends(outgoing, platform, others)


@pytest.mark.parametrize("retryable", [True, False])
async def test_a_sender_that_fails_while_another_is_sending_leaves_it_to_the_other(
    make_fleet: MakeFleet, retryable: bool
) -> None:
    others: list[asyncio.Task[None]] = []

    class FailsOnce(SlowPlatform):
        async def deliver(self, message: OutboundMessage) -> Any:
            if others:
                return await super().deliver(message)
            await begin_another(outgoing, self, others)
            raise DeliveryError("not now", retryable=retryable)

    platform = FailsOnce(idempotent=False, findable=True)
    outgoing = await opened(make_fleet, platform)
    await check_the_other_sends(outgoing, platform, others)


async def test_what_was_never_handed_over_is_not_in_doubt(make_fleet: MakeFleet) -> None:
    platform = Platform(idempotent=False, deaf=True)
    outgoing = await opened(make_fleet, platform, max_tries=3)
    row = await die_sending(outgoing, platform, arrives=False, begun=False)
    assert (row.status, row.attempts, platform.texts) == ("delivered", 2, ["hello"])


async def test_a_sender_says_first_that_it_begins_where_nobody_could_find_out(make_fleet: MakeFleet) -> None:
    seen = []

    class Deaf(Platform):
        async def deliver(self, message: OutboundMessage) -> Any:
            seen.append((await outgoing.fleet.outbox())[0].receipt)
            return await super().deliver(message)

    platform = Deaf(idempotent=False, deaf=True)
    outgoing = await opened(make_fleet, platform)
    platform.failures = [DeliveryError("busy", retryable=True, retry_after=0.0)]
    row = await outgoing.send({"text": "hello"})
    assert (row.status, row.receipt) == ("pending", None)
    await again(outgoing, row)
    assert (seen, platform.texts) == ([{"begun": True}] * 2, ["hello"])


async def test_a_receipt_counts_although_the_row_was_put_back_meanwhile(make_fleet: MakeFleet) -> None:
    class Slow(Platform):
        async def deliver(self, message: OutboundMessage) -> Any:
            receipt = await super().deliver(message)
            await lose_claim(outgoing)
            return receipt

    platform = Slow(idempotent=False, deaf=True)
    outgoing = await opened(make_fleet, platform)
    row = await outgoing.send({"text": "hello"})
    assert (row.status, row.receipt, platform.texts) == ("delivered", {"platform_message_id": "m1"}, ["hello"])


async def test_files_that_cannot_be_read_in_time_are_tried_again(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Platform(idempotent=False, deaf=True)
    outgoing = await opened(make_fleet, platform, delivery_seconds=0.1)
    hangs = threading.Event()
    monkeypatch.setattr(outgoing.fleet.runtime.outbox, "files", lambda _: hangs.wait(30))
    row = await outgoing.send({"text": "hello", "outbox": True, "files": [{"name": "a", "size": 1}]})
    hangs.set()
    assert (row.status, row.error, row.receipt) == ("pending", "it could not be prepared in time", None)
    assert platform.keys == []
