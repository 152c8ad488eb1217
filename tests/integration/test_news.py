"""Many readers on one subscription: each gets everything once, whatever happens to Redis and however slow it is."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError

from adapters.events import Envelope
from gateway.http import news as module
from gateway.http.news import News
from models import Event
from tests.support.conditions import wait_for_condition
from tests.support.event_readers import event_numbers, read_events, turns_ended
from tests.support.fleet import Fleet, fleet_settings
from tests.support.scripts import TWO_CALLS_SCRIPT
from tests.support.servers import Valkey
from workers.events import ALL, Follower, Live, Publisher, Subscriptions, redis_client

pytestmark = pytest.mark.spec("G2")
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
LONG = 60.0  # trusting silence for so long, a reader finds nothing in the table by chance


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    async with redis_client(redis_url) as opened:
        yield opened


@pytest.fixture
async def news(client: redis.asyncio.Redis) -> AsyncIterator[News]:
    opened = News(client)
    yield opened
    opened.close()


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop(signal.SIGKILL)


class Mute(Publisher):
    """As if the worker died after each commit."""

    def publish(self, *envelopes: Envelope) -> None:
        pass


@asynccontextmanager
async def reading(follower: Follower) -> AsyncIterator[list[Envelope]]:
    """What it has read so far."""
    seen: list[Envelope] = []

    async def read() -> None:
        async for item in follower.events():
            seen.append(item)

    task = asyncio.create_task(read())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def subscribers(client: redis.asyncio.Redis) -> int:
    [(_, count)] = await client.pubsub_numsub(ALL)
    return int(count)


async def test_many_readers_share_one_subscription_and_each_gets_everything(
    fleet: Fleet, client: redis.asyncio.Redis, news: News
) -> None:
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    ready: list[int] = []
    followers = [
        Follower(fleet.db, news, accepted.session_id, ready=lambda: ready.append(1), look_again=LONG) for _ in range(20)
    ]
    readers = [asyncio.create_task(read_events(follower, turns_ended(1))) for follower in followers]
    await wait_for_condition(lambda: len(ready) == 20)
    assert await subscribers(client) == 1
    await fleet.send(platform_id="elsewhere")
    await fleet.settle_down()
    first, *others = await asyncio.gather(*readers)
    assert event_numbers(first) == list(range(1, 11))
    assert {item.session for item in first} == {accepted.session_id}
    assert "text_delta" in {item.event.type for item in first}
    assert all(other == first for other in others)


async def test_a_reader_that_falls_behind_reads_the_table(
    fleet: Fleet, news: News, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEHIND_LIMIT", 3)
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    slow = Follower(fleet.db, news, accepted.session_id, look_again=LONG)
    beats = slow.events()
    first = asyncio.ensure_future(anext(beats))
    await wait_for_condition(lambda: news._readers)
    [reader] = news._readers[accepted.session_id]
    await fleet.settle_down()
    await wait_for_condition(lambda: reader.losses)
    assert len(reader._behind) <= 3
    seen = [await first]
    async with asyncio.timeout(20):
        while seen[-1].event.type != "turn_ended":
            seen.append(await anext(beats))
    assert event_numbers(seen) == list(range(1, 11))


class QuietPubSub(PubSub):
    """Connects again without a word, as the Redis client does in some cases."""

    async def get_message(self, *args: Any, **given: Any) -> Any:
        try:
            return await super().get_message(*args, **given)
        except RedisConnectionError:
            return await super().get_message(*args, **given)


@pytest.mark.parametrize("quietly", [False, True])
@pytest.mark.parametrize("kind", ["own", "shared"])
@ONE_DATABASE
async def test_a_lost_connection_sends_readers_to_the_table(
    fleet: Fleet, client: redis.asyncio.Redis, news: News, kind: str, quietly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if quietly:
        monkeypatch.setattr(client, "pubsub", lambda: QuietPubSub(client.connection_pool))
    live: Live = news if kind == "shared" else Subscriptions(client)
    mute = Mute(client)
    fleet.runtime.publisher = mute  # type: ignore[misc]
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    ready = asyncio.Event()
    async with reading(Follower(fleet.db, live, accepted.session_id, ready=ready.set, look_again=LONG)) as seen:
        await ready.wait()
        await fleet.settle_down()
        assert not seen
        await client.client_kill_filter(_type="pubsub")
        await wait_for_condition(lambda: len(seen) >= 10)
        assert event_numbers(seen) == list(range(1, 11))
    await mute.close()


@pytest.fixture
async def fleet_beside(valkey: Valkey, database_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet whose Redis is this test's own."""
    fleet = Fleet(fleet_settings(database_url, valkey.url, tmp_path))
    yield fleet
    await fleet.close()


