"""The governor when its Redis is killed, hangs, comes back, or comes back empty."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis.asyncio
from structlog.testing import CapturingLogger

from adapters.model_port import Allowance
from models.base import new_id
from tests.support.servers import Valkey
from workers import governor as module
from workers.buckets import BucketKey, LocalBuckets
from workers.events import redis_client
from workers.governor import Governor, RedisBuckets, name_of

pytestmark = pytest.mark.spec("P19")

DAY = 24 * 3600.0
NEAR = 2.0


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture
async def client(valkey: Valkey) -> AsyncIterator[redis.asyncio.Redis]:
    async with redis_client(valkey.url) as opened:
        yield opened


@pytest.fixture
async def stranger(valkey: Valkey) -> AsyncIterator[RedisBuckets]:
    """Another process of the fleet."""
    async with redis_client(valkey.url) as opened:
        yield RedisBuckets(opened)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    logger = CapturingLogger()
    monkeypatch.setattr(module, "log", logger)
    return logger


@pytest.fixture
def key() -> BucketKey:
    return BucketKey("vendor", new_id(), "m1")


def _said(logger: CapturingLogger) -> list[tuple[str, str]]:
    return [(call.method_name, call.args[0]) for call in logger.calls]


def _signal(valkey: Valkey, number: signal.Signals) -> None:
    assert valkey._process is not None
    valkey._process.send_signal(number)


async def _use(governor: Governor, key: BucketKey, remaining: float) -> None:
    await governor.feed(key, [Allowance("requests", 10, remaining, 3 * DAY)], estimated=0, used=0)


async def _until_back(governor: Governor, logger: CapturingLogger, key: BucketKey) -> None:
    """Only using it brings it back: nothing runs in the background."""
    async with asyncio.timeout(20):
        while ("info", "governor.redis_back") not in _said(logger):
            await governor.take(key, 0)
            await asyncio.sleep(0.05)


async def test_with_redis_the_fleet_counts_together(
    client: redis.asyncio.Redis, stranger: RedisBuckets, key: BucketKey, logged: CapturingLogger
) -> None:
    governor = Governor(client)
    await _use(governor, key, 3)
    assert [await buckets.take(key, 5) for buckets in (governor, stranger, governor)] == [0.0] * 3
    for buckets in (governor, stranger):
        assert await buckets.take(key, 5) == pytest.approx(3 * DAY / 7, abs=NEAR)
    await stranger.pause(key, 6 * DAY)
    assert await governor.take(key, 5) == pytest.approx(6 * DAY, abs=NEAR)
    (state,) = await governor.show()
    assert (state.key, round(state.left["requests"].available)) == (key, 0)
    assert _said(logged) == []


async def test_a_killed_redis_leaves_the_limits_this_process_knows(
    valkey: Valkey, client: redis.asyncio.Redis, key: BucketKey, logged: CapturingLogger
) -> None:
    governor = Governor(client)
    await _use(governor, key, 5)
    assert await governor.take(key, 5) == 0.0
    valkey.stop(signal.SIGKILL)
    start = time.monotonic()
    waits = [await governor.take(key, 5) for _ in range(100)]
    assert time.monotonic() - start < 3
    assert [wait == 0.0 for wait in waits] == [True] * 4 + [False] * 96
    await governor.feed(key, [], estimated=5, used=7)
    (state,) = await governor.show()
    assert state.key == key
    assert _said(logged) == [("warning", "governor.redis_away")]


async def test_many_callers_at_the_moment_of_the_kill_wait_a_second_at_most_and_none_fails(
    valkey: Valkey, client: redis.asyncio.Redis, key: BucketKey, logged: CapturingLogger
) -> None:
    governor = Governor(client)
    await _use(governor, key, 10)
    valkey.stop(signal.SIGKILL)
    start = time.monotonic()
    waits = await asyncio.gather(*(governor.take(key, 1) for _ in range(300)))
    assert time.monotonic() - start < 2.5
    assert sum(wait == 0.0 for wait in waits) == 10
    assert _said(logged) == [("warning", "governor.redis_away")]


async def test_pauses_outlive_redis_both_ours_and_those_we_were_told_of(
    valkey: Valkey, client: redis.asyncio.Redis, stranger: RedisBuckets, key: BucketKey, logged: CapturingLogger
) -> None:
    governor = Governor(client)
    told = BucketKey("vendor", key.account, "m2")
    await governor.pause(key, 300)
    await stranger.pause(told, 300)
    assert await governor.take(told, 1) > 0
    valkey.stop(signal.SIGKILL)
    assert await governor.take(key, 1) == pytest.approx(300, abs=NEAR)
    assert await governor.take(told, 1) == pytest.approx(300, abs=NEAR)
    assert await governor.take(BucketKey("vendor", key.account, "m3"), 1) == 0.0


async def test_it_returns_to_redis_and_tells_the_fleet_of_pauses_it_missed(
    valkey: Valkey, client: redis.asyncio.Redis, stranger: RedisBuckets, key: BucketKey, logged: CapturingLogger
) -> None:
    governor = Governor(client, retry_seconds=0.2)
    other = BucketKey("vendor", key.account, "m2")
    await _use(governor, other, 5)
    valkey.stop(signal.SIGKILL)
    await governor.pause(key, 300)
    assert await governor.take(key, 1) == pytest.approx(300, abs=NEAR)
    valkey.start()
    await _until_back(governor, logged, BucketKey("vendor", key.account, "m3"))
    assert await stranger.take(key, 1) == pytest.approx(300, abs=10)
    assert _said(logged) == [("warning", "governor.redis_away"), ("info", "governor.redis_back")]
    await stranger.pause(other, 100)
    assert await governor.take(other, 1) == pytest.approx(100, abs=NEAR)


async def test_a_redis_that_forgot_a_pause_is_told_again(
    valkey: Valkey, client: redis.asyncio.Redis, stranger: RedisBuckets, key: BucketKey
) -> None:
    governor = Governor(client)
    await governor.pause(key, 300)
    valkey.flush()
    assert await stranger.take(key, 1) == 0.0
    assert await governor.take(key, 1) == pytest.approx(300, abs=NEAR)
    assert await stranger.take(key, 1) == pytest.approx(300, abs=NEAR)


async def test_a_redis_that_hangs_costs_a_second_once_and_its_late_answers_confuse_nobody(
    valkey: Valkey, client: redis.asyncio.Redis, key: BucketKey, logged: CapturingLogger
) -> None:
    governor = Governor(client, retry_seconds=0.2)
    paused = BucketKey("vendor", key.account, "m2")
    await _use(governor, key, 10)
    await governor.pause(paused, 6 * DAY)
    _signal(valkey, signal.SIGSTOP)
    try:
        start = time.monotonic()
        assert await asyncio.gather(*(governor.take(key, 1) for _ in range(5))) == [0.0] * 5
        assert 0.9 < time.monotonic() - start < 2
        start = time.monotonic()
        assert await governor.take(paused, 1) == pytest.approx(6 * DAY, abs=10)
        assert time.monotonic() - start < 0.1
    finally:
        _signal(valkey, signal.SIGCONT)
    await _until_back(governor, logged, BucketKey("vendor", key.account, "m3"))
    for _ in range(5):
        held, free = await asyncio.gather(governor.take(paused, 1), governor.take(BucketKey("v", key.account, "m4"), 1))
        assert held == pytest.approx(6 * DAY, abs=10)
        assert free == 0.0


async def test_a_redis_that_refuses_is_away_too(
    client: redis.asyncio.Redis, key: BucketKey, logged: CapturingLogger
) -> None:
    await client.set(name_of(key), "not a hash")
    governor = Governor(client)
    assert await governor.take(key, 1) == 0.0
    await governor.pause(key, 30)
    assert await governor.take(key, 1) == pytest.approx(30, abs=NEAR)
    assert _said(logged) == [("warning", "governor.redis_away")]


async def test_a_server_that_was_never_there_is_no_error(key: BucketKey, logged: CapturingLogger) -> None:
    async with redis_client("redis://127.0.0.1:1/0") as nowhere:
        governor = Governor(nowhere, local=LocalBuckets())
        assert await governor.take(key, 1) == 0.0
        await governor.pause(key, 5)
        assert 0 < await governor.take(key, 1) <= 5.001
        assert [state.key for state in await governor.show()] == [key]


async def test_a_cancelled_caller_stays_cancelled(
    valkey: Valkey, client: redis.asyncio.Redis, key: BucketKey, logged: CapturingLogger
) -> None:
    governor = Governor(client)
    _signal(valkey, signal.SIGSTOP)
    task = asyncio.create_task(governor.take(key, 1))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
