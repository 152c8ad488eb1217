"""Platforms' limits, kept across workers: what has no room waits without being tried, and nobody overtakes it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from sqlalchemy import update

from adapters.channel_port import ChannelCapabilities, Rate
from adapters.errors import DeliveryError
from models import MessageOut
from models.base import new_id, now
from tests.support.fleet import MakeFleet
from tests.support.outgoing import Outgoing, Platform
from tests.support.servers import free_port
from workers.rates import LONGEST_PAUSE_SECONDS, LONGEST_WAIT_SECONDS, Rates

pytestmark = [pytest.mark.spec("M12"), pytest.mark.both_databases]


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = redis.asyncio.Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rates(client: redis.asyncio.Redis, clock: Clock) -> Rates:
    return Rates(client, clock=clock)


def limits(*, per_chat: Rate | None = None, overall: Rate | None = None) -> ChannelCapabilities:
    return ChannelCapabilities(idempotent=True, per_chat=per_chat, overall=overall)


async def test_so_many_at_once_and_then_as_fast_as_they_come_back(rates: Rates, clock: Clock) -> None:
    channel, allowed = new_id(), limits(per_chat=Rate(3, 6.0))
    assert [await rates.take(channel, "a", allowed) for _ in range(4)] == [0.0, 0.0, 0.0, 2.0]
    clock.time += 2.0
    assert [await rates.take(channel, "a", allowed) for _ in range(2)] == [0.0, 2.0]
    clock.time += 600.0
    assert [await rates.take(channel, "a", allowed) for _ in range(4)] == [0.0, 0.0, 0.0, 2.0]


async def test_those_who_wait_are_not_all_told_to_come_back_at_once(rates: Rates, clock: Clock) -> None:
    channel, allowed = new_id(), limits(overall=Rate(2, 2.0))
    waits = [await rates.take(channel, "a", allowed) for _ in range(6)]
    assert waits == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    began = clock.time
    for wait in waits[2:]:
        clock.time = began + wait
        assert await rates.take(channel, "a", allowed) == 0.0
    assert max([await rates.take(channel, "a", allowed) for _ in range(200)]) == LONGEST_WAIT_SECONDS


async def test_chats_have_limits_of_their_own_and_one_together(rates: Rates) -> None:
    channel, allowed = new_id(), limits(per_chat=Rate(1, 10.0), overall=Rate(2, 4.0))
    assert await rates.take(channel, "a", allowed) == 0.0
    assert await rates.take(channel, "a", allowed) == 10.0
    assert await rates.take(channel, "b", allowed) == 0.0, "what found no room was not counted"
    assert await rates.take(channel, "c", allowed) == 2.0
    assert await rates.take(new_id(), "a", allowed) == 0.0


async def test_a_platform_that_asks_for_patience_gets_it_everywhere_for_a_while(rates: Rates, clock: Clock) -> None:
    channel, allowed = new_id(), limits(per_chat=Rate(9, 9.0), overall=Rate(9, 9.0))
    await rates.pause(channel, "a", allowed, 50.0)
    await rates.pause(channel, "a", allowed, 5.0)
    assert await rates.take(channel, "a", allowed) == 50.0
    assert await rates.take(channel, "b", allowed) == LONGEST_PAUSE_SECONDS
    clock.time += LONGEST_PAUSE_SECONDS
    assert await rates.take(channel, "b", allowed) == 0.0
    assert await rates.take(channel, "a", allowed) == 50.0 - LONGEST_PAUSE_SECONDS


async def test_workers_share_a_limit(rates: Rates, client: redis.asyncio.Redis, clock: Clock) -> None:
    channel, allowed = new_id(), limits(overall=Rate(20, 20.0))
    workers = [rates, Rates(client, clock=clock), Rates(client, clock=clock)]
    waits = await asyncio.gather(*(worker.take(channel, str(n), allowed) for n in range(20) for worker in workers))
    assert waits.count(0.0) == 20


async def test_a_clock_that_was_set_back_holds_nobody_up(rates: Rates, clock: Clock) -> None:
    channel, allowed = new_id(), limits(overall=Rate(1, 10.0))
    assert await rates.take(channel, "a", allowed) == 0.0
    clock.time -= 100_000.0
    assert await rates.take(channel, "a", allowed) == 0.0


async def test_buckets_are_forgotten_when_they_are_full(rates: Rates, client: redis.asyncio.Redis) -> None:
    channel = new_id()
    await rates.take(channel, "\ud800 chat", limits(per_chat=Rate(1, 10.0)))
    [name] = [name async for name in client.scan_iter(match=f"sending:*{channel}*")]
    assert 10_000 < await client.pttl(name) <= 1000 * (10 + LONGEST_WAIT_SECONDS)


async def test_without_redis_everything_goes() -> None:
    client = redis.asyncio.Redis(port=free_port(), retry=Retry(NoBackoff(), 0))
    rates = Rates(client)
    allowed = limits(overall=Rate(1, 3600.0))
    assert [await rates.take("x", "a", allowed) for _ in range(3)] == [0.0, 0.0, 0.0]
    await rates.pause("x", "a", allowed, 60.0)
    await client.aclose()


async def opened(make_fleet: MakeFleet, platform: Platform, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Outgoing:
    fleet = await make_fleet(platform.registry())
    # A name of its own, and time as the test says.
    monkeypatch.setattr("workers.rates.PREFIX", f"{new_id()}:")
    monkeypatch.setattr(fleet.runtime.rates, "_clock", clock)
    return await Outgoing.open(fleet)


@pytest.mark.parametrize("database_kind", ["postgresql", "sqlite"])
async def test_what_has_no_room_waits_untried_and_in_order(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    platform = Platform(per_chat=Rate(1, 30.0))
    outgoing = await opened(make_fleet, platform, monkeypatch, clock)
    for text in ("one", "two", "three"):
        await outgoing.put({"text": text})
    await outgoing.fleet.settle_down()
    rows = await outgoing.fleet.outbox()
    assert platform.texts == ["one"]
    assert [(row.status, row.attempts) for row in rows] == [("delivered", 1), ("pending", 0), ("pending", 0)]
    assert 25 < (rows[1].deliver_after - rows[0].delivered_at).total_seconds() < 60
    clock.time += 60.0
    outgoing.fleet.bells.deliver(rows[2].id)
    await outgoing.fleet.settle_down()
    assert platform.texts == ["one"], "the third waits for the second"
    await outgoing.fleet.execute(update(MessageOut).where(MessageOut.id == rows[1].id).values(deliver_after=now(-1)))
    await outgoing.fleet.sweep()
    await outgoing.fleet.settle_down()
    assert platform.texts == ["one", "two"]
    assert [row.status for row in await outgoing.fleet.outbox()] == ["delivered", "delivered", "pending"]


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_parts_count_one_by_one(make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    platform = Platform(max_text=9, per_chat=Rate(2, 30.0))
    outgoing = await opened(make_fleet, platform, monkeypatch, clock)
    row = await outgoing.send({"text": "one two three four five"})
    assert (row.status, row.attempts, row.receipt) == ("pending", 0, {"parts": ["m1", "m2"]})
    clock.time += 60.0
    await outgoing.fleet.execute(update(MessageOut).values(deliver_after=now(-1)))
    await outgoing.fleet.sweep()
    await outgoing.fleet.settle_down()
    assert platform.keys == ["101#1", "101#2", "101#3"]


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_a_busy_platform_is_left_in_peace_by_all(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    platform = Platform(overall=Rate(100, 1.0))
    outgoing = await opened(make_fleet, platform, monkeypatch, clock)
    platform.failures = [DeliveryError("busy", retryable=True, retry_after=20.0)]
    assert (await outgoing.send({"text": "one"})).attempts == 0, "a platform that asks for patience uses up no try"
    row = await outgoing.send({"text": "elsewhere"}, thread_id="t")
    assert (row.status, row.attempts, platform.keys) == ("pending", 0, ["101"])


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_a_platform_that_asks_for_patience_gets_it_until_the_message_is_old(make_fleet: MakeFleet) -> None:
    platform = Platform()
    outgoing = await Outgoing.open(await make_fleet(platform.registry(), max_tries=2, limit_seconds=300))
    platform.failures = [DeliveryError("429", retryable=True, retry_after=0.0) for _ in range(7)]
    row = await outgoing.send({"text": "hello"})
    for _ in range(4):
        assert (row.status, row.attempts) == ("pending", 0)
        outgoing.fleet.bells.deliver(row.id)
        await outgoing.fleet.settle_down()
        row = await outgoing.row(row.id)
    await outgoing.fleet.execute(update(MessageOut).values(created_at=now(-301)))
    outgoing.fleet.bells.deliver(row.id)
    await outgoing.fleet.settle_down()
    assert (await outgoing.row(row.id)).attempts == 1
    outgoing.fleet.bells.deliver(row.id)
    await outgoing.fleet.settle_down()
    assert ((await outgoing.row(row.id)).status, platform.failures) == ("failed", [])
