"""Listeners: one at a time, others standing by; nothing that a platform said is passed over, whoever dies."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from adapters.errors import DeliveryError
from models import Listener
from models.database import Database
from models.errors import DatabaseDownError
from models.listeners import all_listeners, claim_listener, release_listener, renew_listener, store_cursor
from tests.support import fork_server
from tests.support.conditions import wait_for_condition
from tests.support.file_channel import LISTENS_TO, Feed, outpost
from tests.support.fleet import Fleet, MakeFleet
from tests.support.open_gateway import wire
from tests.support.process_group import ROOT, child_environment
from workers.intake import doors, listening
from workers.intake.listening import listen_to_all


class Stage:
    """A feed, an agent that listens to it, and what has been stored of it."""

    def __init__(self, fleet: Fleet, file: Path) -> None:
        self.fleet = fleet
        self.file = file
        self.said = 0

    def say(self, count: int) -> None:
        with self.file.open("a") as file:
            file.writelines(f"m{number}\n" for number in range(self.said, self.said + count))
        self.said += count

    @asynccontextmanager
    async def listener(self, feed: Feed, name: str = "listen@test") -> AsyncIterator[None]:
        async with outpost(self.fleet.runtime.settings, feed, name) as house:
            task = asyncio.create_task(listen_to_all(house))
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def stored(self) -> list[str]:
        return [row.platform_message_id for row in await self.fleet.inbox()]

    async def has_heard_all(self) -> None:
        """Waits for it; the order is the platform's, and each is there once."""
        wanted = [f"m{number}" for number in range(self.said)]

        async def heard() -> bool:
            return len(await self.stored()) >= len(wanted)

        await wait_for_condition(heard)
        assert await self.stored() == wanted

    async def place(self) -> Any:
        [row] = await self.fleet.db.read(all_listeners)
        return row


@pytest.fixture
async def stage(make_fleet: MakeFleet, tmp_path: Path) -> Stage:
    fleet = await make_fleet(lease_seconds=3.0)
    await wire(fleet, await fleet.add_group(), "feed", "plaza")
    file = tmp_path / "feed.txt"
    file.touch()
    return Stage(fleet, file)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.mark.spec("C2", "C8")
async def test_two_listeners_do_no_harm(stage: Stage) -> None:
    stage.say(20)
    first, second = Feed(stage.file), Feed(stage.file)
    async with stage.listener(second, "listen2@test"):
        async with stage.listener(first, "listen1@test"):
            await stage.has_heard_all()
            assert [first.active, second.active].count(True) == 1
            active, standby = (first, second) if first.active else (second, first)
            stage.say(5)
            await stage.has_heard_all()
            assert (active.active, standby.active, standby.starts) == (True, False, [])
        stage.say(5)
        await stage.has_heard_all()
        assert second.active
    assert (await stage.place()).owner is None


@pytest.mark.spec("C2")
async def test_one_that_ends_properly_is_followed_from_where_it_stopped(stage: Stage) -> None:
    stage.say(3)
    async with stage.listener(Feed(stage.file)):
        await stage.has_heard_all()
        await wait_for_condition(lambda: _cursor_is(stage, 3))
    stage.say(2)
    later = Feed(stage.file)
    async with stage.listener(later):
        await stage.has_heard_all()
    assert later.starts == [{"at": 3}]


async def _cursor_is(stage: Stage, at: int) -> bool:
    return bool((await stage.place()).cursor == {"at": at})


@pytest.mark.spec("C2", "D5")
@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
async def test_one_that_is_killed_is_followed_within_its_lease_and_nothing_is_lost(
    stage: Stage, redis_url: str
) -> None:
    database_url = stage.fleet.runtime.settings.database_url
    command = [sys.executable, "-m", "tests.support.file_channel", database_url, redis_url, str(stage.file)]
    children = [
        fork_server.start([*command, f"listen{n}@test"], child_environment(), ROOT, stdout=1, stderr=2)
        for n in range(2)
    ]
    try:
        stage.say(10)
        await stage.has_heard_all()
        owner = (await stage.place()).owner
        [active] = [child for child in children if f":{child.pid}:" in owner]
        stage.say(50)
        active.kill()
        active.wait()
        await stage.has_heard_all()
        assert (await stage.place()).owner != owner
    finally:
        for child in children:
            child.kill()
            child.wait()


