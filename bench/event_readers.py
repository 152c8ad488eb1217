"""Who reads an event, and when it has come: over HTTP, in a browser, and from raw pub/sub, each so many at a time."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from playwright.async_api import Page
from redis.asyncio.client import PubSub

from adapters.events import Envelope, TextDelta
from gateway.http.api.streams import STREAMS
from tests.support.browser import open_browser
from tests.support.event_source import event_source
from workers.events import redis_client

PATIENCE_SECONDS = 60.0
RAW = "bench:raw"
Times = list[float]  # milliseconds

_LISTEN = """path => new Promise(listens => {
  window.waiting = new Map();
  const source = new EventSource(path);
  source.addEventListener("progress", listens);
  source.addEventListener("text_delta", sent => {
    const now = performance.timeOrigin + performance.now();
    const told = window.waiting.get(JSON.parse(sent.data).event.text);
    if (told) told(now);
  });
})"""
_ARRIVAL = "text => new Promise(told => window.waiting.set(text, told))"
_CLOCK = "() => performance.timeOrigin + performance.now()"


@dataclass(frozen=True)
class ServedSession:
    """A gateway, a session with one event to read, and tokens to read it with."""

    broker: str
    port: int
    session_id: str
    tokens: list[str]

    @property
    def path(self) -> str:
        return f"/v1/sessions/{self.session_id}/events"


class Watch:
    """Times one event at a time, at so many readers."""

    def __init__(self, readers: int) -> None:
        self._readers = readers
        self._number = 0
        self._sent = 0.0
        self._taken: Times = []
        self._all = asyncio.Event()

    def arrived(self, text: str) -> None:
        if text == str(self._number):
            self._taken.append((time.perf_counter() - self._sent) * 1000)
            if len(self._taken) == self._readers:
                self._all.set()

    async def time(self, publish: Callable[[str], Awaitable[None] | None], patience: float = PATIENCE_SECONDS) -> Times:
        self._number += 1
        self._taken = []
        self._all.clear()
        self._sent = time.perf_counter()
        if (sending := publish(str(self._number))) is not None:
            await sending
        async with asyncio.timeout(patience):
            await self._all.wait()
        return self._taken


@asynccontextmanager
async def streams(served: ServedSession, count: int) -> AsyncIterator[Watch]:
    watch = Watch(count)

    async def read(token: str, ready: asyncio.Semaphore) -> None:
        async with event_source(served.port, served.path, token) as source:
            assert source.status == 200
            async for sent in source:
                if sent.id is not None:  # what is stored is sent to whoever hears what comes
                    ready.release()
                else:
                    watch.arrived(sent.envelope["event"]["text"])

    await _until_it_listens(served.port)
    ready = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(read(served.tokens[number // STREAMS], ready)) for number in range(count)]
    async with _ending(tasks):
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in tasks:
                await ready.acquire()
        yield watch


@asynccontextmanager
async def raw(served: ServedSession, count: int) -> AsyncIterator[Watch]:
    watch = Watch(count)

    async def read(pubsub: PubSub) -> None:
        async for message in pubsub.listen():
            if message["type"] == "message":
                event = Envelope.from_json(message["data"]).event
                assert isinstance(event, TextDelta)
                watch.arrived(event.text)

    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(count):  # one client lends a hundred connections at most
            client = await stack.enter_async_context(redis_client(served.broker))
            readers.append(await stack.enter_async_context(client.pubsub()))
            await readers[-1].subscribe(RAW)
        await stack.enter_async_context(_ending([asyncio.create_task(read(reader)) for reader in readers]))
        yield watch


@asynccontextmanager
async def browser(
    served: ServedSession, publish: Callable[[str], None]
) -> AsyncIterator[Callable[[], Awaitable[Times]]]:
    origin = f"http://127.0.0.1:{served.port}"
    numbers = iter(range(10**9))
    async with open_browser() as browsing:
        page = await browsing.open()
        await page.context.set_extra_http_headers({"Authorization": f"Bearer {served.tokens[0]}"})
        await page.route(f"{origin}/blank", lambda route: route.fulfill(body="<title>blank</title>"))
        await page.goto(f"{origin}/blank")
        await page.evaluate(_LISTEN, served.path)
        ahead = await _ahead(page)

        async def sample() -> Times:
            text = f"browser {next(numbers)}"
            arrival = asyncio.create_task(page.evaluate(_ARRIVAL, text))
            await page.evaluate("0")  # by now the page waits for it
            sent = time.time() * 1000
            publish(text)
            async with asyncio.timeout(PATIENCE_SECONDS):
                return [await arrival - ahead - sent]

        yield sample
        await page.goto("about:blank")


async def _ahead(page: Page) -> float:
    """How many milliseconds the page's clock is ahead of ours, by the quickest of some questions for the time."""
    answers = []
    for _ in range(50):
        before = time.time() * 1000
        said = await page.evaluate(_CLOCK)
        after = time.time() * 1000
        answers.append((after - before, said - (before + after) / 2))
    return float(min(answers)[1])


@asynccontextmanager
async def _ending(tasks: list[asyncio.Task[None]]) -> AsyncIterator[None]:
    """Readers that end with the block; one that has failed is told of."""
    try:
        yield
    finally:
        failed = [task.exception() for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not failed, failed


async def _until_it_listens(port: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
