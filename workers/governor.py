"""The fleet keeps a vendor's rate limits together: buckets in Redis, and this process's own while Redis is away.

Asked before each model call and told after it (`workers/buckets.py` has the words). It never raises, and never holds
its caller much longer than a second: a call that could have been made is worse lost than a limit missed, because the
vendor says 429 and everybody hears of that."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import redis.asyncio
import structlog
from redis.exceptions import RedisError

from adapters.model_port import Allowance
from workers.buckets import (
    KEEP_SECONDS,
    KINDS,
    LEAST_RESET_SECONDS,
    LONGEST_SECONDS,
    SLACK,
    USUAL_WINDOW_SECONDS,
    BucketKey,
    Buckets,
    BucketState,
    Left,
    LocalBuckets,
    by_key,
    sane,
    sane_pause,
    sane_tokens,
)
from workers.events import obey_cancellation

__all__ = ["BucketKey", "BucketState", "Buckets", "Governor", "LocalBuckets", "RedisBuckets"]

log = structlog.get_logger()

T = TypeVar("T")

PREFIX = "limits:"
PART_LENGTH = 200
PATIENCE_SECONDS = 1.0
RETRY_SECONDS = 5.0
# More at once only opens more connections: the server runs one script at a time.
AT_ONCE = 32

# The same sums as `workers.buckets.Level` and `heard`. A bucket is a hash: per kind "limit remaining at full_at rate",
# and `paused_until`. Times are the server's, in seconds; a pause is in whole microseconds, which a double holds
# exactly. Numbers go out as text: Redis cuts a script's numbers to integers.
_COMMON = (
    f"""
local LONGEST, WINDOW, KEEP = {LONGEST_SECONDS}, {USUAL_WINDOW_SECONDS}, {KEEP_SECONDS}
local LEAST_RESET, SLACK = {LEAST_RESET_SECONDS}, {SLACK}
local KINDS = {{{", ".join(f"'{kind}'" for kind in KINDS)}}}
"""
    + """
local clock = redis.call('TIME')
local now_us = tonumber(ARGV[1]) or tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = now_us / 1000000

local stored, levels, paused_until = redis.call('HGETALL', KEYS[1]), {}, 0
for i = 1, #stored, 2 do
  if stored[i] == 'paused_until' then
    paused_until = tonumber(stored[i + 1]) or 0
  else
    local n = {}
    for word in string.gmatch(stored[i + 1], '%S+') do n[#n + 1] = tonumber(word) end
    -- Measured in the future: the clock was set back, and waiting for it to catch up could take for ever.
    if #n == 5 and n[3] < now + 1 then
      levels[stored[i]] = {limit = n[1], remaining = n[2], at = n[3], full_at = n[4], rate = n[5]}
    end
  end
end

if paused_until > now_us + (LONGEST + KEEP) * 1000000 then paused_until = 0 end

local function paused_ms() return math.max(0, math.ceil((paused_until - now_us) / 1000)) end

local function available(level)
  if now >= level.full_at or level.at >= level.full_at then return level.limit end
  local share = math.max(0, now - level.at) / (level.full_at - level.at)
  return level.remaining + (level.limit - level.remaining) * share
end

local function wait(level, need)
  local missing = math.min(need, level.limit) - available(level)
  if missing <= SLACK then return 0 end
  return missing * (level.full_at - level.at) / (level.limit - level.remaining)
end

local function spend(kind, amount)
  local level = levels[kind]
  if not level or amount == 0 then return end
  local before = available(level)
  local left = math.min(level.limit, before - amount)
  local to_full = math.max(0, level.full_at - now)
  if left >= level.limit then
    to_full = 0
  elseif amount >= 0 then
    to_full = to_full + amount / level.rate
  else
    to_full = to_full * (level.limit - left) / (level.limit - before)
  end
  level.remaining, level.at, level.full_at = left, now, now + math.min(to_full, LONGEST)
end

local function save()
  local lives = paused_until / 1000000
  for kind, level in pairs(levels) do
    lives = math.max(lives, level.full_at)
    redis.call('HSET', KEYS[1], kind, string.format('%.17g %.17g %.17g %.17g %.17g',
      level.limit, level.remaining, level.at, level.full_at, level.rate))
  end
  if paused_until > now_us then
    redis.call('HSET', KEYS[1], 'paused_until', string.format('%.0f', paused_until))
  end
  local ms = math.ceil((math.max(lives, now) - now + KEEP) * 1000)
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ms))
end
"""
)

_TAKE = (
    _COMMON
    + """
