"""Events on their way out, and reading them without a gap.

`Publisher` sends to Redis pub/sub, best effort: the table is the truth. `Follower` gives a reader the table first, then
the live side, joined by the session's event numbers: nothing is missed and nothing comes twice."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Protocol

import redis.asyncio
import structlog
from redis.exceptions import RedisError
from sqlalchemy import func, select

from adapters.events import AnyEvent, Envelope, event_from_dict
from models.base import AnyRow
from models.conversation import Event, events_after
from models.database import Database

log = structlog.get_logger()

ALL = "events:all"
QUEUE_LIMIT = 20_000
BATCH_LIMIT = 200
CONFIRM_SECONDS = 5.0
PAGE = 500  # rows read at once
# How long a reader trusts a silent channel before it looks into the table again.
LOOK_AGAIN_SECONDS = 2.0
# Channel and text by turns. One command for a batch: packing and reading two for each event costs four times the CPU.
_PUBLISH = """
for i = 1, #ARGV, 2 do
  redis.call('PUBLISH', ARGV[i], ARGV[i + 1])
  redis.call('PUBLISH', KEYS[1], ARGV[i + 1])
end
"""


def channel_of(session_id: str) -> str:
    return f"events:{session_id}"


def envelope(
    session_id: str, event: AnyEvent, *, turn_id: str | None = None, seq: int | None = None, after: int | None = None
) -> Envelope:
    return Envelope(session=session_id, turn=turn_id, seq=seq, after=after, at=datetime.now(UTC), event=event)


def stored_envelope(row: AnyRow) -> Envelope | None:
    """None: a kind of event that only a newer release knows."""
    try:
        event = event_from_dict(row.payload)
    except ValueError:
        log.warning("events.unreadable", type=row.type, session=row.session_id, seq=row.seq)
        return None
    return Envelope(session=row.session_id, turn=row.turn_id, seq=row.seq, at=row.created_at, event=event)


def read_envelope(raw: bytes) -> Envelope | None:
    """None: of a newer release, or nothing of ours."""
    try:
        return Envelope.from_json(raw)
    except ValueError:
        log.warning("events.unreadable", size=len(raw))
        return None


def redis_client(url: str) -> redis.asyncio.Redis:
    return redis.asyncio.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5, health_check_interval=30)


class Publisher:
    """Sends envelopes in the order they were given, many per round trip. Never blocks, never raises."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._publish = client.register_script(_PUBLISH)
        self._queue: asyncio.Queue[Envelope] = asyncio.Queue(QUEUE_LIMIT)
        self._task = asyncio.create_task(self._run(), name="longshore-publisher")
        self._silent = False

    def publish(self, *envelopes: Envelope) -> None:
        with suppress(asyncio.QueueFull):  # readers find the lasting ones in the table
            for item in envelopes:
                self._queue.put_nowait(item)

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self._queue.join()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < BATCH_LIMIT and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._send(batch)
            for _ in batch:
                self._queue.task_done()

    async def _send(self, batch: list[Envelope]) -> None:
        try:
            written = [(channel_of(item.session), text) for item in batch if (text := _text(item)) is not None]
            await self._publish(keys=[ALL], args=[part for pair in written for part in pair])
        except (RedisError, OSError, TimeoutError) as error:
            obey_cancellation()
            if not self._silent:
                log.warning("events.redis_away", error=type(error).__name__)
            self._silent = True
        else:
            self._silent = False


def _text(item: Envelope) -> str | None:
    """One event that cannot be written must not silence all that come after it."""
    try:
        return item.to_json()
    except ValueError:
        log.exception("events.unwritable", type=item.event.type)
        return None


class Listening(Protocol):
    """The live side of one reader: what is published from now on."""

    @property
    def closed(self) -> bool:
        """Whether this is the end."""

    async def next(self, seconds: float) -> Envelope | None:
        """None: nothing came for so long, or something may have been missed. The table is to be looked at."""


class Live(Protocol):
    """Where a reader hears what is published: by a subscription of its own, or by one that a process shares."""

    def listen(self, session_id: str | None) -> AbstractAsyncContextManager[Listening]:
        """Subscribed when it is entered. None: every session."""


