"""How often somebody may ask: with a good token (or signed in to the console), by that; else by the address they come
from. What others do at an address, behind one proxy perhaps, never keeps a good token out.

Counted in Redis for all gateways together, a handful at a time, so that a busy producer does not wait for it; by this
process alone while Redis is away. What platforms send is not counted here: it is signed, and theirs to repeat."""

import asyncio
import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import redis.asyncio
import structlog
from fastapi.security.utils import get_authorization_scheme_param
from redis.exceptions import RedisError
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.console.security import COOKIE
from gateway.http.problems import problem
from models.errors import StoreError
from workers.events import obey_cancellation

log = structlog.get_logger()

PREFIX: Final = "asking:"
PATIENCE_SECONDS: Final = 0.25
RETRY_SECONDS: Final = 5.0
BURST_SECONDS: Final = 5.0  # so much of the rate may come at once
# Of a bucket so many are fetched at once, and used within so long.
SHARE: Final = 20
MOST_AT_ONCE: Final = 100
HELD_SECONDS: Final = 1.0
# What was good a moment ago is its own measure. What is not known is measured by its address, and looked up when that
# has had enough: so many at a time, so that guesses do not take the database's connections from those who are at work.
KNOWN_SECONDS: Final = 60.0
LOOKS_AT_ONCE: Final = 4
MOST_KEYS: Final = 10_000
UNCOUNTED: Final = ("/channels/", "/healthz")

# A bucket is a hash: `left` as of the time `at`. Returns how many were given out, and (if none) the milliseconds until
# there is one. Times are the server's, in seconds.
_TAKE: Final = """
local rate, most, want = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local stored = redis.call('HMGET', KEYS[1], 'left', 'at')
local left, at = tonumber(stored[1]) or most, tonumber(stored[2]) or now
left = math.min(most, left + math.max(0, now - at) * rate)
local given = math.min(want, math.floor(left + 0.000001))
local wait = 0
if given < 1 then
  given, wait = 0, math.ceil((1 - left) / rate * 1000)
end
redis.call('HSET', KEYS[1], 'left', string.format('%.17g', left - given), 'at', string.format('%.17g', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(most / rate * 1000) + 1000)
return {given, wait}
"""


@dataclass(frozen=True)
class Rate:
    """So many a second, and so many at once."""

    per_second: float
    most: float

    @classmethod
    def of(cls, per_second: float) -> "Rate":
        return cls(per_second, max(1.0, per_second * BURST_SECONDS))

    @property
    def handful(self) -> int:
        return int(min(max(self.most / SHARE, 1), MOST_AT_ONCE))


@dataclass
class _Bucket:
    """`left` as of the time `at`; as the script has it."""

    left: float
    at: float

    def take(self, rate: Rate, now: float) -> float:
        self.left, self.at = min(rate.most, self.left + max(0.0, now - self.at) * rate.per_second), now
        if self.left < 1 - 1e-6:
            return (1 - self.left) / rate.per_second
        self.left -= 1
        return 0.0