local tokens = tonumber(ARGV[2])
local needs = {requests = 1, tokens = tokens, input_tokens = tokens, output_tokens = 1}
local longest = 0
for kind, level in pairs(levels) do longest = math.max(longest, wait(level, needs[kind] or 0)) end
local ms = math.max(paused_ms(), math.ceil(math.min(longest, LONGEST) * 1000))
if ms == 0 and next(levels) then
  spend('requests', 1)
  spend('tokens', tokens)
  spend('input_tokens', tokens)
  save()
end
return {ms, paused_ms()}
"""
)

_FEED = (
    _COMMON
    + """
spend('tokens', tonumber(ARGV[2]))
spend('input_tokens', tonumber(ARGV[2]))
for i = 3, #ARGV, 4 do
  local kind, limit, to_full = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 3])
  local remaining, rate = math.min(tonumber(ARGV[i + 2]), limit), nil
  local known = levels[kind]
  if known and known.limit ~= limit then known = nil end
  if to_full < LEAST_RESET or remaining >= limit then
    remaining, to_full = limit, 0
    rate = known and known.rate or limit / WINDOW
  else
    rate = (limit - remaining) / to_full
  end
  if known and available(known) < remaining then
    remaining = available(known)
    to_full = math.max(to_full, math.min(known.full_at - now, WINDOW))
  end
  levels[kind] = {limit = limit, remaining = remaining, at = now, full_at = now + to_full, rate = rate}
end
if next(levels) then save() end
"""
)

_PAUSE = (
    _COMMON
    + """
paused_until = math.max(paused_until, now_us + tonumber(ARGV[2]) * 1000)
save()
"""
)

_SHOW = (
    _COMMON
    + """
