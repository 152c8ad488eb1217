"""A platform's message that comes again, or twice at once: whatever has changed meanwhile, it is the first one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from models import Approval, Card, PendingQuestion
from models.people import grant, remember_user
from tests.support.cards import SCRIPT, Launcher, Platform, press
from tests.support.conditions import wait_for_condition
from tests.support.fake_platform import add_direct_chat, grant_role, post_message, wire
from tests.support.fleet import Fleet, MakeFleet
from tests.support.scripts import QUESTION_SCRIPT
from workers.consent import strangers
from workers.consent.requests import code_of, put_request
from workers.consent.strangers import let_in
from workers.front_desk import has_said
from workers.intake import reception, switchboard

pytestmark = pytest.mark.both_databases

SQLITE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
POSTGRESQL = pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)


@pytest.fixture
async def fleet(make_fleet: MakeFleet) -> Fleet:
    return await make_fleet(Launcher().registry(Platform()))


class Held:
    """The first call of a function waits before it returns what it found, until it is let go."""

    def __init__(self, real: Callable[..., Awaitable[Any]]) -> None:
        self.real = real
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, *given: Any, **named: Any) -> Any:
        found = await self.real(*given, **named)
        if not self.reached.is_set():
            self.reached.set()
            await self.go.wait()
        return found


async def waits_or_ends(fleet: Fleet, task: asyncio.Task[Any]) -> bool:
    """Whether it waits for another transaction's lock, or did not have to."""

    async def look(conn: AsyncConnection) -> int:
        return int((await conn.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted"))).scalar_one())

    return task.done() or await fleet.db.read(look) > 0


@pytest.mark.spec("M1", "C6")
@SQLITE
async def test_an_old_message_that_comes_again_answers_nothing(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet()
    await wire(fleet, await fleet.add_group(script=QUESTION_SCRIPT), "dm-ada")
    await grant_role(fleet, "ada", "owner")
    first = await post_message(fleet, "1", "ada", "dm-ada", message_id="m-1")
    await fleet.settle_down()  # the agent asks Ada something, and "1" would be her answer
    again = await post_message(fleet, "1", "ada", "dm-ada", message_id="m-1")
    assert (again.duplicate, again.handled, again.message_id) == (True, None, first.message_id)
    assert [row.status for row in await fleet.rows(PendingQuestion)] == ["pending"]


@pytest.mark.spec("M1", "M2")
@SQLITE
async def test_a_message_heard_twice_stays_with_the_agent_that_has_it(fleet: Fleet) -> None:
    follower, other = await fleet.add_group("follower"), await fleet.add_group("other")
    await wire(fleet, follower, trigger_rules={"mentionOnly": True, "sticky": True}, priority=5)
    await wire(fleet, other)
    await grant_role(fleet, "ada", "owner")
    for _ in range(2):  # the second time, the thread is followed
        for number, mention in enumerate((False, True)):
            await post_message(fleet, "come", "ada", thread_id="t", is_mention=mention, message_id=f"m-{number}")
    assert [row.agent_group_id for row in await fleet.inbox()] == [other, follower]


@pytest.mark.spec("M1")
@SQLITE
async def test_those_inside_may_send_one_message_to_several_agents(fleet: Fleet) -> None:
    for name in ("one", "two"):
        await fleet.add_group(name)
        sent = await fleet.send("hello", agent_group=name, channel_type="fake", message_id="m-1")
        assert not sent.duplicate


@pytest.mark.spec("M1", "M2")
@POSTGRESQL
async def test_two_copies_at_once_go_to_one_agent_although_the_way_changes(fleet: Fleet, monkeypatch: Any) -> None:
    first, second = await fleet.add_group("first"), await fleet.add_group("second")
    await wire(fleet, first)
    await grant_role(fleet, "ada", "owner")
    held = Held(switchboard.find)
    monkeypatch.setattr(switchboard, "find", held)
    early = asyncio.create_task(post_message(fleet, "hello", "ada", message_id="m-1"))
    await held.reached.wait()  # and found its way
    await wire(fleet, second, priority=5)
    late = asyncio.create_task(post_message(fleet, "hello", "ada", message_id="m-1"))
    await wait_for_condition(lambda: waits_or_ends(fleet, late))
    held.go.set()
    assert [one.duplicate for one in await asyncio.gather(early, late)] == [False, True]
    assert [row.agent_group_id for row in await fleet.inbox()] == [first]


@pytest.mark.spec("M1", "C6")
@POSTGRESQL
async def test_of_two_copies_at_once_none_is_a_message_if_one_was_an_answer(fleet: Fleet, monkeypatch: Any) -> None:
    await wire(fleet, await fleet.add_group(script=SCRIPT), "dm-ada")
    await grant_role(fleet, "ada", "owner")
    await add_direct_chat(fleet, "ada")
    await post_message(fleet, "go", "ada", "dm-ada")
    await fleet.settle_down()
    [approval] = await fleet.rows(Approval)
    words = f"approve {code_of(approval.id)}"
    held = Held(has_said)
    monkeypatch.setattr(reception, "has_said", held)
    early = asyncio.create_task(post_message(fleet, words, "ada", "dm-ada", message_id="m-1"))
    await held.reached.wait()
    late = asyncio.create_task(post_message(fleet, words, "ada", "dm-ada", message_id="m-1"))
    await wait_for_condition(lambda: waits_or_ends(fleet, late))
    held.go.set()
    assert [one.handled for one in await asyncio.gather(early, late)] == ["answer", "before"]
    assert [row.content["text"] for row in await fleet.inbox()] == ["go"]


@pytest.mark.spec("C4", "C6")
@POSTGRESQL
async def test_two_first_messages_of_a_stranger_make_one_request_that_can_be_decided(fleet: Fleet) -> None:
    group = await fleet.add_group()
    for room in ("r1", "r2"):
        await wire(fleet, group, room, policy="request_approval")
    await grant_role(fleet, "ada", "owner")
    await add_direct_chat(fleet, "ada")
    await asyncio.gather(
        *(post_message(fleet, f"I am in {room}", f"eve{n}", room) for n in range(12) for room in ("r1", "r2"))
    )
    assert len(await fleet.rows(Approval)) == len(await fleet.rows(Card)) == 12
    for card in await fleet.rows(Card):
        await press(fleet, card, "ada")
    assert {row.status for row in await fleet.rows(Approval)} == {"approved"}
    assert {row.status for row in await fleet.inbox()} == {"pending"}


@pytest.mark.spec("C4")
@POSTGRESQL
async def test_whoever_is_let_in_while_their_first_message_is_stored_does_not_wait(
    fleet: Fleet, monkeypatch: Any
) -> None:
    group = await fleet.add_group()
    await wire(fleet, group, policy="request_approval")
    await grant_role(fleet, "ada", "owner")
    await add_direct_chat(fleet, "ada")
    await fleet.db.transact(lambda conn: remember_user(conn, "fake:eve", "fake", "eve"))
    held = Held(put_request)
    monkeypatch.setattr(strangers, "put_request", held)

    async def let_them_in(conn: AsyncConnection) -> None:
        await grant(conn, "fake:eve", "member", group, "a code")
        await let_in(conn, "fake:eve", group, "a code")

    message = asyncio.create_task(post_message(fleet, "hello", "eve"))
    await held.reached.wait()
    letting = asyncio.create_task(fleet.db.transact(let_them_in))
    await wait_for_condition(lambda: waits_or_ends(fleet, letting))
    held.go.set()
    await asyncio.gather(message, letting)
    assert [row.status for row in await fleet.inbox()] == ["pending"]
    assert [row.status for row in await fleet.rows(Approval)] == ["approved"]