class Rates:
    """Never raises, and hardly ever waits: it says how many seconds to come back after. `clock` is for tests."""

    def __init__(self, client: redis.asyncio.Redis, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._script = client.register_script(_TAKE)
        self._clock = clock
        self._held: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._alone: OrderedDict[str, _Bucket] = OrderedDict()
        self._away_until = -math.inf
        self._told = False

    async def take(self, key: str, rate: Rate) -> float:
        """0.0: go ahead, it was counted."""
        if rate.per_second <= 0:
            return 0.0
        now = self._clock()
        held, until = self._held.pop(key, (0, now))
        if not held or until <= now:
            answer = await self._ask(key, rate)
            if answer is None:
                bucket: _Bucket = _kept(self._alone, key, lambda: _Bucket(rate.most, now))
                return bucket.take(rate, now)
            held, wait_ms = answer
            # Others may have asked meanwhile, and hold some as well.
            if not held and key not in self._held:
                return wait_ms / 1000
            held, until = held + self._held.pop(key, (0, 0.0))[0], now + HELD_SECONDS
        if held > 1:
            _kept(self._held, key, lambda: (held - 1, until))
        return 0.0

    async def _ask(self, key: str, rate: Rate) -> tuple[int, int] | None:
        if self._clock() < self._away_until:
            return None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                given, wait_ms = await self._script(
                    keys=[PREFIX + key], args=[rate.per_second, rate.most, rate.handful]
                )
        except (RedisError, OSError, TimeoutError) as error:
            obey_cancellation()
            self._away_until = self._clock() + RETRY_SECONDS
            if not self._told:
                log.warning("asking.redis_away", error=type(error).__name__)
            self._told = True
            return None
        self._told = False
        return int(given), int(wait_ms)


class Credential(NamedTuple):
    """What somebody says to show who they are."""

    kind: Literal["token", "cookie"]
    secret: str

    @property
    def fingerprint(self) -> str:
        """No token is kept, here or in Redis."""
        return hashlib.sha256(f"{self.kind}:{self.secret}".encode("utf-8", "replace")).hexdigest()[:32]


class RateLimit:
    """Stands before all routes. `token_rate`, `address_rate`: requests per second; 0: no limit. `is_good`: looks a
    credential up."""

    def __init__(
        self,
        app: ASGIApp,
        rates: Rates,
        is_good: Callable[[Credential], Awaitable[bool]],
        *,
        token_rate: float,
        address_rate: float,
    ) -> None:
        self._app = app
        self._rates = rates
        self._is_good = is_good
        self._token_rate, self._address_rate = Rate.of(token_rate), Rate.of(address_rate)
        self._good: OrderedDict[str, float] = OrderedDict()  # fingerprints, until when that is believed
        self._looks = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(UNCOUNTED):
            await self._app(scope, receive, send)
            return
        given = _credential(scope)
        mark = given.fingerprint if given is not None else ""
        if wait := await self._count(scope, given, mark):
            await _refusal(scope, wait)(scope, receive, send)
            return
        state = scope.setdefault("state", {})

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                if state.get("is_known"):  # as the route found
                    self._believe(mark)
                elif message["status"] == 401:
                    self._good.pop(mark, None)
            await send(message)

        await self._app(scope, receive, watched)

    async def _count(self, scope: Scope, given: Credential | None, mark: str) -> float:
        """0.0: go ahead. Else the seconds to come back after."""
        now = time.monotonic()
        if self._good.get(mark, now) <= now:
            address = scope["client"][0] if scope.get("client") else ""
            wait = await self._rates.take(f"from:{address}", self._address_rate)
            if not wait or given is None or not await self._look(given):
                return wait
            self._believe(mark)
        return await self._rates.take(f"token:{mark}", self._token_rate)

    async def _look(self, given: Credential) -> bool:
        try:
            async with self._looks:
                return await self._is_good(given)
        except StoreError as error:
            log.warning("asking.store_away", error=str(error))
            return False

    def _believe(self, mark: str) -> None:
        if mark:
            _kept(self._good, mark, lambda: time.monotonic() + KNOWN_SECONDS, anew=True)


def _kept(table: "OrderedDict[str, Any]", key: str, make: Callable[[], Any], *, anew: bool = False) -> Any:
    """The entry, made if it is not there (or `anew`); the oldest make room."""
    if anew or key not in table:
        table[key] = make()
    table.move_to_end(key)
    while len(table) > MOST_KEYS:
        table.popitem(last=False)
    return table[key]


def _refusal(scope: Scope, wait: float) -> ASGIApp:
    seconds = str(max(1, math.ceil(wait)))
    text = f"too many requests: come back in {seconds} s"
    # Whoever reads it in the console is a person.
    to_a_person = scope["path"].startswith("/console/")
    refusal = PlainTextResponse(text, 429) if to_a_person else problem(429, text)
    refusal.headers["Retry-After"] = seconds
    return refusal


def _credential(scope: Scope) -> Credential | None:
    """Read as the routes read it: the same token is the same however it is written."""
    asked = HTTPConnection(scope)
    if scope["path"].startswith("/console"):
        cookie = asked.cookies.get(COOKIE)
        return Credential("cookie", cookie) if cookie else None
    scheme, said = get_authorization_scheme_param(asked.headers.get("authorization"))
    token = said.strip() if scheme.lower() == "bearer" else ""
    return Credential("token", token) if token else None
