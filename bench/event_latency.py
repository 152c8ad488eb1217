"""(events) From publishing an event to its arrival at whoever reads it over HTTP, against raw pub/sub on the same
Redis.

The gateway is a process of its own, the event a piece of text, which goes from Redis to the readers without the table.
The two sides take turns, sample by sample: one reader, many, and an EventSource in Chromium where there is one."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.events import Progress, TextDelta, event_to_dict
from bench.event_readers import RAW, ServedSession, Times, browser, raw, streams
from bench.figures import Figure, percentile
from bench.rows import add_group, add_sessions, in_database
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage
from gateway.http.api.streams import STREAMS
from models import Event
from models.tokens import new_token
from tests.support.browser import NoBrowserError
from tests.support.servers import free_port
from workers.events import Publisher, envelope, redis_client
from workers.operations.tokens import add_token

WARM_UP = 20
Sample = Callable[[], Awaitable[Times]]


def measure(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    with _serve_session(stage, kind, scale.subscribers) as served:
        return asyncio.run(_measure(served, scale, say))


@contextmanager
def _serve_session(stage: Stage, kind: DatabaseKind, subscribers: int) -> Iterator[ServedSession]:
    url = stage.make_database(kind)
    add_group(url, script="hello")
    [session_id] = add_sessions(url, 1, text=None)
    tokens = [new_token() for _ in range(-(-subscribers // STREAMS))]

    async def prepare(conn: AsyncConnection) -> None:
        begun = Progress(text="begun")
        row = {"session_id": session_id, "seq": 1, "type": begun.type, "payload": event_to_dict(begun)}
        await conn.execute(insert(Event).values(**row))
        for number, token in enumerate(tokens):
            await add_token(conn, "bench", f"bench{number}", token, None, "owner")

    in_database(url, prepare)
    port = free_port()
    with stage.workers(url) as workers:
        workers.program("gateway", [sys.executable, "-m", "gateway.cli", "gateway", "--port", str(port)])
        yield ServedSession(stage.broker, port, session_id, tokens)


async def _measure(served: ServedSession, scale: Scale, say: Say) -> list[Figure]:
    figures: list[Figure] = []
    async with redis_client(served.broker) as client:
        publisher = Publisher(client)

        def publish(text: str) -> None:
            publisher.publish(envelope(served.session_id, TextDelta(text=text), after=1))

        async def publish_raw(text: str) -> None:
            await client.publish(RAW, envelope(served.session_id, TextDelta(text=text), after=1).to_json())

        for count in (1, scale.subscribers):
            async with streams(served, count) as ours, raw(served, count) as plain:
                sides = partial(ours.time, publish), partial(plain.time, publish_raw)
                what = "an SSE client" if count == 1 else f"each of {count} SSE clients"
                figures += await _compare(f"publish to {what}", *sides, scale, say)
        try:
            async with browser(served, publish) as sample, raw(served, 1) as plain:
                what = "publish to EventSource in Chromium"
                figures += await _compare(what, sample, partial(plain.time, publish_raw), scale, say)
        except NoBrowserError as error:
            say(f"(events) the browser is passed over: {error}")
        await publisher.close()
    return figures


async def _compare(what: str, ours: Sample, plain: Sample, scale: Scale, say: Say) -> list[Figure]:
    taken: list[tuple[Times, Times]] = []
    for repeat in range(scale.repeats + 1):
        pairs = [(await ours(), await plain()) for _ in range(2 * scale.samples if repeat else WARM_UP)]
        if repeat:
            taken.append(([one for pair in pairs for one in pair[0]], [one for pair in pairs for one in pair[1]]))
            p50, peer = (percentile(side, 0.5) for side in taken[-1])
            say(f"(events) {what}, repeat {repeat}: p50 {p50:.2f} ms, raw pub/sub {peer:.2f} ms")
    return [
        Figure(
            "events",
            f"{what}, {name}",
            [percentile(ours, share) for ours, _ in taken],
            [percentile(plain, share) for _, plain in taken],
            "ms",
            note="peer: raw pub/sub, as many readers",
        )
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]