local shown = {tostring(paused_ms())}
for _, kind in ipairs(KINDS) do
  local level = levels[kind]
  if level then
    shown[#shown + 1] = kind
    shown[#shown + 1] = string.format('%.17g', available(level))
    shown[#shown + 1] = string.format('%.17g', level.limit)
  end
end
return shown
"""
)


class RedisBuckets(Buckets):
    """The buckets of everybody who uses this Redis. Each operation is one script on the server and by its clock.

    `clock` is for tests, which do not wait: seconds to use instead of the server's. Raises what the client raises."""

    def __init__(self, client: redis.asyncio.Redis, *, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._client = client
        self._slots = asyncio.Semaphore(AT_ONCE)
        # Sent whole when the server does not know them: after a restart, or a SCRIPT FLUSH.
        self._take, self._feed, self._pause, self._show = map(client.register_script, (_TAKE, _FEED, _PAUSE, _SHOW))

    async def take(self, key: BucketKey, tokens: int) -> float:
        wait, _ = await self.ask(key, tokens)
        return wait

    async def ask(self, key: BucketKey, tokens: int) -> tuple[float, float]:
        """What `take` says, and how many seconds of it are a pause."""
        wait_ms, paused_ms = await self._run(self._take, name_of(key), sane_tokens(tokens))
        return wait_ms / 1000, paused_ms / 1000

    async def feed(self, key: BucketKey, allowances: Sequence[Allowance], *, estimated: int, used: int) -> None:
        facts = [part for a in sane(allowances) for part in (a.kind, a.limit, a.remaining, a.reset_seconds)]
        await self._run(self._feed, name_of(key), sane_tokens(used) - sane_tokens(estimated), *facts)

    async def pause(self, key: BucketKey, seconds: float) -> None:
        if (seconds := sane_pause(seconds)) > 0:
            await self._run(self._pause, name_of(key), round(seconds * 1000))

    async def show(self) -> list[BucketState]:
        names = {name.decode(errors="replace") async for name in self._client.scan_iter(match=f"{PREFIX}*", count=1000)}
        keys = {name: key for name in names if (key := key_of(name))}
        async with self._client.pipeline(transaction=False) as pipe:
            for name in keys:
                await self._show(keys=[name], args=[self._now()], client=pipe)
            answers = await pipe.execute()
        return sorted((_state(key, answer) for key, answer in zip(keys.values(), answers, strict=True)), key=by_key)

    async def _run(self, script: Any, name: str, *arguments: str | float) -> Any:
        async with self._slots:
            return await script(keys=[name], args=[self._now(), *arguments])

    def _now(self) -> int | str:
        """Microseconds; empty for the server's own."""
        return round(self._clock() * 1_000_000) if self._clock else ""


def _state(key: BucketKey, answer: list[bytes]) -> BucketState:
    paused_ms, *facts = [part.decode() for part in answer]
    triples = zip(facts[::3], facts[1::3], facts[2::3], strict=True)
    left: Any = {kind: Left(float(available), float(limit)) for kind, available, limit in triples}
    return BucketState(key, int(paused_ms) / 1000, left)


def name_of(key: BucketKey) -> str:
    return PREFIX + ":".join(_safe(part) for part in (key.provider, key.account, key.model))


def key_of(name: str) -> BucketKey | None:
    parts = name.removeprefix(PREFIX).split(":")
    return BucketKey(*(unquote(part) for part in parts)) if len(parts) == 3 else None


def _safe(part: str) -> str:
    """Percent-encoded: nothing from outside can end a part, or mean something in a pattern or a terminal."""
    text = quote(part, safe="", errors="surrogatepass")
    if len(text) <= PART_LENGTH:
        return text
    return f"{text[:100]}~{hashlib.sha256(text.encode()).hexdigest()[:32]}"


class Governor(Buckets):
    """RedisBuckets; while Redis is away, this process's LocalBuckets, and Redis again as soon as it answers.

    The local ones hear everything this process hears, so they are not ignorant when they are needed; and they hand
    their pauses back to a Redis that may have missed or forgotten them."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        *,
        local: LocalBuckets | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._redis = RedisBuckets(client)
        self._local = local or LocalBuckets()
        self._patience = patience_seconds
        self._retry = retry_seconds
        self._away = False
        self._try_at = 0.0

    async def take(self, key: BucketKey, tokens: int) -> float:
        answer = await self._shared(lambda: self._redis.ask(key, tokens))
        if answer is None:
            return await self._local.take(key, tokens)
        wait, paused = answer
        if wait > 0:
            await self._local.pause(key, paused)
            return wait
        if (paused := self._local.paused_seconds(key)) > 0:
            # Redis lost it. Below that it is the time the answer took to come here, and nobody else's concern.
            if paused > PATIENCE_SECONDS:
                await self._shared(lambda: self._redis.pause(key, paused))
            return sane_pause(paused)
        await self._local.take(key, tokens)
        return 0.0

    async def feed(self, key: BucketKey, allowances: Sequence[Allowance], *, estimated: int, used: int) -> None:
        await self._local.feed(key, allowances, estimated=estimated, used=used)
        await self._shared(lambda: self._redis.feed(key, allowances, estimated=estimated, used=used))

    async def pause(self, key: BucketKey, seconds: float) -> None:
        await self._local.pause(key, seconds)
        await self._shared(lambda: self._redis.pause(key, seconds))

    async def show(self) -> list[BucketState]:
        states = await self._shared(self._redis.show)
        return await self._local.show() if states is None else states

    async def _shared(self, operation: Callable[[], Awaitable[T]]) -> T | None:
        """What Redis says; None while it is away. One caller tries whether it is back; the others do not wait."""
        if self._away:
            if time.monotonic() < self._try_at:
                return None
            self._try_at = time.monotonic() + self._retry
        try:
            async with asyncio.timeout(self._patience):
                if self._away:
                    await self._hand_back_pauses()
                result = await operation()
        except (RedisError, OSError, TimeoutError) as error:
            obey_cancellation()
            self._try_at = time.monotonic() + self._retry
            if not self._away:
                log.warning("governor.redis_away", error=type(error).__name__)
            self._away = True
            return None
        if self._away:
            log.info("governor.redis_back")
        self._away = False
        return result

    async def _hand_back_pauses(self) -> None:
        for state in await self._local.show():
            await self._redis.pause(state.key, state.paused_seconds)
