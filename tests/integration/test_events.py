"""Reading events: the table first, then the live channel; no gap, no double, whatever Redis does."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from sqlalchemy import update

from adapters.events import Envelope, TextDelta
from models import Session
from models.base import now
from tests.support.event_readers import event_numbers, read_events, turns_ended
from tests.support.fleet import Fleet
from tests.support.scripts import TWO_CALLS_SCRIPT
from workers.events import Follower, Publisher, channel_of, redis_client

pytestmark = pytest.mark.both_databases


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = redis_client(redis_url)
    yield client
    await client.aclose()


TWO_TRIES = """
- play:
    - answer: done
    - touch: notes.txt
    - fail: {class: transport, message: cut off}
      until_attempt: 2
"""


@pytest.mark.spec("P2", "G2")
async def test_a_late_reader_gets_everything_from_the_table(fleet: Fleet, client: redis.asyncio.Redis) -> None:
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    await fleet.settle_down()
    seen = await read_events(Follower(fleet.db, client, accepted.session_id), turns_ended(1))
    assert [item.event.type for item in seen] == [
        "turn_started", "thinking", "tool_call", "tool_result", "message", "tool_call", "tool_result", "usage",
        "result", "turn_ended",
    ]  # fmt: skip
    assert event_numbers(seen) == list(range(1, len(seen) + 1))


@pytest.mark.spec("M8", "P2")
async def test_an_answer_is_told_of_when_it_leaves_and_once(fleet: Fleet) -> None:
    """Not when it is heard: the attempt that said it may be lost, and the next says it again."""
    await fleet.add_group(script=TWO_TRIES)
    await fleet.send()
    assert await fleet.answer_wakes() == ["waiting"]
    assert "result" not in {row.type for row in await fleet.events()}
    await fleet.execute(update(Session).values(resume_after=now(-1), woken_at=None))
    await fleet.sweep()
    assert await fleet.answer_wakes() == ["completed"]
    assert [row.type for row in await fleet.events()] == [
        "turn_started", "usage", "files_touched", "failed", "turn_ended",
        "turn_started", "usage", "files_touched", "result", "turn_ended",
    ]  # fmt: skip
    assert [row.content["text"] for row in await fleet.outbox()] == ["done"]


@pytest.mark.spec("P2", "G2")
async def test_a_live_reader_also_gets_the_deltas_in_their_place(fleet: Fleet, client: redis.asyncio.Redis) -> None:
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    reading = asyncio.create_task(read_events(Follower(fleet.db, client, accepted.session_id), turns_ended(1)))
    await _until_subscribed(client, accepted.session_id)
    await fleet.settle_down()
    seen = await reading
    lasting = [item for item in seen if item.seq is not None]
    assert event_numbers(seen) == list(range(1, len(lasting) + 1))
    types = [item.event.type for item in seen]
    assert types.index("text_delta") > types.index("tool_result"), "a delta does not overtake what came before it"
    assert types.index("text_delta") < types.index("message")


@pytest.mark.spec("G2")
async def test_a_reader_that_resumes_gets_only_what_it_missed(fleet: Fleet, client: redis.asyncio.Redis) -> None:
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    await fleet.settle_down()
    seen = await read_events(Follower(fleet.db, client, accepted.session_id, after=7), turns_ended(1))
    assert event_numbers(seen) == [8, 9, 10]


@pytest.mark.spec("G2")
async def test_what_the_live_channel_loses_is_filled_in_and_what_it_repeats_is_dropped(
    fleet: Fleet, client: redis.asyncio.Redis
) -> None:
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    lossy = LossyPublisher(client)
    fleet.runtime.publisher = lossy  # type: ignore[misc]
    reading = asyncio.create_task(read_events(Follower(fleet.db, client, accepted.session_id), turns_ended(2)))
    await _until_subscribed(client, accepted.session_id)
    await fleet.settle_down()
    await fleet.send()
    await fleet.settle_down()
    seen = await reading
    await lossy.close()
    assert event_numbers(seen) == list(range(1, 21))


@pytest.mark.spec("M1")
async def test_without_redis_turns_run_and_readers_find_them_later(fleet: Fleet, client: redis.asyncio.Redis) -> None:
    away = redis_client("redis://127.0.0.1:1/0")
    publisher = Publisher(away)
    fleet.runtime.publisher = publisher  # type: ignore[misc]
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    await fleet.settle_down()
    assert [row.status for row in await fleet.inbox()] == ["completed"]
    seen = await read_events(Follower(fleet.db, client, accepted.session_id), turns_ended(1))
    assert event_numbers(seen) == list(range(1, 11))
    await publisher.close()
    await away.aclose()


@pytest.mark.spec("G4")
async def test_a_reader_of_all_sees_every_session_from_now_on(fleet: Fleet, client: redis.asyncio.Redis) -> None:
    await fleet.add_group(script="hello")
    await fleet.send(platform_id="before")
    await fleet.settle_down()
    ends = asyncio.create_task(read_events(Follower(fleet.db, client, None), turns_ended(3)))
    await _until_subscribed(client, None)
    accepted = [await fleet.send(platform_id=f"chat{number}") for number in range(3)]
    await fleet.settle_down()
    seen = await ends
    assert {item.session for item in seen} == {item.session_id for item in accepted}


class LossyPublisher(Publisher):
    """Loses every third event and sends every second one twice."""

    _count = 0

    def publish(self, *envelopes: Envelope) -> None:
        for item in envelopes:
            if isinstance(item.event, TextDelta):
                continue
            self._count += 1
            if self._count % 3:
                super().publish(*([item] * (1 + self._count % 2)))


async def _until_subscribed(client: redis.asyncio.Redis, session_id: str | None) -> None:
    channel = channel_of(session_id) if session_id else "events:all"
    async with asyncio.timeout(10):
        while dict(await client.pubsub_numsub(channel)).get(channel.encode()) == 0:
            await asyncio.sleep(0.01)


async def test_a_reader_stops_whenever_it_is_told_to(fleet: Fleet, redis_url: str) -> None:
    for pause in range(0, 60, 4):  # also while it connects, where the client swallows cancellations
        client = redis_client(redis_url)
        reading = asyncio.create_task(read_events(Follower(fleet.db, client, None), turns_ended(1)))
        for _ in range(pause):
            await asyncio.sleep(0)
        reading.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(reading, return_exceptions=True)
        assert reading.cancelled()
        await client.aclose()


@pytest.mark.spec("G2")
async def test_who_rings_when_ready_misses_no_word(fleet: Fleet, client: redis.asyncio.Redis) -> None:
    """Pieces of text are not kept: one that is published before the reader listens is gone."""
    await fleet.add_group(script="- play: [{say: 'First words.'}, {answer: done}]")
    accepted = await fleet.send()
    turns: list[asyncio.Task[list[str]]] = []
    follower = Follower(
        fleet.db,
        client,
        accepted.session_id,
        ready=lambda: turns.append(asyncio.create_task(fleet.answer_wakes())),
    )
    seen = await read_events(follower, turns_ended(1))
    assert next(item.event.text for item in seen if isinstance(item.event, TextDelta)) == "First words."
    assert [await turn for turn in turns] == [["completed"]]


async def test_pieces_of_a_text_say_how_much_of_it_came_before(fleet: Fleet, client: redis.asyncio.Redis) -> None:
    acts = "{say: One two.}, {think: hm}, {say: Three four.}, {answer: Fünf 🚢 six.}, {answer: Seven.}"
    await fleet.add_group(config={"provider_options": {"script": f"- play: [{acts}]", "pace": 0.001}})
    accepted = await fleet.send()
    turns: list[asyncio.Task[list[str]]] = []
    rung = Follower(
        fleet.db,
        client,
        accepted.session_id,
        ready=lambda: turns.append(asyncio.create_task(fleet.answer_wakes())),
    )
    pieces = [item.event for item in await read_events(rung, turns_ended(1)) if isinstance(item.event, TextDelta)]
    texts: list[str] = []
    for piece in pieces:
        texts += [""] if piece.offset == 0 else []
        assert piece.offset == len(texts[-1])
        texts[-1] += piece.text
    assert texts == ["One two. ", "Three four. ", "Fünf 🚢 six. ", "Seven. "]
    assert [await turn for turn in turns] == [["completed"]]


@pytest.mark.spec("G2")
async def test_without_redis_it_is_rung_for_all_the_same(fleet: Fleet) -> None:
    await fleet.add_group(script="fine")
    accepted = await fleet.send()
    away = redis_client("redis://127.0.0.1:1/0")
    turns: list[asyncio.Task[list[str]]] = []
    follower = Follower(
        fleet.db, away, accepted.session_id, ready=lambda: turns.append(asyncio.create_task(fleet.answer_wakes()))
    )
    assert (await read_events(follower, turns_ended(1)))[-1].event.type == "turn_ended"
    assert [await turn for turn in turns] == [["completed"]]
    await away.aclose()