class Subscriptions:
    """Each reader has a connection of its own."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    @asynccontextmanager
    async def listen(self, session_id: str | None) -> AsyncIterator[Listening]:
        async with self._client.pubsub() as pubsub:
            await pubsub.subscribe(channel_of(session_id) if session_id else ALL)
            if await pubsub.get_message(timeout=CONFIRM_SECONDS) is None:
                raise TimeoutError
            yield _Subscription(pubsub)


class _Subscription:
    closed = False

    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub

    async def next(self, seconds: float) -> Envelope | None:
        raw = await self._pubsub.get_message(timeout=seconds)
        # The client may connect again by itself, and then says only that it has subscribed.
        return read_envelope(raw["data"]) if raw is not None and raw["type"] == "message" else None


class Follower:
    """Reads one session's events, or everybody's, from a point on. `last` says what it has shown."""

    def __init__(
        self,
        db: Database,
        live: Live | redis.asyncio.Redis,
        session_id: str | None,
        after: int = 0,
        ready: Callable[[], None] | None = None,
        look_again: float = LOOK_AGAIN_SECONDS,
    ) -> None:
        """`live`: a Redis client stands for a subscription of the reader's own. `ready` is called once, when nothing
        that happens from then on is missed: whoever causes what they want to see, rings then. Pieces of text are not
        kept, so a reader who comes late has lost the first words. `look_again`: so many seconds of silence are
        trusted."""
        self._ready = ready
        self._db = db
        self._live = Subscriptions(live) if isinstance(live, redis.asyncio.Redis) else live
        self._session_id = session_id
        self._look_again = look_again
        self.last: dict[str, int] = {session_id: after} if session_id else {}

    async def events(self) -> AsyncIterator[Envelope]:
        """As `beats`, without the silences."""
        async for item in self.beats():
            if item is not None:
                yield item

    async def beats(self) -> AsyncIterator[Envelope | None]:
        """The stored events after the starting point, then live ones, until the live side is closed; None when nothing
        happened for `look_again` seconds. Survives Redis going away."""
        while True:
            obey_cancellation()
            with suppress(RedisError, OSError, TimeoutError):
                # Subscribed before the table is read: what happens in between is on both sides, and joined.
                async with self._live.listen(self._session_id) as live:
                    self._is_ready()
                    if self._session_id is None and not self.last:
                        self.last = await self._db.read(_latest_numbers)
                    async for item in self._joined(live):
                        yield item
                return
            self._is_ready()  # without Redis it is seen late, but seen
            async for item in self._stored():
                yield item
            yield None
            await asyncio.sleep(0.5)

    def _is_ready(self) -> None:
        if self._ready is not None:
            ready, self._ready = self._ready, None
            ready()

    async def _joined(self, live: Listening) -> AsyncIterator[Envelope | None]:
        async for item in self._stored():
            yield item
        while not live.closed:
            obey_cancellation()
            heard = await live.next(self._look_again)
            async for item in self._stored() if heard is None else self._join(heard):
                yield item
            if heard is None:
                yield None

    async def _join(self, item: Envelope) -> AsyncIterator[Envelope]:
        """Place a live event after what was shown: fill a gap from the table, drop what was already passed."""
        known = self.last.get(item.session, 0)
        needed = item.seq - 1 if item.seq is not None else item.after
        if needed is not None and needed > known:
            async for stored in self._stored(item.session):
                yield stored
            known = self.last.get(item.session, 0)
        if item.seq is None:
            if item.after is None or item.after >= known:
                yield item
        elif item.seq > known:
            self.last[item.session] = item.seq
            yield item

    async def _stored(self, session_id: str | None = None) -> AsyncIterator[Envelope]:
        for session in [session_id] if session_id else list(self.last):
            more = True
            while more:
                rows = await self._db.read(lambda conn, s=session: events_after(conn, s, self.last.get(s, 0), PAGE))  # type: ignore[misc]
                for row in rows:
                    self.last[session] = row.seq
                    if (item := stored_envelope(row)) is not None:
                        yield item
                more = len(rows) == PAGE


def obey_cancellation() -> None:
    """The Redis client may turn a cancellation that comes while it connects into one of its own errors."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _latest_numbers(conn: Any) -> dict[str, int]:
    """Where every session that is active now stands, so that a reader of all starts with what is new."""
    query = select(Event.session_id, func.max(Event.seq).label("seq")).group_by(Event.session_id)
    return {row.session_id: row.seq for row in (await conn.execute(query)).all()}