@pytest.mark.spec("C2")
async def test_a_listener_that_lost_its_place_can_store_nothing(db: Database) -> None:
    old = await db.transact(lambda conn: claim_listener(conn, "feed:1", "old", 0.0))
    assert old is not None
    await wait_for_condition(lambda: _expired(db))
    new = await db.transact(lambda conn: claim_listener(conn, "feed:1", "new", 60))
    assert new is not None
    assert await db.transact(lambda conn: claim_listener(conn, "feed:1", "third", 60)) is None
    assert await db.transact(lambda conn: store_cursor(conn, "feed:1", new.token, {"at": 7}))
    assert not await db.transact(lambda conn: store_cursor(conn, "feed:1", old.token, {"at": 3}))
    assert not await db.transact(lambda conn: renew_listener(conn, "feed:1", old.token, 60))
    await db.transact(lambda conn: release_listener(conn, "feed:1", old.token))
    [row] = await db.read(all_listeners)
    assert (row.owner, row.cursor) == ("new", {"at": 7})
    await db.transact(lambda conn: release_listener(conn, "feed:1", new.token))
    last = await db.transact(lambda conn: claim_listener(conn, "feed:1", "third", 60))
    assert last is not None
    assert last.cursor == {"at": 7}


async def _expired(db: Database) -> bool:
    [row] = await db.read(all_listeners)
    return bool(row.expires_at < row.at)


@pytest.mark.spec("C2")
async def test_one_whose_place_was_taken_stops_listening(stage: Stage) -> None:
    feed = Feed(stage.file)
    stage.say(1)
    async with stage.listener(feed):
        await stage.has_heard_all()
        # As if it had been frozen, and another one had come meanwhile.
        theirs = update(Listener).values(token=Listener.token + 1, owner="another")
        await stage.fleet.execute(theirs)
        await wait_for_condition(lambda: not feed.active)
    assert (await stage.place()).owner == "another"


@pytest.mark.spec("C2", "F4")
@pytest.mark.usefixtures("hasty")
async def test_a_driver_that_crashes_or_is_told_to_wait_goes_on(stage: Stage) -> None:
    feed = Feed(stage.file)
    feed.failures_of_listening = [
        RuntimeError("a bug"),
        DeliveryError("slow down", retryable=True, retry_after=0.01),
        DeliveryError("away", retryable=True),
    ]
    stage.say(4)
    async with stage.listener(feed):
        await stage.has_heard_all()
        assert feed.active
    assert len(feed.starts) == 4


@pytest.mark.spec("C2", "F4")
@pytest.mark.usefixtures("hasty")
async def test_what_could_not_be_stored_is_heard_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [DatabaseDownError("away"), DatabaseDownError("away")]
    real = doors.take_in

    async def take_in(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return await real(*given)

    monkeypatch.setattr(listening, "take_in", take_in)
    feed = Feed(stage.file)
    stage.say(3)
    async with stage.listener(feed):
        await stage.has_heard_all()
    assert feed.starts == [None, None, None]
    assert (await stage.place()).cursor == {"at": 3}


@pytest.mark.spec("C2")
async def test_another_owner_of_the_same_name_waits(stage: Stage) -> None:
    await stage.fleet.db.transact(lambda conn: claim_listener(conn, LISTENS_TO, "somebody", 3600))
    feed = Feed(stage.file)
    stage.say(1)
    async with stage.listener(feed):
        taken = update(Listener).values(expires_at=None)
        assert feed.starts == []
        await stage.fleet.execute(taken)
        await stage.has_heard_all()
