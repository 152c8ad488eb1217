"""Replays: what was said is said again, turn by turn, on another provider or model, beside the original."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, update

from adapters.providers.scripted import ScriptedProvider
from adapters.registry import Drivers, Registry
from models import Audit, MessageIn, MessageOut, Session, TranscriptItem, Turn
from models.browsing import sessions_page
from models.spending import everybodys
from tests.support.api_fleet import model_api
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import Call, ModelApi, refuse, reply, rule, script
from workers.loop import Job, StoppedError
from workers.opening import open_next
from workers.operations import dead, sessions
from workers.operations.replays import Pair, compare, replay
from workers.refusals import RefusedError

pytestmark = pytest.mark.spec("M15")

SCRIPT = script(
    rule("time", reply("Let me look.", Call("clock", {"timezone": "UTC"})), "It is noon."),
    rule("second", "Second."),
    rule("third", "Third."),
    rule(".", "Hello to you."),
)
MODEL = "claude-haiku-5-5"


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with model_api(monkeypatch, SCRIPT) as server:
        yield server


async def _talk(fleet: Fleet, *texts: str, **group: Any) -> str:
    """A conversation on openai, one turn for each text."""
    await fleet.add_group(**{"provider": "openai", "model": "some-model"} | group)
    for text in texts:
        session_id = (await fleet.send(text)).session_id
        await fleet.settle_down()
    return session_id


async def _run(fleet: Fleet) -> None:
    await fleet.settle_down()


async def _pairs(fleet: Fleet, session_id: str) -> list[Pair]:
    return await fleet.db.read(lambda conn: compare(conn, session_id))


async def test_a_session_is_replayed_on_another_provider_and_compared(fleet: Fleet, api: ModelApi) -> None:
    original = await _talk(fleet, "hello", "what time is it?")
    before = [row for row in await fleet.outbox() if row.session_id == original]
    made = await replay(fleet.runtime, "web:ann", original, provider="anthropic", model=MODEL)
    assert (made.replay_of, made.turns, made.provider, made.model) == (original, (1, 2), "anthropic", MODEL)
    assert fleet.bells.wakes == [(made.session_id, "anthropic")]
    await _run(fleet)
    pairs = await _pairs(fleet, made.session_id)
    assert [(pair.original.number, pair.replayed.number) for pair in pairs] == [(1, 1), (2, 2)]
    for pair in pairs:
        assert (pair.original.provider, pair.replayed.provider) == ("openai", "anthropic")
        assert (pair.original.model, pair.replayed.model) == ("some-model", MODEL)
        assert pair.original.status == pair.replayed.status == "completed"
        assert [one["text"] for one in pair.original.messages] == [one["text"] for one in pair.replayed.messages]
        assert [one["text"] for one in pair.original.answers] == [one["text"] for one in pair.replayed.answers]
        for side in (pair.original, pair.replayed):
            assert side.read_tokens > 0
            assert side.output_tokens > 0
            assert side.seconds is not None
    assert [[(tool.name, tool.ok) for tool in pair.replayed.tools] for pair in pairs] == [[], [("clock", True)]]
    assert [answer["status"] for pair in pairs for answer in pair.replayed.answers] == ["cancelled", "cancelled"]
    said = [row for row in await fleet.outbox() if row.session_id == made.session_id]
    assert {row.error for row in said} == {"replay: not delivered"}
    assert [row for row in await fleet.outbox() if row.session_id == original] == before
    [line] = await fleet.rows(Audit)
    assert (line.who, line.act, line.target, line.detail["to"]) == (
        "web:ann",
        "session.replay",
        original,
        made.session_id,
    )


async def test_each_turn_of_the_original_is_one_turn_however_many_messages_it_had(fleet: Fleet) -> None:
    await fleet.add_group(script="You said: {texts}")
    for text in ("one", "two", "three"):
        original = (await fleet.send(text)).session_id
    await fleet.settle_down()
    await fleet.send("four")
    await fleet.settle_down()
    made = await replay(fleet.runtime, "cli", original)
    rows = [row for row in await fleet.inbox() if row.session_id == made.session_id]
    assert [(row.wakes, row.provider) for row in rows] == [
        (False, None),
        (False, None),
        (True, "scripted"),
        (True, "scripted"),
    ]
    assert all(row.platform_message_id is None and row.series_id is None and row.recurrence is None for row in rows)
    await _run(fleet)
    texts = [[one["text"] for one in pair.replayed.answers] for pair in await _pairs(fleet, made.session_id)]
    assert texts == [["You said: one two three"], ["You said: four"]]


async def test_a_replay_of_later_turns_begins_with_what_the_agent_knew(fleet: Fleet, api: ModelApi) -> None:
    original = await _talk(fleet, "hello", "second", "third")
    made = await replay(fleet.runtime, "cli", original, turns=[3], provider="anthropic", model=MODEL)
    before = len(api.requests)
    await _run(fleet)
    [asked] = api.requests[before:]
    words = str(asked.body)
    assert "Hello to you." in words
    assert "Second." in words
    [pair] = await _pairs(fleet, made.session_id)
    assert (pair.original.number, pair.replayed.number) == (3, 3)
    assert [one["text"] for one in pair.replayed.answers] == ["Third."]
    turns = [turn for turn in await fleet.turns() if turn.session_id == made.session_id]
    assert [(turn.number, turn.status) for turn in turns] == [(1, "completed"), (2, "completed"), (3, "completed")]
    copied = [row for row in await fleet.rows(TranscriptItem) if row.session_id == original]
    assert {row.turn_id for row in copied}.isdisjoint({turn.id for turn in turns}), "the original's stay its own"


class Prompted(ScriptedProvider):
    """Is told more than people's own words, as programs are."""

    manifest = replace(
        ScriptedProvider.manifest, capabilities=replace(ScriptedProvider.manifest.capabilities, plain_texts=False)
    )


