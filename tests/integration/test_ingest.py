"""Accepting messages: once each, routed, stored before anybody is woken, refused with a reason."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.registry import Drivers, Registry
from models import Audit, MessageIn, MessagingGroup, Session, User, Wiring
from models.audit import note
from models.base import new_id, now
from models.database import Database
from models.errors import DatabaseDownError
from tests.support.fleet import Fleet, MakeFleet
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.refusals import RefusedError

pytestmark = pytest.mark.both_databases


@pytest.mark.spec("M1", "G1")
async def test_the_same_platform_message_is_taken_once(fleet: Fleet) -> None:
    await fleet.add_group()
    first = await fleet.send(channel_type="fake", platform_id="chat", message_id="m1")
    again = await fleet.send(channel_type="fake", platform_id="chat", message_id="m1")
    assert again.duplicate
    assert (again.message_id, again.session_id, again.seq) == (first.message_id, first.session_id, first.seq)
    other_chat = await fleet.send(channel_type="fake", platform_id="other chat", message_id="m1")
    assert not other_chat.duplicate, "platforms number their messages per chat"
    assert len(await fleet.inbox()) == 2


@pytest.mark.spec("M1")
async def test_a_duplicate_takes_no_number(fleet: Fleet) -> None:
    await fleet.add_group()
    for message_id in ("a", "a", "a", "b"):
        await fleet.send(message_id=message_id)
    assert [row.seq for row in await fleet.inbox()] == [1, 2]


@pytest.mark.spec("M1")
async def test_many_copies_at_once_make_one_row(fleet: Fleet) -> None:
    await fleet.add_group()
    results = await asyncio.gather(*(fleet.send(message_id="same") for _ in range(30)))
    assert len({result.message_id for result in results}) == 1
    assert sum(not result.duplicate for result in results) == 1
    assert len(await fleet.inbox()) == 1


@pytest.mark.spec("G1")
async def test_a_celery_task_id_is_the_id_to_follow(fleet: Fleet) -> None:
    await fleet.add_group()
    task_id = new_id()
    incoming = parse_incoming({"agent_group": "demo", "text": "hello"})
    for _ in range(2):  # a broker may deliver a task twice
        accepted = await accept(fleet.db, fleet.runtime.registry, fleet.runtime.settings, incoming, row_id=task_id)
        assert accepted.message_id == task_id
    assert [row.id for row in await fleet.inbox()] == [task_id]


async def test_what_is_written_besides_is_there_if_and_only_if_the_message_is(fleet: Fleet) -> None:
    await fleet.add_group()
    house = (fleet.db, fleet.runtime.registry, fleet.runtime.settings)
    incoming = parse_incoming({"agent_group": "demo", "text": "hello", "message_id": "k1"})

    async def noted(conn: AsyncConnection, stored: Accepted) -> None:
        await note(conn, "cli", "test.note", stored.message_id)

    async def fails(conn: AsyncConnection, stored: Accepted) -> None:
        await noted(conn, stored)
        raise RefusedError("not so")

    with pytest.raises(RefusedError, match="not so"):
        await accept(*house, incoming, besides=fails)
    assert (await fleet.inbox(), await fleet.rows(Audit)) == ([], [])
    first, again = [await accept(*house, incoming, besides=noted) for _ in range(2)]
    assert (first.duplicate, again.duplicate) == (False, True)
    assert [row.target for row in await fleet.rows(Audit)] == [first.message_id]


async def test_an_unknown_agent_is_refused_with_the_known_ones(fleet: Fleet) -> None:
    await fleet.add_group("demo")
    await fleet.add_group("writer")
    with pytest.raises(RefusedError, match=r"no agent group 'nobody'; there are: demo, writer"):
        await fleet.send(agent_group="nobody")
    assert await fleet.inbox() == []
    assert await fleet.rows(Session) == []


async def test_a_place_nobody_listens_in_is_refused(fleet: Fleet) -> None:
    with pytest.raises(RefusedError, match="no agent is wired to fake 'chat'"):
        await fleet.send(agent_group=None, channel_type="fake", platform_id="chat")


@pytest.mark.spec("M3")
async def test_an_unknown_provider_is_an_error_on_the_row(fleet: Fleet) -> None:
    await fleet.add_group(provider="claude-9000")
    await fleet.send()
    [row] = await fleet.inbox()
    assert (row.status, row.error_class) == ("failed", "unknown_provider")
    assert row.error.startswith("there is no provider 'claude-9000' here; installed: acp, anthropic, ")
    assert fleet.bells.wakes == []


@pytest.mark.spec("M3")
async def test_the_provider_is_the_sessions_then_the_groups_then_the_default(make_fleet: MakeFleet) -> None:
    from adapters.providers.scripted import ScriptedProvider

    providers = Drivers("provider", made={name: ScriptedProvider() for name in ("one", "two", "three")})
    fleet = await make_fleet(Registry(providers=providers), default_provider="one")  # type: ignore[arg-type]
    await fleet.add_group("plain", provider=None)
    await fleet.add_group("own", provider="two")
    assert (await fleet.send(agent_group="plain")).wake_provider == "one"
    own = await fleet.send(agent_group="own")
    assert own.wake_provider == "two"
    from sqlalchemy import update

    await fleet.settle_down()
    await fleet.execute(update(Session).where(Session.id == own.session_id).values(provider="three"))
    assert (await fleet.send(agent_group="own")).wake_provider == "three"


@pytest.mark.spec("M3")
async def test_a_wake_on_the_wrong_queue_is_passed_on(make_fleet: MakeFleet) -> None:
    from adapters.providers.scripted import ScriptedProvider
    from workers import turn

    providers = Drivers("provider", made={name: ScriptedProvider() for name in ("one", "two")})
    fleet = await make_fleet(Registry(providers=providers))  # type: ignore[arg-type]
    await fleet.add_group(provider="two")
    accepted = await fleet.send()
    fleet.bells.wakes.clear()
    assert await turn.wake(fleet.runtime, accepted.session_id, "one") == "elsewhere"
    assert fleet.bells.wakes == [(accepted.session_id, "two")]


@pytest.mark.spec("M2")
async def test_wirings_decide_by_priority_and_rules(fleet: Fleet) -> None:
    worker = await fleet.add_group("worker")
    boss = await fleet.add_group("boss")
    place = new_id()
    await fleet.insert(MessagingGroup, {"id": place, "channel_type": "fake", "platform_id": "chat"})
    await fleet.insert(
        Wiring,
        {"messaging_group_id": place, "agent_group_id": worker, "priority": 0, "session_mode": "per-thread"},
    )
    await fleet.insert(
        Wiring,
        {
            "messaging_group_id": place,
            "agent_group_id": boss,
            "priority": 5,
            "trigger_rules": {"pattern": "@boss"},
        },
    )
    fields = {"agent_group": None, "channel_type": "fake", "platform_id": "chat"}
    await fleet.send("do this", thread_id="t1", **fields)
    await fleet.send("and that", thread_id="t2", **fields)
    await fleet.send("@boss look", thread_id="t1", **fields)
    sessions = await fleet.sessions()
    assert sorted((s.agent_group_id == boss, s.thread_id) for s in sessions) == [
        (False, "t1"),
        (False, "t2"),
        (True, ""),
    ]


@pytest.mark.spec("M2")
async def test_what_does_not_trigger_rides_along_with_what_does(fleet: Fleet) -> None:
    group = await fleet.add_group(script="heard: {texts}")
    place = new_id()
    await fleet.insert(MessagingGroup, {"id": place, "channel_type": "fake", "platform_id": "chat"})
    rules = {"trigger_rules": {"mentionOnly": True}, "response_scope": "triggered"}
    await fleet.insert(Wiring, {"messaging_group_id": place, "agent_group_id": group} | rules)
    fields = {"agent_group": None, "channel_type": "fake", "platform_id": "chat"}
    await fleet.send("small talk", **fields)
    assert fleet.bells.wakes == []
    await fleet.send("agent, what was said?", is_mention=True, **fields)
    assert await fleet.answer_wakes() == ["completed"]
    [reply] = await fleet.outbox()
    assert reply.content == {"text": "heard: small talk agent, what was said?"}


@pytest.mark.spec("S1")
async def test_a_message_with_a_date_waits_for_it(fleet: Fleet) -> None:
    await fleet.add_group()
    await fleet.send(kind="task", process_after=datetime.now(UTC) + timedelta(hours=1))
    assert fleet.bells.wakes == []
    assert (await fleet.sweep()).wakes == []
    await fleet.execute(update(MessageIn).values(process_after=now(-1)))
    assert len((await fleet.sweep()).wakes) == 1
    await fleet.settle_down()
    [row] = await fleet.inbox()
    assert row.status == "completed"


async def test_odd_characters_are_stored(fleet: Fleet) -> None:
    await fleet.add_group(script="{texts}")
    await fleet.send("nul \x00, half a pair \ud83d, and a whole 😀")
    await fleet.settle_down()
    [reply] = await fleet.outbox()
    assert reply.content["text"].endswith("and a whole 😀")
    assert reply.status == "delivered"


async def test_a_sender_is_remembered(fleet: Fleet) -> None:
    await fleet.add_group()
    for _ in range(2):
        await fleet.send(sender_id="42", sender_name="Ada", channel_type="fake", platform_id="chat")
    [user] = await fleet.rows(User)
    assert (user.id, user.display_name) == ("fake:42", "Ada")
    assert [row.sender_id for row in await fleet.rows(MessageIn)] == ["42", "42"]


@pytest.mark.spec("M1")
async def test_with_the_database_down_the_sender_is_told(fleet: Fleet) -> None:
    away = Database("postgresql://nobody@127.0.0.1:1/none")
    incoming = parse_incoming({"agent_group": "demo", "text": "hello"})
    try:
        with pytest.raises(DatabaseDownError, match="the database does not answer"):
            await away.transact(lambda conn: _touch(conn), patience=0.2)
    finally:
        await away.close()
    assert incoming.text == "hello"


async def _touch(conn: object) -> None:
    """Connecting is what fails."""
