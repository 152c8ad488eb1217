"""What platforms let through (`ChannelCapabilities.per_chat`, `.overall`), kept by the whole fleet in Redis.

Asked before each message. It never raises and never sleeps: it says how long to wait. While Redis is away everything
goes: a platform that is asked too often says so, and that is heeded as well."""

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import redis.asyncio
import structlog
from redis.exceptions import RedisError

from adapters.channel_port import ChannelCapabilities, Rate
from workers.events import obey_cancellation

log = structlog.get_logger()

PREFIX: Final = "sending:"
PATIENCE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0
# Whoever finds no room comes back after so long at the latest: others may have gone away meanwhile.
LONGEST_WAIT_SECONDS: Final = 60.0
# What one chat has brought upon itself does not silence all others for longer.
LONGEST_PAUSE_SECONDS: Final = 30.0
_SLACK: Final = 1e-6

# A bucket is a hash: `tokens` as of the time `at`, `promised` (until when those who were sent away have been given
# times to come back, one after the other, so that they do not all come back at once) and `paused`. Times are the
# server's, in seconds. Both buckets are taken from, or neither.
_TAKE: Final = (
    f"local LONGEST, SLACK = {LONGEST_WAIT_SECONDS}, {_SLACK}"
    + """
local clock = redis.call('TIME')
local now = tonumber(ARGV[1]) or tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local buckets, wait = {}, 0
for i, key in ipairs(KEYS) do
  local most, seconds = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local stored = redis.call('HMGET', key, 'tokens', 'at', 'promised', 'paused')
  local b = {key = key, rate = most / seconds, seconds = seconds, tokens = most, promised = 0}
  local at = tonumber(stored[2]) or now
  -- Measured in the future: the clock was set back.
  if at < now + 1 then
    b.tokens = math.min(most, (tonumber(stored[1]) or most) + math.max(0, now - at) * b.rate)
    b.promised = tonumber(stored[3]) or 0
    wait = math.max(wait, (tonumber(stored[4]) or 0) - now)
  end
  buckets[i] = b
end
local short = wait > 0
for _, b in ipairs(buckets) do short = short or b.tokens < 1 - SLACK end
for _, b in ipairs(buckets) do
  if not short then
    b.tokens = b.tokens - 1
  elseif b.tokens < 1 - SLACK then
    b.promised = math.min(math.max(now + (1 - b.tokens) / b.rate, b.promised + 1 / b.rate), now + LONGEST)
    wait = math.max(wait, b.promised - now)
  end
  redis.call('HSET', b.key, 'tokens', string.format('%.17g', b.tokens), 'at', string.format('%.17g', now),
    'promised', string.format('%.17g', b.promised))
  redis.call('PEXPIRE', b.key, math.ceil((b.seconds + LONGEST + math.max(0, wait)) * 1000))
end
return math.ceil(math.max(0, wait) * 1000)
"""
)
_PAUSE: Final = """
local clock = redis.call('TIME')
local now = tonumber(ARGV[1]) or tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local paused = math.max(tonumber(redis.call('HGET', KEYS[1], 'paused')) or 0, now + tonumber(ARGV[2]))
redis.call('HSET', KEYS[1], 'paused', string.format('%.17g', paused))
local left = math.max(redis.call('PTTL', KEYS[1]), math.ceil((paused - now) * 1000) + 1000)
redis.call('PEXPIRE', KEYS[1], left)
"""


class Rates:
    """`clock` is for tests, which do not wait: seconds to use instead of the server's."""

    def __init__(self, client: redis.asyncio.Redis, *, clock: Callable[[], float] | None = None) -> None:
        self._take, self._pause = client.register_script(_TAKE), client.register_script(_PAUSE)
        self._clock = clock
        self._away_until = -math.inf
        self._told = False

    async def take(self, channel_type: str, platform_id: str, capabilities: ChannelCapabilities) -> float:
        """0.0: go ahead, it was counted. Else the seconds to wait; nothing was counted."""
        buckets = dict(_buckets(channel_type, platform_id, capabilities))
        if not buckets:
            return 0.0
        limits = [part for rate in buckets.values() for part in (rate.messages, rate.seconds)]
        wait_ms = await self._ask(self._take, list(buckets), limits)
        return (wait_ms or 0) / 1000

    async def pause(
        self, channel_type: str, platform_id: str, capabilities: ChannelCapabilities, seconds: float
    ) -> None:
        """The platform asked for so much patience: that chat rests, and for a while everything does, since platforms
        do not say which of their limits it was."""
        for name, _ in _buckets(channel_type, platform_id, capabilities):
            longest = LONGEST_WAIT_SECONDS if name.startswith(f"{PREFIX}chat:") else LONGEST_PAUSE_SECONDS
            await self._ask(self._pause, [name], [max(0.0, min(seconds, longest))])

    async def _ask(self, script: Callable[..., Awaitable[Any]], names: list[str], arguments: list[float]) -> Any:
        """What Redis says; None while it is away."""
        if time.monotonic() < self._away_until:
            return None
        now = self._clock() if self._clock else ""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                answer = await script(keys=names, args=[now, *arguments])
        except (RedisError, OSError, TimeoutError) as error:
            obey_cancellation()
            self._away_until = time.monotonic() + RETRY_SECONDS
            if not self._told:
                log.warning("rates.redis_away", error=type(error).__name__)
            self._told = True
            return None
        self._told = False
        return answer


def _buckets(channel_type: str, platform_id: str, capabilities: ChannelCapabilities) -> list[tuple[str, Rate]]:
    buckets = []
    if capabilities.overall is not None:
        buckets.append((f"{PREFIX}all:{channel_type}", capabilities.overall))
    if capabilities.per_chat is not None:
        # Hashed: a chat's name may be anything, and of any length.
        chat = hashlib.sha256(platform_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        buckets.append((f"{PREFIX}chat:{channel_type}:{chat}", capabilities.per_chat))
    return buckets