async def test_readers_live_through_a_restart_of_redis(fleet_beside: Fleet, valkey: Valkey) -> None:
    fleet = fleet_beside
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    async with redis_client(valkey.url) as client:
        news = News(client)
        followers = [Follower(fleet.db, news, accepted.session_id) for _ in range(3)]
        async with reading(followers[0]) as one, reading(followers[1]) as two, reading(followers[2]) as three:
            await fleet.settle_down()
            await wait_for_condition(lambda: min(map(len, (one, two, three))) >= 10)
            valkey.stop(signal.SIGKILL)
            await fleet.send()
            await fleet.settle_down()
            await wait_for_condition(lambda: all(event_numbers(seen)[-1:] == [20] for seen in (one, two, three)))
            valkey.start()
            await wait_for_condition(lambda: news._subscribed.is_set())
            told = [len(seen) for seen in (one, two, three)]
            await fleet.send()
            await fleet.settle_down()
            await wait_for_condition(lambda: all(event_numbers(seen)[-1:] == [30] for seen in (one, two, three)))
            for seen, before in zip((one, two, three), told, strict=True):
                assert event_numbers(seen) == list(range(1, 31))
                assert "text_delta" in {item.event.type for item in seen[before:]}, "it is live again"
        news.close()


async def test_when_redis_was_never_there_readers_find_everything(fleet: Fleet) -> None:
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    async with redis_client("redis://127.0.0.1:1/0") as away:
        news = News(away)
        async with reading(Follower(fleet.db, news, accepted.session_id, look_again=0.05)) as seen:
            await fleet.settle_down()
            await wait_for_condition(lambda: len(seen) >= 10)
            assert event_numbers(seen) == list(range(1, 11))
        news.close()


@ONE_DATABASE
async def test_what_nobody_can_read_stops_nobody(fleet: Fleet, client: redis.asyncio.Redis, news: News) -> None:
    """A newer release may say things that this one does not know, and anybody may publish."""
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    new = '{"v": 1, "session": "%s", "at": "2026-11-16T02:31:28Z", "seq": 1, "event": {"type": "hologram"}}'
    async with reading(Follower(fleet.db, news, accepted.session_id, look_again=LONG)) as seen:
        await wait_for_condition(lambda: news._subscribed.is_set() and news._readers)
        for text in (b"\xff\x00", "[]", new % accepted.session_id):
            await client.publish(ALL, text)
        row = {"session_id": accepted.session_id, "seq": 11, "type": "hologram", "payload": {"type": "hologram"}}
        await fleet.settle_down()
        await wait_for_condition(lambda: len(event_numbers(seen)) >= 10)
        await fleet.insert(Event, row)
        again: list[Envelope] = []
        async for beat in Follower(fleet.db, news, accepted.session_id, look_again=0.05).beats():
            if beat is None:
                break
            again.append(beat)
        assert event_numbers(again) == event_numbers(seen) == list(range(1, 11))


@ONE_DATABASE
async def test_closing_ends_every_reader_and_those_that_come_later(fleet: Fleet, news: News) -> None:
    followers = [Follower(fleet.db, news, session, look_again=LONG) for session in ("s1", "s1", "s2")]
    readers = [asyncio.create_task(read_events(follower, lambda _: False)) for follower in followers]
    await wait_for_condition(lambda: sum(map(len, news._readers.values())) == 3)
    news.close()
    assert await asyncio.gather(*readers) == [[], [], []]
    assert await read_events(Follower(fleet.db, news, "s3", look_again=LONG), lambda _: False) == []
    assert not news._readers


@ONE_DATABASE
async def test_a_reader_that_goes_is_forgotten(fleet: Fleet, news: News) -> None:
    async with reading(Follower(fleet.db, news, "s1")), reading(Follower(fleet.db, news, "s2")):
        await wait_for_condition(lambda: set(news._readers) == {"s1", "s2"})
    assert not news._readers
