"""Rate-limit buckets, one per (provider, account, model): what the vendor said is left, and how it fills again.

Here are the words and the arithmetic, and `LocalBuckets`, which counts for one process. `workers/governor.py` counts
the same for the whole fleet in Redis; both pass one suite. A bucket never sleeps and never calls: it says how long to
wait."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from adapters.model_port import Allowance

Kind = Literal["requests", "tokens", "input_tokens", "output_tokens"]
KINDS: tuple[Kind, ...] = ("requests", "tokens", "input_tokens", "output_tokens")

LONGEST_SECONDS = 7 * 24 * 3600.0
# Vendors count by the minute. This is assumed where a full bucket does not show how fast it fills.
USUAL_WINDOW_SECONDS = 60.0
# A full bucket is still worth knowing: a burst is measured against its limit. After this long it is not.
KEEP_SECONDS = 3600.0
# The least reset that says how fast a bucket fills; below it the bucket is as good as full.
LEAST_RESET_SECONDS = 0.001
MOST_UNITS = 1e15
MOST_TOKENS = 10**12
# Rounding in the refill must not make a caller come back for a millionth of a request.
SLACK = 1e-6


@dataclass(frozen=True)
class BucketKey:
    """`account` is a fingerprint of the credentials, never the credentials: keys are stored and shown."""

    provider: str
    account: str
    model: str


@dataclass(frozen=True)
class Left:
    available: float
    limit: float


@dataclass(frozen=True)
class BucketState:
    """A bucket as people see it. `paused_seconds` is 0.0 when calls are allowed."""

    key: BucketKey
    paused_seconds: float
    left: Mapping[Kind, Left]


class Buckets(Protocol):
    async def take(self, key: BucketKey, tokens: int) -> float:
        """0.0: go ahead, one request and `tokens` were taken. Else the seconds to wait; nothing was taken."""

    async def feed(self, key: BucketKey, allowances: Sequence[Allowance], *, estimated: int, used: int) -> None:
        """After a call: what the vendor's headers said, and what the call really used of what was taken for it."""

    async def pause(self, key: BucketKey, seconds: float) -> None:
        """Nobody calls with this key before. A longer pause wins; a shorter one does not shorten it."""

    async def show(self) -> list[BucketState]:
        """All known buckets, sorted by key."""


@dataclass(frozen=True)
class Level:
    """One kind of allowance: `remaining` at the time `at`, growing in a straight line to `limit` at `full_at`.

    `rate` is the vendor's refill in units per second: what is taken comes back at it, behind all that is still to
    come back. Times are seconds of one clock. The scripts in `workers/governor.py` do the same sums."""

    limit: float
    remaining: float
    at: float
    full_at: float
    rate: float

    def available(self, now: float) -> float:
        if now >= self.full_at or self.at >= self.full_at:
            return self.limit
        share = max(0.0, now - self.at) / (self.full_at - self.at)
        return self.remaining + (self.limit - self.remaining) * share

    def wait(self, need: float, now: float) -> float:
        """Seconds until `need` is there. More than the limit is never there: a full bucket is enough for it."""
        missing = min(need, self.limit) - self.available(now)
        if missing <= SLACK:
            return 0.0
        return missing * (self.full_at - self.at) / (self.limit - self.remaining)

    def spend(self, amount: float, now: float) -> "Level":
        """Less by `amount`, even below zero; a negative amount is given back."""
        before = self.available(now)
        left = min(self.limit, before - amount)
        to_full = max(0.0, self.full_at - now)
        if left >= self.limit:
            to_full = 0.0
        elif amount >= 0:
            to_full += amount / self.rate
        else:
            to_full *= (self.limit - left) / (self.limit - before)
        return Level(self.limit, left, now, now + min(to_full, LONGEST_SECONDS), self.rate)


def heard(known: Level | None, allowance: Allowance, now: float) -> Level:
    """The level after a header. Whoever knows of less left is believed: the header did not count the calls of others
    that are still on their way, and we do not count those of strangers with the same account.

    Our own belief holds a minute at most: it rests on refill rates that vendors' rounded headers can get very wrong."""
    limit, remaining = allowance.limit, min(allowance.remaining, allowance.limit)
    to_full = allowance.reset_seconds
    if known is not None and known.limit != limit:
        known = None
    if to_full < LEAST_RESET_SECONDS or remaining >= limit:
        remaining, to_full = limit, 0.0
        rate = known.rate if known else limit / USUAL_WINDOW_SECONDS
    else:
        rate = (limit - remaining) / to_full
    if known is not None and (believed := known.available(now)) < remaining:
        remaining = believed
        to_full = max(to_full, min(known.full_at - now, USUAL_WINDOW_SECONDS))
    return Level(limit, remaining, now, now + to_full, rate)


