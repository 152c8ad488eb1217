"""What happens in the fleet, for everybody in this process who waits for it or reads it: one subscription for all.

Best effort, and bounded. An `Ear` is only told that something has happened; a `Reader` gets the events themselves, and
is sent to the table when it fell behind or Redis was away. Whoever waits looks into the rows now and then as well."""

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from typing import Final

import redis.asyncio
import structlog
from redis.exceptions import RedisError

from adapters.events import Envelope
from gateway.http.running_texts import RunningTexts
from workers.events import ALL, CONFIRM_SECONDS, LOOK_AGAIN_SECONDS, obey_cancellation, read_envelope

log = structlog.get_logger()

AGAIN_SECONDS: Final = 1.0
# Events that a reader has not yet taken. All readers hold the same objects, so many that are slow cost little more.
BEHIND_LIMIT: Final = 500


class _Waiter:
    """Sleeps until it is woken. `closed`: the gateway stops, and whoever waits is to make an end."""

    def __init__(self) -> None:
        self.closed = False
        self._event = asyncio.Event()

    def close(self) -> None:
        self.closed = True
        self._event.set()

    async def wait(self, seconds: float = LOOK_AGAIN_SECONDS) -> None:
        """Until something happened, or it is time to look anyway."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        if not self.closed:
            self._event.clear()


class Ear(_Waiter):
    """Hears of some sessions; `words` are looked for in the events of all others."""

    def __init__(self, words: bytes | None = None) -> None:
        super().__init__()
        self.sessions: set[str] = set()
        self._words = words

    def hear(self, raw: bytes) -> None:
        if any(session.encode() in raw for session in self.sessions) or (self._words and self._words in raw):
            self._event.set()


class Reader(_Waiter):
    """The live side of a follower (`workers.events.Listening`). `losses` counts how often it had to be told that
    something may have been missed."""

    def __init__(self) -> None:
        super().__init__()
        self.losses = 0
        self._told = 0
        self._behind: deque[Envelope] = deque()

    def hear(self, item: Envelope) -> None:
        if len(self._behind) >= BEHIND_LIMIT:
            self.lose()
        else:
            self._behind.append(item)
            self._event.set()

    def lose(self) -> None:
        """What waits here is in the table too, or was passing text."""
        self._behind.clear()
        self.losses += 1
        self._event.set()

    async def next(self, seconds: float) -> Envelope | None:
        if not (self._behind or self.closed or self._told != self.losses):
            self._event.clear()  # of what was taken without waiting
            await self.wait(seconds)
        if self._told != self.losses:
            self._told = self.losses
            return None
        return self._behind.popleft() if self._behind else None


class News:
    """Made and closed with the gateway. Subscribes when somebody wants to hear for the first time."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._ears: set[Ear] = set()
        self._readers: defaultdict[str | None, set[Reader]] = defaultdict(set)
        self._texts = RunningTexts()
        self._task: asyncio.Task[None] | None = None
        self._subscribed = asyncio.Event()
        self._closed = False

    @contextlib.contextmanager
    def ear(self, words: bytes | None = None) -> Iterator[Ear]:
        ear = Ear(words)
        self._open(ear)
        self._ears.add(ear)
        try:
            yield ear
        finally:
            self._ears.discard(ear)

    @contextlib.asynccontextmanager
    async def listen(self, session_id: str | None, *, so_far: bool = False) -> AsyncIterator[Reader]:
        """Without Redis it begins as well: the reader is told when it is subscribed. `so_far`: it begins with what
        there is of the text that is just being written."""
        reader = Reader()
        self._open(reader)
        if not self._subscribed.is_set() and not self._closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await self._subscribed.wait()
            self._open(reader)  # it may have been closed meanwhile
        self._readers[session_id].add(reader)
        if so_far and session_id is not None and (text := self._texts.so_far(session_id)) is not None:
            reader.hear(text)
        try:
            yield reader
        finally:
            self._readers[session_id].discard(reader)
            if not self._readers[session_id]:
                del self._readers[session_id]

    def stir(self, raw: bytes) -> None:
        """Something has happened, here or elsewhere."""
        for ear in self._ears:
            ear.hear(raw)

    def close(self) -> None:
        """Everybody who waits stops waiting."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        for waiter in [*self._ears, *self._all_readers()]:
            waiter.close()

    def _open(self, waiter: _Waiter) -> None:
        if self._closed:
            waiter.close()
        elif self._task is None:
            self._task = asyncio.create_task(self._run(), name="longshore-news")

    def _all_readers(self) -> list[Reader]:
        return [reader for readers in self._readers.values() for reader in readers]

    async def _run(self) -> None:
        while True:
            obey_cancellation()
            try:
                async with self._client.pubsub() as pubsub:
                    await pubsub.subscribe(ALL)
                    await self._hear(pubsub)
            except (RedisError, OSError, TimeoutError) as error:
                if self._subscribed.is_set():
                    log.warning("news.redis_away", error=type(error).__name__)
            self._subscribed.clear()
            self._lose()
            await asyncio.sleep(AGAIN_SECONDS)

    async def _hear(self, pubsub: redis.asyncio.client.PubSub) -> None:
        while True:
            obey_cancellation()
            message = await pubsub.get_message(timeout=CONFIRM_SECONDS)
            if message is None:
                continue
            if message["type"] == "message":
                self.stir(message["data"])
                self._tell(message["data"])
            else:  # subscribed: for the first time, or again, which the client may do by itself
                self._lose()
                self._subscribed.set()

    def _tell(self, raw: bytes) -> None:
        if (item := read_envelope(raw)) is None:
            return
        self._texts.hear(item)
        for session_id in (item.session, None):
            for reader in self._readers.get(session_id, ()):
                reader.hear(item)

    def _lose(self) -> None:
        self._texts.clear()
        for reader in self._all_readers():
            reader.lose()