async def test_a_provider_with_a_memory_of_its_own_is_told_what_was_said_before(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(Registry(providers=Drivers("provider", made={"scripted": Prompted()})))
    await fleet.add_group(script="- play:\n    - answer: 'I heard: {texts}'\n")
    for text in ("my cat is called Mimi", "and now?"):
        original = (await fleet.send(text)).session_id
        await fleet.settle_down()
    made = await replay(fleet.runtime, "cli", original, turns=[2])
    await _run(fleet)
    [pair] = await _pairs(fleet, made.session_id)
    assert "my cat is called Mimi" in pair.replayed.answers[0]["text"]
    assert [one["text"] for one in pair.replayed.messages] == ["and now?"]


async def test_dead_turns_are_replayed_and_running_ones_are_not(fleet: Fleet, api: ModelApi) -> None:
    await fleet.add_group(provider="openai", model="some-model")
    api.fail(refuse("unauthenticated", times=None, wire="chat"))
    original = (await fleet.send("hello")).session_id
    await fleet.settle_down()
    made = await replay(fleet.runtime, "cli", original, provider="anthropic", model=MODEL)
    await _run(fleet)
    [pair] = await _pairs(fleet, made.session_id)
    assert (pair.original.status, pair.replayed.status) == ("failed", "completed")
    await fleet.execute(update(Turn).where(Turn.session_id == original).values(status="parked", ended_at=None))
    with pytest.raises(RefusedError, match=r"turn 1 of session \w+ has not ended \(parked\)"):
        await replay(fleet.runtime, "cli", original, turns=[1])
    with pytest.raises(RefusedError, match="there is nothing to replay"):
        await replay(fleet.runtime, "cli", original)


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_what_cannot_be_replayed_is_refused_and_nothing_is_made(fleet: Fleet, api: ModelApi) -> None:
    original = await _talk(fleet, "hello")
    for words, wish in (
        (r"there is no provider 'nobody' here; installed: ", {"provider": "nobody"}),
        (r"there is no turn 7 of session \w+; it has turns up to 1", {"turns": [7]}),
        ("a model's name has", {"model": ""}),
    ):
        with pytest.raises(RefusedError, match=words):
            await replay(fleet.runtime, "cli", original, **wish)
    with pytest.raises(RefusedError, match="there is no session 'x'"):
        await replay(fleet.runtime, "cli", "x")
    assert len(await fleet.sessions()) == 1
    made = await replay(fleet.runtime, "cli", original)
    with pytest.raises(RefusedError, match=f"is a replay itself: replay the original, {original[-8:]}"):
        await replay(fleet.runtime, "cli", made.session_id)


async def test_the_same_key_of_the_same_person_makes_one_replay(fleet: Fleet, api: ModelApi) -> None:
    original = await _talk(fleet, "hello")
    wish = {"provider": "anthropic", "model": MODEL, "key": "k1"}
    made = await asyncio.gather(*(replay(fleet.runtime, "web:ann", original, **wish) for _ in range(3)))  # type: ignore[arg-type]
    assert len({one.session_id for one in made}) == 1
    assert sorted(one.again for one in made) == [False, True, True]
    assert len(fleet.bells.wakes) == len(await fleet.rows(Audit)) == 1
    other = await replay(fleet.runtime, "web:bob", original, **wish)  # type: ignore[arg-type]
    assert not other.again
    again = await replay(fleet.runtime, "web:ann", original, key="k1")
    assert (again.again, again.provider, again.turns) == (True, "anthropic", (1,)), "as it was made"
    elsewhere = (await fleet.send("hello", platform_id="other")).session_id
    await fleet.settle_down()
    others: list[dict[str, Any]] = [{"provider": "openai"}, {"model": "other"}, {"delivery": True}]
    for session, other_wish in [(elsewhere, {}), *((original, one) for one in others)]:
        with pytest.raises(RefusedError, match="this key was used before, for something else"):
            await replay(fleet.runtime, "web:ann", session, key="k1", **other_wish)


async def test_a_replay_is_nobodys_conversation(fleet: Fleet, api: ModelApi) -> None:
    original = await _talk(fleet, "hello")
    made = await replay(fleet.runtime, "cli", original)
    await _run(fleet)
    assert (await fleet.send("more")).session_id == original
    await fleet.settle_down()
    listed = {row.id: row for row in await fleet.db.read(lambda conn: sessions_page(conn, everybodys, 50))}
    assert (listed[made.session_id].replay_of, listed[original].replay_of) == (original, None)
    assert (listed[made.session_id].delivers, listed[made.session_id].channel_type) == (False, None)
    with pytest.raises(RefusedError, match="is a replay: close it"):
        await sessions.reset(fleet.runtime, "cli", made.session_id)
    with pytest.raises(RefusedError, match="is a replay: nobody can say anything in it"):
        await sessions.say(fleet.runtime, "cli", made.session_id, "hello")


async def test_another_worker_goes_on_with_a_replay_whose_worker_died(make_fleet: MakeFleet) -> None:
    fleet, other = await make_fleet(), await make_fleet()
    await fleet.add_group(script="- play:\n    - touch: made.txt\n    - answer: 'You said: {texts}'\n")
    for text in ("one", "two"):
        original = (await fleet.send(text)).session_id
        await fleet.settle_down()
    made = await replay(fleet.runtime, "cli", original)
    # Half of it, and then the worker dies in the middle of the second turn.
    assert await fleet.answer_wakes() == ["completed"]
    runtime = fleet.runtime
    await fleet.db.transact(
        lambda conn: open_next(conn, runtime.registry, runtime.settings, made.session_id, "dead", None)
    )
    await fleet.execute(
        update(Session).where(Session.id == made.session_id).values(lease_expires_at=Session.created_at)
    )
    fleet.bells.wakes.clear()
    async with asyncio.timeout(10):
        while not other.bells.wakes:
            await other.sweep()
    await other.settle_down()
    pairs = await _pairs(other, made.session_id)
    assert [pair.replayed.status for pair in pairs] == ["completed", "completed"]
    assert [turn.attempt for turn in await other.turns() if turn.session_id == made.session_id] == [1, 2]


async def test_a_cancelled_turn_of_a_replay_does_not_stop_the_others(fleet: Fleet) -> None:
    await fleet.add_group(script="- when: one\n  play:\n    - fail: {class: transport}\n- play:\n    - answer: 'ok'\n")
    for text in ("one", "two"):
        original = (await fleet.send(text, platform_id="x")).session_id
        if text == "one":
            await fleet.answer_wakes()
            await sessions.cancel(fleet.runtime, "cli", original)
    await fleet.settle_down()
    made = await replay(fleet.runtime, "cli", original)
    assert await fleet.answer_wakes() == ["waiting"]
    await sessions.cancel(fleet.runtime, "cli", made.session_id)
    await _run(fleet)
    assert [pair.replayed.status for pair in await _pairs(fleet, made.session_id)] == ["cancelled", "completed"]


async def test_a_dead_letter_of_a_replay_is_tried_again_in_it_until_it_is_closed(fleet: Fleet, api: ModelApi) -> None:
    original = await _talk(fleet, "hello")
    api.fail(refuse("unauthenticated", times=None, wire="anthropic"))
    made = await replay(fleet.runtime, "cli", original, provider="anthropic", model=MODEL)
    await _run(fleet)
    [message] = [row for row in await fleet.inbox() if row.status == "failed"]
    await dead.retry(fleet.runtime, "cli", message.id, provider="openai", model="some-model")
    assert fleet.bells.wakes == [(made.session_id, "openai")]
    await _run(fleet)
    [pair] = await _pairs(fleet, made.session_id)
    assert (pair.replayed.status, pair.replayed.provider) == ("completed", "openai")
    await sessions.close(fleet.runtime, "cli", made.session_id)
    await fleet.execute(update(MessageIn).where(MessageIn.id == message.id).values(status="failed"))
    with pytest.raises(RefusedError, match="is of a replay that was closed"):
        await dead.retry(fleet.runtime, "cli", message.id)


async def test_a_replay_is_closed_in_the_middle_of_a_turn(fleet: Fleet) -> None:
    await fleet.add_group(script="- when: again\n  play:\n    - hang: true\n- play:\n    - answer: 'ok'\n")
    for text in ("one", "two"):
        original = (await fleet.send(text)).session_id
        await fleet.settle_down()
    made = await replay(fleet.runtime, "cli", original)
    again = {"text": "again", "sender": "ann"}
    await fleet.execute(update(MessageIn).where(MessageIn.session_id == made.session_id).values(content=again))
    fleet.bells.wakes.clear()
    job = Job()
    running = asyncio.create_task(job.run(fleet.wake(made.session_id)))
    async with asyncio.timeout(10):
        while [turn.status for turn in await fleet.turns() if turn.session_id == made.session_id] != ["running"]:
            await asyncio.sleep(0.01)
    await sessions.close(fleet.runtime, "cli", made.session_id)
    fleet.runtime.leases.mail(made.session_id)  # what the nudge does
    async with asyncio.timeout(10):
        with pytest.raises(StoppedError):
            await asyncio.shield(running)
    rows = [row for row in await fleet.inbox() if row.session_id == made.session_id]
    assert [(row.status, row.error) for row in rows] == [("discarded", "the replay was closed")] * 2
    assert [pair.replayed.status for pair in await _pairs(fleet, made.session_id)] == ["cancelled", None]
    await fleet.sweep()
    assert await fleet.answer_wakes() == []


async def test_with_delivery_its_answers_leave_as_any_others(fleet: Fleet, api: ModelApi) -> None:
    original = await _talk(fleet, "hello")
    made = await replay(fleet.runtime, "cli", original, delivery=True)
    await _run(fleet)
    query = select(MessageOut.status, MessageOut.platform_id).where(MessageOut.session_id == made.session_id)
    assert (await fleet.db.read(lambda conn: conn.execute(query))).all() == [("delivered", "inbox")]


async def test_originals_that_are_gone_leave_an_empty_side(fleet: Fleet) -> None:
    await fleet.add_group(script="You said: {texts}")
    original = (await fleet.send("one")).session_id
    await fleet.settle_down()
    made = await replay(fleet.runtime, "cli", original)
    await _run(fleet)
    await fleet.execute(update(MessageIn).where(MessageIn.session_id == made.session_id).values(replay_of="gone"))
    [pair] = await _pairs(fleet, made.session_id)
    assert (pair.original.status, pair.original.messages, pair.replayed.status) == (None, (), "completed")