def sane(allowances: Sequence[Allowance]) -> Iterator[Allowance]:
    """Those that can be true. Comparisons, because they are false for NaN and do not overflow."""
    for item in allowances:
        if (
            item.kind in KINDS
            and 1 <= item.limit <= MOST_UNITS
            and 0 <= item.remaining <= MOST_UNITS
            and 0 <= item.reset_seconds <= LONGEST_SECONDS
        ):
            yield item


def sane_tokens(tokens: int) -> int:
    return max(0, min(tokens, MOST_TOKENS))


def sane_pause(seconds: float) -> float:
    """Whole milliseconds, rounded up; 0.0 for what is no time at all."""
    if not 0 < seconds < math.inf:
        return 0.0
    return math.ceil(min(seconds, LONGEST_SECONDS) * 1000) / 1000


@dataclass
class _Bucket:
    levels: dict[Kind, Level] = field(default_factory=dict)
    paused_until: float = -math.inf

    def matters_until(self) -> float:
        return max(self.paused_until, *(level.full_at for level in self.levels.values()), -math.inf) + KEEP_SECONDS


class LocalBuckets(Buckets):
    """The buckets of this process alone. Forgets those that have been full and unpaused for an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[BucketKey, _Bucket] = {}

    async def take(self, key: BucketKey, tokens: int) -> float:
        bucket, now = self._buckets.get(key), self._clock()
        if bucket is None:
            return 0.0
        tokens = sane_tokens(tokens)
        # Nobody can say before a call how much it will write: of output there only has to be something left.
        needs = {"requests": 1, "tokens": tokens, "input_tokens": tokens, "output_tokens": 1}
        waits = [level.wait(needs[kind], now) for kind, level in bucket.levels.items()]
        if (wait := max(bucket.paused_until - now, *waits, 0.0)) > 0:
            return math.ceil(min(wait, LONGEST_SECONDS) * 1000) / 1000
        self._spend(bucket, {"requests": 1, "tokens": tokens, "input_tokens": tokens}, now)
        return 0.0

    async def feed(self, key: BucketKey, allowances: Sequence[Allowance], *, estimated: int, used: int) -> None:
        now = self._clock()
        if (bucket := self._buckets.get(key)) is not None:
            difference = sane_tokens(used) - sane_tokens(estimated)
            self._spend(bucket, {"tokens": difference, "input_tokens": difference}, now)
        for allowance in sane(allowances):
            levels = self._bucket(key, now).levels
            levels[allowance.kind] = heard(levels.get(allowance.kind), allowance, now)

    async def pause(self, key: BucketKey, seconds: float) -> None:
        if (seconds := sane_pause(seconds)) > 0:
            now = self._clock()
            bucket = self._bucket(key, now)
            bucket.paused_until = max(bucket.paused_until, now + seconds)

    async def show(self) -> list[BucketState]:
        now = self._clock()
        self._forget(now)
        return sorted((_state(key, bucket, now) for key, bucket in self._buckets.items()), key=by_key)

    def paused_seconds(self, key: BucketKey) -> float:
        bucket = self._buckets.get(key)
        return max(0.0, bucket.paused_until - self._clock()) if bucket else 0.0

    def _bucket(self, key: BucketKey, now: float) -> _Bucket:
        if key not in self._buckets:
            self._forget(now)
            self._buckets[key] = _Bucket()
        return self._buckets[key]

    def _forget(self, now: float) -> None:
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if bucket.matters_until() > now}

    @staticmethod
    def _spend(bucket: _Bucket, amounts: Mapping[Kind, float], now: float) -> None:
        for kind, amount in amounts.items():
            if amount and (level := bucket.levels.get(kind)) is not None:
                bucket.levels[kind] = level.spend(amount, now)


def _state(key: BucketKey, bucket: _Bucket, now: float) -> BucketState:
    left = {
        kind: Left(bucket.levels[kind].available(now), bucket.levels[kind].limit)
        for kind in KINDS
        if kind in bucket.levels
    }
    return BucketState(key, max(0.0, bucket.paused_until - now), left)


def by_key(state: BucketState) -> tuple[str, str, str]:
    return (state.key.provider, state.key.account, state.key.model)
