"""Rate-limit buckets: one suite for those of a process and those of the fleet. Clocks stand still and are moved."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.model_port import Allowance
from models.base import new_id
from workers.buckets import KEEP_SECONDS, LONGEST_SECONDS, BucketKey, Buckets, Left, LocalBuckets
from workers.events import redis_client
from workers.governor import RedisBuckets, key_of, name_of

pytestmark = pytest.mark.spec("P19")

DAY = 24 * 3600.0
NEAR = 0.01


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Yard:
    """Buckets, a way to make time pass for them, and the same buckets as seen from another process."""

    buckets: Buckets
    other: Buckets
    forward: Callable[[float], None]


@asynccontextmanager
async def _open(kind: str, redis_url: str) -> AsyncIterator[Yard]:
    clock = Clock()
    if kind == "local":
        local = LocalBuckets(clock)
        yield Yard(local, local, clock.forward)
        return
    async with redis_client(redis_url) as one, redis_client(redis_url) as two:
        yield Yard(RedisBuckets(one, clock=clock), RedisBuckets(two, clock=clock), clock.forward)


KINDS_OF_BUCKETS = ["local", "redis"]


@pytest.fixture(params=KINDS_OF_BUCKETS)
async def yard(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Yard]:
    async with _open(request.param, redis_url) as opened:
        yield opened


@pytest.fixture(params=KINDS_OF_BUCKETS)
async def live(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Buckets]:
    """Those with a clock that runs: the process's, or the server's."""
    async with redis_client(redis_url) as client:
        yield LocalBuckets() if request.param == "local" else RedisBuckets(client)


def _key(model: str = "m1") -> BucketKey:
    return BucketKey("vendor", new_id(), model)


@pytest.fixture
def key() -> BucketKey:
    return _key()


def _requests(limit: float, remaining: float, reset: float) -> Allowance:
    return Allowance("requests", limit, remaining, reset)


def _tokens(limit: float, remaining: float, reset: float) -> Allowance:
    return Allowance("tokens", limit, remaining, reset)


async def _feed(buckets: Buckets, key: BucketKey, *allowances: Allowance, estimated: int = 0, used: int = 0) -> None:
    await buckets.feed(key, allowances, estimated=estimated, used=used)


async def _left(buckets: Buckets, key: BucketKey, kind: Any = "tokens") -> Left:
    found = [state for state in await buckets.show() if state.key == key]
    return found[0].left[kind]


async def test_a_key_nobody_knows_anything_about_is_allowed_everything(yard: Yard, key: BucketKey) -> None:
    assert [await yard.buckets.take(key, 10**9) for _ in range(50)] == [0.0] * 50
    await _feed(yard.buckets, key, estimated=5, used=900)
    assert key not in [state.key for state in await yard.buckets.show()]


async def test_a_thousand_at_once_on_a_hundred_left_let_exactly_a_hundred_through(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, _requests(1000, 100, 6 * DAY))
    waits = await asyncio.gather(*((yard.buckets, yard.other)[n % 2].take(key, 10) for n in range(1000)))
    assert sum(wait == 0.0 for wait in waits) == 100
    one_request = 6 * DAY / 900
    assert all(wait == pytest.approx(one_request, abs=NEAR) for wait in waits if wait)


async def test_it_fills_in_a_straight_line(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, _tokens(1000, 200, 8000))
    for expected in (200, 400, 600, 800, 1000, 1000):
        assert (await _left(yard.other, key)).available == pytest.approx(expected, abs=NEAR)
        yard.forward(2000)


async def test_the_wait_is_the_time_until_enough_is_there(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, _tokens(1000, 0, 10_000))
    wait = await yard.buckets.take(key, 300)
    assert wait == pytest.approx(3000, abs=NEAR)
    yard.forward(wait - 10)
    assert 0 < await yard.buckets.take(key, 300) <= 10
    yard.forward(10)
    assert await yard.buckets.take(key, 300) == 0.0
    assert await yard.buckets.take(key, 300) == pytest.approx(3000, abs=NEAR)


async def test_what_was_refused_was_not_taken(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, _requests(10, 5, 5 * DAY), _tokens(1000, 100, DAY))
    for _ in range(20):
        assert await yard.buckets.take(key, 500) > 0
    assert (await _left(yard.buckets, key, "requests")).available == pytest.approx(5, abs=0.01)
    assert await yard.buckets.take(key, 100) == 0.0
    assert (await _left(yard.buckets, key, "requests")).available == pytest.approx(4, abs=0.01)


async def test_each_kind_can_be_the_one_that_is_short(yard: Yard) -> None:
    for kind in ("requests", "tokens", "input_tokens", "output_tokens"):
        key = _key()
        await _feed(yard.buckets, key, Allowance(kind, 100, 0, 10_000))
        wait = {"requests": 100, "output_tokens": 100}.get(kind, 5000)
        assert await yard.buckets.take(key, 50) == pytest.approx(wait, abs=NEAR)
    key = _key()
    await _feed(yard.buckets, key, _requests(10, 0, 100), Allowance("input_tokens", 1000, 0, 10_000))
    assert await yard.buckets.take(key, 100) == pytest.approx(1000, abs=NEAR)  # the longest of them


async def test_of_output_there_only_has_to_be_some(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, Allowance("output_tokens", 1000, 1, DAY))
    assert [await yard.buckets.take(key, 900) for _ in range(3)] == [0.0] * 3


async def test_more_than_the_limit_waits_for_a_full_bucket_and_then_goes(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, _tokens(1000, 500, 5000))
    assert await yard.buckets.take(key, 3000) == pytest.approx(5000, abs=NEAR)
    yard.forward(5000)
    assert await yard.buckets.take(key, 3000) == 0.0
    assert (await _left(yard.buckets, key)).available == pytest.approx(-2000, abs=NEAR)
    assert await yard.buckets.take(key, 1) == pytest.approx(20_010, abs=NEAR)  # it is paid back first


async def test_a_full_bucket_that_does_not_say_how_fast_it_fills_is_taken_to_fill_in_a_minute(
    yard: Yard, key: BucketKey
) -> None:
    await _feed(yard.buckets, key, _requests(6, 6, 0))
    assert [await yard.buckets.take(key, 0) for _ in range(6)] == [0.0] * 6
    assert await yard.buckets.take(key, 0) == pytest.approx(10, abs=NEAR)
    yard.forward(60)
    assert (await _left(yard.buckets, key, "requests")).available == pytest.approx(6, abs=0.01)


async def test_the_estimate_is_corrected_by_what_was_used(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, _tokens(10_000, 5000, 6 * DAY), Allowance("input_tokens", 10_000, 6000, 6 * DAY))
    assert await yard.buckets.take(key, 1000) == 0.0
    assert (await _left(yard.buckets, key)).available == pytest.approx(4000, abs=NEAR)
    await _feed(yard.other, key, estimated=1000, used=200)
    assert (await _left(yard.buckets, key)).available == pytest.approx(4800, abs=NEAR)
    await _feed(yard.other, key, estimated=0, used=1800)
    assert (await _left(yard.buckets, key)).available == pytest.approx(3000, abs=NEAR)
    assert (await _left(yard.buckets, key, "input_tokens")).available == pytest.approx(4000, abs=NEAR)
    await _feed(yard.other, key, estimated=10**9, used=0)
    assert await _left(yard.buckets, key) == Left(10_000, 10_000)


async def test_taking_and_giving_back_leaves_the_speed_of_the_refill_alone(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, _tokens(1000, 500, 5000))  # a token in ten seconds
    assert await yard.buckets.take(key, 400) == 0.0
    await _feed(yard.buckets, key, estimated=400, used=300)
    yard.forward(1000)
    assert (await _left(yard.buckets, key)).available == pytest.approx(300, abs=NEAR)


async def test_whoever_knows_of_less_is_believed(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, _tokens(1000, 900, 1000))
    assert await yard.buckets.take(key, 600) == 0.0
    await _feed(yard.other, key, _tokens(1000, 880, 1200))  # did not count the call that is on its way
    assert (await _left(yard.buckets, key)).available == pytest.approx(300, abs=NEAR)
    await _feed(yard.other, key, _tokens(1000, 40, 9600))  # a stranger uses the same account
    assert (await _left(yard.buckets, key)).available == pytest.approx(40, abs=NEAR)
    yard.forward(4800)
    assert (await _left(yard.buckets, key)).available == pytest.approx(520, abs=NEAR)


async def test_an_early_answer_does_not_forgive_the_calls_that_are_still_on_their_way(
    yard: Yard, key: BucketKey
) -> None:
    await _feed(yard.buckets, key, _requests(100, 100, 0))
    assert [await yard.buckets.take(key, 0) for _ in range(100)] == [0.0] * 100
    await _feed(yard.buckets, key, _requests(100, 99, 0.6))
    yard.forward(30)
    assert (await _left(yard.buckets, key, "requests")).available == pytest.approx(50, abs=NEAR)


async def test_another_limit_is_another_contract_and_the_header_alone_counts(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, _tokens(1000, 10, DAY))
    await _feed(yard.buckets, key, _tokens(5000, 4900, DAY))
    left = await _left(yard.buckets, key)
    assert left.limit == 5000
    assert left.available == pytest.approx(4900, abs=NEAR)


async def test_headers_rounded_to_the_second_do_not_slow_a_fleet_below_its_limit(yard: Yard, key: BucketKey) -> None:
    """4,000 a minute, of which 50 a second are used: each header says that one is missing and a second heals it."""
    await _feed(yard.buckets, key, _requests(4000, 3999, 1))
    for _ in range(300):
        for _ in range(5):
            assert await yard.buckets.take(key, 0) == 0.0
        await _feed(yard.buckets, key, _requests(4000, 3999, 1))
        yard.forward(0.1)


async def test_a_pause_is_seen_by_other_processes_at_once_and_only_for_its_key(yard: Yard, key: BucketKey) -> None:
    neighbours = [
        BucketKey(key.provider, key.account, "m2"),
        BucketKey("other", key.account, "m1"),
        BucketKey(key.provider, new_id(), "m1"),
    ]
    await yard.buckets.pause(key, 300)
    assert 300 - NEAR < await yard.other.take(key, 1) <= 300.001
    assert [await yard.other.take(neighbour, 1) for neighbour in neighbours] == [0.0] * 3
    yard.forward(295)
    assert 5 - NEAR < await yard.other.take(key, 1) <= 5.001
    yard.forward(5)
    assert await yard.other.take(key, 1) == 0.0


async def test_a_longer_pause_wins_and_a_shorter_one_does_not_shorten_it(yard: Yard, key: BucketKey) -> None:
    await yard.buckets.pause(key, 100)
    await yard.buckets.pause(key, 300)
    await yard.other.pause(key, 5)
    assert await yard.other.take(key, 1) == pytest.approx(300, abs=NEAR)
    (state,) = [state for state in await yard.other.show() if state.key == key]
    assert state.paused_seconds == pytest.approx(300, abs=NEAR)
    assert state.left == {}


async def test_no_call_goes_out_before_a_pause_is_over(live: Buckets, key: BucketKey) -> None:
    for seconds in (0.0301, 0.0499999, 0.1):
        start = time.monotonic()
        await live.pause(key, seconds)
        while await live.take(key, 1):
            pass
        assert time.monotonic() - start >= seconds


async def test_waiting_as_long_as_was_said_is_enough(live: Buckets, key: BucketKey) -> None:
    await live.pause(key, 0.05)
    await asyncio.sleep(await live.take(key, 1) + 0.001)
    assert await live.take(key, 1) == 0.0
    await _feed(live, key, _requests(10, 0, 0.5))
    await asyncio.sleep(await live.take(key, 1) + 0.001)
    assert await live.take(key, 1) == 0.0


async def test_a_pause_and_an_empty_bucket_wait_for_the_later(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, _requests(10, 0, 1000))
    await yard.buckets.pause(key, 30)
    assert await yard.buckets.take(key, 1) == pytest.approx(100, abs=NEAR)
    await yard.buckets.pause(key, 400)
    assert await yard.buckets.take(key, 1) == pytest.approx(400, abs=NEAR)


BAD = (-1.0, math.nan, math.inf, -math.inf, 1e300, 10**400)


@pytest.mark.parametrize(
    "allowance",
    [
        *(_requests(bad, 0, 60) for bad in (*BAD, 0)),
        *(_requests(100, bad, 60) for bad in BAD),
        *(_requests(100, 0, bad) for bad in (*BAD, 8 * DAY)),
        Allowance("wishes", 100, 0, 60),  # type: ignore[arg-type]
    ],
)
async def test_numbers_that_cannot_be_true_are_ignored(yard: Yard, key: BucketKey, allowance: Allowance) -> None:
    await _feed(yard.buckets, key, allowance)
    assert await yard.buckets.take(key, 1) == 0.0
    await _feed(yard.buckets, key, _tokens(100, 50, DAY), allowance)
    assert (await _left(yard.buckets, key)).available == pytest.approx(50, abs=NEAR)
    assert await yard.buckets.take(key, -5) == 0.0
    assert (await _left(yard.buckets, key)).available == pytest.approx(50, abs=NEAR)


async def test_pauses_that_cannot_be_true_are_ignored_and_all_waits_have_an_end(yard: Yard, key: BucketKey) -> None:
    for bad in (0.0, -5.0, math.nan, math.inf, -math.inf):
        await yard.buckets.pause(key, bad)
    assert await yard.buckets.take(key, 1) == 0.0
    await _feed(yard.buckets, key, _tokens(1e11, 1e11 - 1, 7 * DAY))
    assert await yard.buckets.take(key, 10**30) == pytest.approx(LONGEST_SECONDS, abs=NEAR)
    assert await yard.buckets.take(key, 10**10) == 0.0
    assert 0 < await yard.buckets.take(key, 10**30) <= LONGEST_SECONDS
    await yard.buckets.pause(key, 1e12)
    assert await yard.buckets.take(key, 1) == pytest.approx(LONGEST_SECONDS, abs=NEAR)


async def test_more_remaining_than_the_limit_is_a_full_bucket(yard: Yard, key: BucketKey) -> None:
    await _feed(yard.buckets, key, _tokens(100, 500, DAY))
    assert await _left(yard.buckets, key) == Left(100, 100)


@pytest.mark.parametrize("model", ["a:b", "limits:*", "x\n\r\x1b[31m", "{tag}", "", "é" * 3000, "m" * 300, "\ud800"])
async def test_any_model_name_is_safe_and_a_key_of_its_own(yard: Yard, model: str) -> None:
    account = new_id()
    key, neighbour = BucketKey("v", account, model), BucketKey("v", account, model + "x")
    await yard.buckets.pause(key, 300)
    assert await yard.other.take(key, 1) > 0
    assert await yard.other.take(neighbour, 1) == 0.0
    assert len([state for state in await yard.buckets.show() if state.key.account == account]) == 1


async def test_show_is_sorted_and_tells_every_kind(yard: Yard) -> None:
    account = new_id()
    first, second = BucketKey("v", account, "a"), BucketKey("v", account, "b")
    await _feed(yard.buckets, second, _requests(10, 4, DAY), _tokens(1000, 300, DAY))
    await yard.buckets.pause(first, 60)
    states = [state for state in await yard.other.show() if state.key.account == account]
    assert [state.key for state in states] == [first, second]
    assert states[1].paused_seconds == 0.0
    assert {kind: (round(left.available), left.limit) for kind, left in states[1].left.items()} == {
        "requests": (4, 10), "tokens": (300, 1000),
    }  # fmt: skip


slowly = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 100)),
        st.tuples(st.just("wait"), st.integers(1, 2000)),
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.parametrize("kind", KINDS_OF_BUCKETS)
@given(steps=steps, remaining=st.integers(0, 100), reset=st.integers(100, 100_000))
@slowly
def test_no_more_than_what_was_there_and_what_came_back_is_let_through(
    redis_url: str, kind: str, steps: list[tuple[str, int]], remaining: int, reset: int
) -> None:
    async def check() -> None:
        async with _open(kind, redis_url) as yard:
            key = _key()
            calls = tokens = passed = 0
            await _feed(yard.buckets, key, _tokens(100, remaining, reset), _requests(100, remaining, reset))
            rate = (100 - remaining) / reset if remaining < 100 else 100 / 60
            for step, amount in steps:
                if step == "wait":
                    yard.forward(amount)
                    passed += amount
                elif await yard.buckets.take(key, amount) == 0.0:
                    calls, tokens = calls + 1, tokens + amount
                most = remaining + rate * passed + 0.001
                assert calls <= most
                assert tokens <= most

    asyncio.run(check())


whole = st.integers(0, 1000)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("take"), whole, whole, whole),
        st.tuples(st.just("take"), whole, whole, whole),
        st.tuples(st.just("forward"), whole, whole, whole),
        st.tuples(st.just("feed"), whole, whole, whole),
        st.tuples(st.just("correct"), whole, whole, whole),
        st.tuples(st.just("pause"), whole, whole, whole),
    ),
    min_size=1,
    max_size=40,
)


async def _do(buckets: Buckets, key: BucketKey, operation: tuple[str, int, int, int]) -> float:
    name, a, b, c = operation
    if name == "take":
        return await buckets.take(key, a)
    if name == "pause":
        await buckets.pause(key, a)
    if name == "feed":
        limit = 400 if c % 4 else 700
        allowances = (
            _tokens(limit, a, 1000 + 20 * b),
            Allowance("output_tokens", limit, a, 1000),
            _requests(50, b, 4000),
        )
        await _feed(buckets, key, *allowances, estimated=c, used=b)
    if name == "correct":
        await _feed(buckets, key, estimated=a, used=b)
    return 0.0


@given(operations=operations)
@slowly
def test_the_process_s_and_the_fleet_s_buckets_agree(
    redis_url: str, operations: list[tuple[str, int, int, int]]
) -> None:
    async def check() -> None:
        async with _open("local", redis_url) as here, _open("redis", redis_url) as there:
            key = _key()
            for operation in operations:
                if operation[0] == "forward":
                    here.forward(operation[1])
                    there.forward(operation[1])
                mine, theirs = await _do(here.buckets, key, operation), await _do(there.buckets, key, operation)
                assert mine == pytest.approx(theirs, abs=NEAR)
            states = [[s for s in await yard.buckets.show() if s.key == key] for yard in (here, there)]
            assert len(states[0]) == len(states[1])
            for local, shared in zip(*states, strict=True):
                assert local.paused_seconds == pytest.approx(shared.paused_seconds, abs=NEAR)
                assert local.left.keys() == shared.left.keys()
                for kind, left in local.left.items():
                    assert left.limit == shared.left[kind].limit
                    assert left.available == pytest.approx(shared.left[kind].available, abs=NEAR)

    asyncio.run(check())


async def test_a_process_forgets_buckets_that_no_longer_matter() -> None:
    clock = Clock()
    buckets = LocalBuckets(clock)
    lasting = _key("lasting")
    await buckets.pause(lasting, 6 * DAY)
    for number in range(500):
        await _feed(buckets, _key(str(number)), _requests(10, 0, 60))
    assert len(await buckets.show()) == 501
    clock.forward(60 + KEEP_SECONDS + 1)
    await _feed(buckets, fresh := _key("new"), _requests(10, 0, 60))
    assert {state.key for state in await buckets.show()} == {lasting, fresh}


async def test_redis_forgets_buckets_that_no_longer_matter(redis_url: str) -> None:
    async with redis_client(redis_url) as client:
        buckets = RedisBuckets(client)
        paused, fed = _key(), _key()
        await buckets.pause(paused, 300)
        await _feed(buckets, fed, _requests(10, 5, 600))
        assert KEEP_SECONDS + 290 < await client.pttl(name_of(paused)) / 1000 <= KEEP_SECONDS + 300.001
        assert KEEP_SECONDS + 590 < await client.pttl(name_of(fed)) / 1000 <= KEEP_SECONDS + 600.001
        assert await buckets.take(fed, 1) == 0.0
        assert KEEP_SECONDS + 700 < await client.pttl(name_of(fed)) / 1000 <= KEEP_SECONDS + 720.001


async def test_scripts_that_the_server_forgot_are_sent_again(redis_url: str, key: BucketKey) -> None:
    async with redis_client(redis_url) as client:
        buckets = RedisBuckets(client, clock=Clock())
        await buckets.pause(key, 300)
        await client.script_flush()
        assert await buckets.take(key, 1) == pytest.approx(300, abs=NEAR)
        await client.script_flush()
        assert key in [state.key for state in await buckets.show()]


async def test_a_server_whose_clock_was_set_back_does_not_hold_the_fleet(redis_url: str, key: BucketKey) -> None:
    async with redis_client(redis_url) as client:
        clock = Clock()
        buckets = RedisBuckets(client, clock=clock)
        await _feed(buckets, key, _requests(10, 0, 600))
        await buckets.pause(key, 300)
        assert await buckets.take(key, 1) > 0
        clock.forward(-400 * DAY)
        assert await buckets.take(key, 1) == 0.0


async def test_what_another_release_wrote_is_unknown_and_not_an_error(redis_url: str, key: BucketKey) -> None:
    async with redis_client(redis_url) as client:
        await client.hset(name_of(key), mapping={"requests": "10 zero", "paused_until": "later", "colour": "1 2 3 4 5"})
        await client.set(f"limits:{key.account}", "not a bucket")
        buckets = RedisBuckets(client)
        assert await buckets.take(key, 1) == 0.0
        assert key in [state.key for state in await buckets.show()]
        await client.delete(name_of(key), f"limits:{key.account}")


def test_names_begin_with_limits_and_tell_the_key() -> None:
    key = BucketKey("openai", "fp-1a2b", "org/model:free *")
    assert name_of(key) == "limits:openai:fp-1a2b:org%2Fmodel%3Afree%20%2A"
    assert key_of(name_of(key)) == key
    assert name_of(BucketKey("a:b", "c", "d")) != name_of(BucketKey("a", "b:c", "d"))
    assert len(name_of(BucketKey("a", "b", "m" * 10_000))) < 250
