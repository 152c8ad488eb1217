"""Odd moments and odd texts in the runtime: jobs, publisher, terminal, channels."""

import asyncio
import io
from datetime import UTC, datetime
from typing import Any

import fakeredis
import pytest
from rich.console import Console

from adapters.channel_port import Destination, OutboundMessage
from adapters.channels.fake import FakeChannel
from adapters.channels.local import LocalChannel
from adapters.channels.webhook import Endpoint, WebhookChannel
from adapters.errors import ChannelError, DeliveryError
from adapters.events import (
    AnyEvent,
    DeliveryChanged,
    Envelope,
    FilesTouched,
    Result,
    TextDelta,
    ToolCall,
    ToolResult,
    TurnEnded,
)
from gateway.cli.stream import EventPrinter
from models.database import uninterrupted
from tests.support.webhook_server import WebhookServer
from workers.events import Publisher, channel_of, envelope
from workers.loop import Job, Stop, StoppedError

# --- workers/loop.py


async def test_a_second_stop_does_not_tear_the_clean_up_apart() -> None:
    job, cleaning, go, done = Job(), asyncio.Event(), asyncio.Event(), []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await go.wait()
            done.append("cleaned up")

    task = asyncio.create_task(job.run(work()))
    await asyncio.sleep(0)
    job.stop(Stop.REVOKED)
    await cleaning.wait()
    job.stop(Stop.SHUTDOWN)
    await asyncio.sleep(0.01)
    go.set()
    with pytest.raises(StoppedError):
        await task
    assert done == ["cleaned up"]


async def test_uninterrupted_survives_a_second_cancellation() -> None:
    go, done = asyncio.Event(), []

    async def transaction() -> None:
        await go.wait()
        done.append("committed")

    task = asyncio.create_task(uninterrupted(transaction()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["committed"]


# --- workers/events.py


async def test_an_event_that_cannot_be_written_does_not_silence_the_publisher() -> None:
    client = fakeredis.FakeAsyncRedis()
    pubsub = client.pubsub()
    await pubsub.subscribe(channel_of("s1"))
    assert await pubsub.get_message(timeout=5)  # that it is subscribed
    publisher = Publisher(client)
    publisher.publish(envelope("s1", TextDelta(text="\ud83e")))
    await asyncio.sleep(0.05)
    publisher.publish(envelope("s1", TextDelta(text="still here")))
    await publisher.close()
    heard = []
    while raw := await pubsub.get_message(ignore_subscribe_messages=True, timeout=0.2):
        heard.append(Envelope.from_json(raw["data"]).event)
    await pubsub.aclose()  # type: ignore[no-untyped-call]
    await client.aclose()
    assert TextDelta(text="still here") in heard


# --- gateway/cli/stream.py


def _shown(event: AnyEvent) -> str:
    file = io.StringIO()
    printer = EventPrinter(Console(file=file, width=80, highlight=False, color_system=None))
    printer.show(Envelope(session="s", turn="t", at=datetime.now(UTC), event=event))
    printer.close()
    return file.getvalue()


BAD = "\x1b[2Jx"


@pytest.mark.parametrize(
    "event",
    [
        ToolCall(id="1", name=BAD),
        ToolResult(id="1", name=BAD, ok=True),
        FilesTouched(paths=(BAD,)),
        TurnEnded(status="waiting", error=BAD, retry_in=5),
        DeliveryChanged(message=1, status="failed", channel=BAD),
    ],
    ids=lambda event: event.type,
)
def test_names_paths_and_reasons_cannot_steer_the_terminal(event: AnyEvent) -> None:
    assert "\x1b" not in _shown(event)


@pytest.mark.parametrize("char", ["\x7f", "\x9b", "\x9d", "\u202e", "\u2028"])
def test_eight_bit_controls_and_direction_marks_are_not_passed_on(char: str) -> None:
    assert char not in _shown(Result(text=f"a{char}31mb"))


def test_a_turn_that_waits_without_a_date_has_a_line() -> None:
    assert _shown(TurnEnded(status="waiting", error="asks a person"))


# --- adapters/channels


async def test_local_s_direct_chats_agree_with_its_capabilities() -> None:
    channel = LocalChannel()
    assert (await channel.open_dm("ada") is not None) == channel.capabilities.direct_messages


@pytest.mark.parametrize("message_id", ["m99", "m0", "hello", ""])
async def test_editing_what_is_not_there_is_a_channel_error(message_id: str) -> None:
    channel = FakeChannel()
    await channel.deliver(OutboundMessage(Destination("c"), {"text": "x"}, "k"))
    with pytest.raises(ChannelError):
        await channel.edit(Destination("c"), message_id, {"text": "y"})


@pytest.fixture
def server() -> Any:
    stand_in = WebhookServer("s")
    yield stand_in
    stand_in.close()


@pytest.mark.parametrize(
    ("behaviour", "low", "high"), [("busy until a date", 4.0, 8.0), ("busy for ever", 0.0, 86_400.0 * 366)]
)
async def test_retry_after_may_be_a_date_and_is_never_endless(
    behaviour: Any, low: float, high: float, server: WebhookServer
) -> None:
    channel = WebhookChannel({"crm": Endpoint(url=server.url, secret="s")})
    server.fail_next(behaviour)
    with pytest.raises(DeliveryError) as caught:
        await channel.deliver(OutboundMessage(Destination("crm"), {"text": "x"}, "k"))
    await channel.close()
    if behaviour == "busy until a date":
        assert caught.value.retry_after is not None
    assert low <= (caught.value.retry_after or 0.0) <= high
