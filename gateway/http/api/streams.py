"""Event streams over HTTP: what `docs/events.md` calls reading without a gap, as server-sent events.

A stream ends when the gateway stops, when its reader may no longer look, and when the database stays away; the client
comes back with the last id it has seen, and misses nothing."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from fastapi import HTTPException
from fastapi.sse import ServerSentEvent

from adapters.events import Envelope
from gateway.http.news import News
from models.database import Database
from models.errors import StoreError
from workers.events import Follower

log = structlog.get_logger()

Check = Callable[[], Awaitable[bool]]

STREAMS: Final = 20  # at once, of one user
# How old the answer may be to whether its reader may still look: with an older one nothing is sent. While nothing
# happens, it is asked (and the table looked into) about as often.
CHECK_SECONDS: Final = 5.0
RETRY_MS: Final = 1000
MISSED: Final = "missed"


class Streams:
    """Counts those that are open, so that one user does not hold them all, with however many tokens and browsers."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def one_more(self, user_id: str) -> Iterator[None]:
        if self._open[user_id] >= STREAMS:
            raise HTTPException(429, f"{STREAMS} live streams of yours are open: close a program or a page first")
        self._open[user_id] += 1
        try:
            yield
        finally:
            self._open[user_id] -= 1
            if not self._open[user_id]:
                del self._open[user_id]


async def event_stream(
    db: Database, news: News, session_id: str, after: int, check: Check
) -> AsyncIterator[ServerSentEvent]:
    """One session's events after a number: those in the table, then live ones. `check`: whether the reader may still
    look."""
    # Not all at the same moment: many may have heard the same event last.
    look_again = CHECK_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - not a secret
    follower = Follower(db, news, session_id, after, look_again=look_again)
    yield ServerSentEvent(retry=RETRY_MS)
    allowed = Allowed(check)
    try:
        async for item in follower.beats():
            if not await allowed.still():
                return
            if item is not None:
                yield _WRITING.sent(item)
    except StoreError as error:
        log.warning("stream.store_away", session=session_id, error=str(error))


async def fleet_stream(news: News, check: Check) -> AsyncIterator[ServerSentEvent]:
    """Every session's events from now on. Without ids: a client that was away fills in by session and number. `missed`
    says that something was left out here, because the client was too slow or Redis away."""
    allowed = Allowed(check)
    yield ServerSentEvent(retry=RETRY_MS)
    losses = 0
    try:
        async with news.listen(None) as reader:
            while not reader.closed:
                item = await reader.next(CHECK_SECONDS)
                if not await allowed.still():
                    return
                if reader.losses != losses:
                    losses = reader.losses
                    yield ServerSentEvent(event=MISSED, data={})
                if item is not None:
                    yield ServerSentEvent(event=item.event.type, raw_data=item.to_json())
    except StoreError as error:
        log.warning("stream.store_away", error=str(error))


class _Writing:
    """Events as they are sent. All readers of a live one come for the same object, one after the other: it is written
    once for them all."""

    def __init__(self) -> None:
        self._last: tuple[Envelope, ServerSentEvent] | None = None

    def sent(self, item: Envelope) -> ServerSentEvent:
        if self._last is None or self._last[0] is not item:
            number = None if item.seq is None else str(item.seq)
            self._last = item, ServerSentEvent(event=item.event.type, id=number, raw_data=item.to_json())
        return self._last[1]


_WRITING: Final = _Writing()


class Allowed:
    """Remembers the answer for a while, and asks again in good time, beside the stream: who waits for the database
    would have the event late."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._clock = asyncio.get_running_loop().time
        self._good = True  # the route has just asked
        self._asked = self._clock() - _some_time()
        self._asking: asyncio.Task[bool] | None = None

    async def still(self) -> bool:
        age = self._clock() - self._asked
        if age >= CHECK_SECONDS / 2 and self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        if age >= CHECK_SECONDS and self._asking is not None:
            return await self._asking
        return self._good

    async def _ask(self) -> bool:
        """False also when nobody can tell."""
        began = self._clock()
        try:
            self._good = await self._check()
        except StoreError as error:
            log.warning("stream.not_checked", error=str(error))
            return False
        else:
            self._asked = began - _some_time()
            return self._good
        finally:
            self._asking = None


def _some_time() -> float:
    """Streams that hear the same event do not all ask again together, neither the first time nor later: those who did
    once would go on to, and the event that they ask at would be late for everybody."""
    return CHECK_SECONDS / 4 * random.random()  # noqa: S311 - not a secret
