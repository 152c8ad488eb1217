"""Publishing: in order, to both channels, never blocking and never failing its caller."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import fakeredis
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from adapters.events import Envelope, Message, TextDelta
from workers import events
from workers.events import ALL, Publisher, channel_of, envelope, stored_envelope


async def _heard(pubsub: Any, count: int) -> list[tuple[str, Envelope]]:
    found: list[tuple[str, Envelope]] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            if raw := await pubsub.get_message(ignore_subscribe_messages=True, timeout=1):
                found.append((raw["channel"].decode(), Envelope.from_json(raw["data"])))
    return found


class AwayRedis:
    """A client whose server is gone, until it is not."""

    def __init__(self) -> None:
        self.away = True
        self.sent: list[str] = []
        self.tried = asyncio.Event()

    def register_script(self, script: str) -> "AwayRedis":
        return self

    async def __call__(self, keys: list[str], args: list[str]) -> None:
        self.tried.set()
        if self.away:
            raise RedisConnectionError("gone")
        self.sent += [channel for own in args[::2] for channel in (own, *keys)]


@pytest.mark.spec("P2", "G2")
async def test_events_reach_the_session_s_channel_and_everybody_s_in_order() -> None:
    client: Any = fakeredis.FakeAsyncRedis()
    pubsub = client.pubsub()
    await pubsub.subscribe(channel_of("s1"), ALL)
    publisher = Publisher(client)
    sent = [envelope("s1", TextDelta(text=str(number)), turn_id="t", after=3) for number in range(450)]
    publisher.publish(*sent[:300])
    for item in sent[300:]:
        publisher.publish(item)
    publisher.publish(envelope("s2", TextDelta(text="another session's")))
    await publisher.close()
    heard = await _heard(pubsub, 901)
    assert [item for channel, item in heard if channel == "events:s1"] == sent
    assert [item for channel, item in heard if channel == "events:all"][:450] == sent
    await pubsub.aclose()
    await client.aclose()


@pytest.mark.spec("P2")
async def test_a_redis_that_is_away_harms_nobody_and_is_used_again_when_it_is_back() -> None:
    client = AwayRedis()
    publisher = Publisher(client)  # type: ignore[arg-type]  # of a client it uses only the pipeline
    publisher.publish(envelope("s1", TextDelta(text="lost")))
    async with asyncio.timeout(10):
        await client.tried.wait()
    client.away = False
    publisher.publish(envelope("s1", TextDelta(text="heard")))
    await publisher.close()
    assert client.sent == ["events:s1", "events:all"]


@pytest.mark.spec("P2")
async def test_a_full_queue_drops_events_instead_of_blocking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "QUEUE_LIMIT", 10)
    client = AwayRedis()
    client.away = False
    publisher = Publisher(client)  # type: ignore[arg-type]
    publisher.publish(*(envelope("s1", TextDelta(text=str(number))) for number in range(50)))
    await publisher.close()
    assert len(client.sent) == 20


@pytest.mark.spec("P2")
async def test_closing_sends_what_is_queued_and_may_be_done_twice() -> None:
    client = AwayRedis()
    client.away = False
    publisher = Publisher(client)  # type: ignore[arg-type]
    publisher.publish(envelope("s1", TextDelta(text="last words")))
    await publisher.close()
    await publisher.close()
    assert client.sent == ["events:s1", "events:all"]


def test_an_envelope_is_stamped_with_the_time() -> None:
    before = datetime.now(UTC)
    item = envelope("s1", Message(text="x"), turn_id="t1", seq=4)
    assert (item.session, item.turn, item.seq, item.after) == ("s1", "t1", 4, None)
    assert before <= item.at <= datetime.now(UTC)


def test_a_stored_event_becomes_the_envelope_it_was() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    payload = {"type": "message", "text": "x"}
    row: Any = SimpleNamespace(session_id="s1", turn_id="t1", seq=9, created_at=at, payload=payload)
    assert stored_envelope(row) == Envelope(session="s1", turn="t1", seq=9, at=at, event=Message(text="x"))


class ConnectingRedis(AwayRedis):
    """A client that is stopped while it connects, and reports that as a broken connection."""

    async def __call__(self, keys: list[str], args: list[str]) -> None:
        self.tried.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RedisConnectionError("connecting failed") from None


async def test_a_publisher_that_is_stopped_while_it_connects_ends() -> None:
    client = ConnectingRedis()
    publisher = Publisher(client)  # type: ignore[arg-type]
    publisher.publish(envelope("s1", TextDelta(text="x"), turn_id="t", after=3))
    await client.tried.wait()
    async with asyncio.timeout(10):
        await publisher.close()
