"""Event streams over real HTTP: from a point on without a gap, for those who may look, as long as they may."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import fastapi.routing
import pytest
from sqlalchemy import delete, update

from adapters.events import Progress
from gateway.http import news as news_module
from gateway.http.api import streams
from gateway.http.api.streams import Allowed, event_stream, fleet_stream
from gateway.http.news import News
from models import Token, UserRole
from models.base import new_id, now
from models.errors import DatabaseDownError
from models.tokens import DEFAULT_SCOPES, Scope, new_token
from tests.support.console_session import sign_in_user
from tests.support.event_source import EventSource, Sent, event_source
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with
from tests.support.scripts import TWO_CALLS_SCRIPT
from workers.events import envelope, redis_client
from workers.operations.people import Role
from workers.operations.tokens import add_token

pytestmark = pytest.mark.spec("G2")
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


class Lookout:
    """A gateway, a session with one finished turn of ten events, and people who look at it."""

    def __init__(self, gateway: Gateway, session_id: str) -> None:
        self.gateway = gateway
        self.fleet = gateway.fleet
        self.session_id = session_id
        self.path = f"/v1/sessions/{session_id}/events"

    async def token(
        self, name: str, role: Role = "admin", agent: str | None = "demo", scopes: tuple[Scope, ...] = DEFAULT_SCOPES
    ) -> str:
        token = new_token()
        await self.fleet.db.transact(lambda conn: add_token(conn, "cli", name, token, agent, role, scopes))
        return token

    async def status(self, path: str, token: str = "", **headers: str) -> int:
        async with event_source(self.gateway.port, path, token, **headers) as source:
            return source.status

    async def turn(self, **fields: Any) -> None:
        await self.fleet.send(**fields)
        await self.fleet.settle_down()


@pytest.fixture
async def lookout(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Lookout]:
    fleet = await make_fleet(registry_with(tmp_path))
    await fleet.add_group(script=TWO_CALLS_SCRIPT)
    accepted = await fleet.send()
    await fleet.settle_down()
    async with gateway_to(fleet) as gateway:
        yield Lookout(gateway, accepted.session_id)


async def take(source: EventSource, done: Callable[[list[Sent]], bool]) -> list[Sent]:
    seen: list[Sent] = []
    async with asyncio.timeout(20):
        async for sent in source:
            seen.append(sent)
            if done(seen):
                break
    return seen


def reached(number: int) -> Callable[[list[Sent]], bool]:
    return lambda seen: seen[-1].id == str(number)


def ids(seen: list[Sent]) -> list[int]:
    return [int(sent.id) for sent in seen if sent.id is not None]


async def test_a_stream_has_what_is_kept_and_then_what_happens(lookout: Lookout) -> None:
    ada = await lookout.token("ada")
    async with event_source(lookout.gateway.port, lookout.path, ada) as source:
        assert source.status == 200
        stored = await take(source, reached(10))
        assert ids(stored) == list(range(1, 11))
        await lookout.turn()
        live = await take(source, reached(20))
    assert ids(live) == list(range(11, 21))
    for sent in stored + live:
        said = sent.envelope
        assert (said["v"], said["session"], said["event"]["type"]) == (1, lookout.session_id, sent.name)
        assert str(said.get("seq")) == str(sent.id)
    deltas = [sent for sent in live if sent.name == "text_delta"]
    assert deltas
    assert {sent.id for sent in deltas} == {None}, "what is not kept cannot be resumed from"


@ONE_DATABASE
async def test_one_comes_back_with_the_last_id(lookout: Lookout) -> None:
    ada = await lookout.token("ada")
    for path, headers, first in (
        (lookout.path, {"last_event_id": "7"}, 8),
        (f"{lookout.path}?after=4", {}, 5),
        (f"{lookout.path}?after=4", {"last_event_id": "8"}, 9),  # what a browser adds is newer than the address
        (f"{lookout.path}?after=4", {"last_event_id": "0"}, 1),
    ):
        async with event_source(lookout.gateway.port, path, ada, **headers) as source:
            assert ids(await take(source, reached(10))) == list(range(first, 11))
    for wrong in ("-1", "x", "1.5", "", "1;2", "9" * 30, "0x1", "null"):
        assert await lookout.status(f"{lookout.path}?after={wrong}", ada) == 422
        assert await lookout.status(lookout.path, ada, last_event_id=wrong) == 422


@pytest.mark.spec("G2", "C5")
@ONE_DATABASE
async def test_a_session_is_looked_at_by_those_who_oversee_its_agent(lookout: Lookout) -> None:
    other = await lookout.fleet.add_group("other", script="hm")
    assert other
    boss, admin = await lookout.token("boss", "owner", None), await lookout.token("ada")
    for token in (boss, admin):
        assert await lookout.status(lookout.path, token) == 200
    assert await lookout.status(lookout.path) == 401
    assert await lookout.status(lookout.path, new_token()) == 401
    assert await lookout.status(lookout.path, await lookout.token("narrow", scopes=("send",))) == 403
    for token in (await lookout.token("eve", "member"), await lookout.token("odd", agent="other")):
        assert await lookout.status(lookout.path, token) == 404
    for unknown in (new_id(), "x"):
        assert await lookout.status(f"/v1/sessions/{unknown}/events", boss) == 404
    assert await lookout.status("/v1/events", admin) == 403
    assert await lookout.status("/v1/events", boss) == 200
    assert await lookout.status("/v1/events") == 401


@pytest.mark.spec("G2", "C5")
@pytest.mark.parametrize("path", ["session", "fleet"])
@pytest.mark.parametrize("loss", ["token", "standing"])
@ONE_DATABASE
async def test_who_may_no_longer_look_sees_nothing_more(
    lookout: Lookout, loss: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.0)  # asked each time: not even one event may slip through
    boss = await lookout.token("boss", "owner", None)
    address = "/v1/events" if path == "fleet" else f"{lookout.path}?after=10"
    async with event_source(lookout.gateway.port, address, boss) as source:
        gone = update(Token).values(revoked_at=now()) if loss == "token" else delete(UserRole)
        await lookout.fleet.execute(gone)
        await lookout.turn()
        # That something may have been missed is said before, if Redis was slow to subscribe; it tells nothing.
        assert [sent for sent in await take(source, lambda _: False) if sent.name != streams.MISSED] == []
        assert source.ended
        assert (
            await lookout.status(address, boss) == {"token": 401, "standing": 404 if path == "session" else 403}[loss]
        )


@ONE_DATABASE
async def test_a_silent_stream_ends_as_well_and_says_that_it_lives(
    lookout: Lookout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(fastapi.routing, "_PING_INTERVAL", 0.005)
    ada = await lookout.token("ada")
    async with event_source(lookout.gateway.port, f"{lookout.path}?after=10", ada) as source:
        reading = asyncio.create_task(take(source, lambda _: False))
        async with asyncio.timeout(20):
            while not source.comments:
                await asyncio.sleep(0.01)
        await lookout.fleet.execute(update(Token).values(revoked_at=now()))
        assert await reading == []
        assert source.ended


@ONE_DATABASE
async def test_streams_of_one_user_are_counted_over_all_addresses_tokens_and_browsers(
    lookout: Lookout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAMS", 2)
    boss, port = await lookout.token("boss", "owner", "demo"), lookout.gateway.port
    async with event_source(port, lookout.path, boss), event_source(port, "/web/boss/events", boss) as second:
        assert second.status == 200
        for path in (lookout.path, "/v1/events", "/web/boss/events"):
            assert await lookout.status(path, boss) == 429
        assert await lookout.status(lookout.path, await lookout.token("boss", "owner", "demo")) == 429
        browsers = [await sign_in_user(lookout.gateway, "boss") for _ in range(2)]
        for browser, path in zip(browsers, (f"/sessions/{lookout.session_id}/stream", "/chat/stream"), strict=True):
            assert (await browser.glance(path)).status_code == 429
        assert await lookout.status(lookout.path, await lookout.token("ada")) == 200
    async with asyncio.timeout(20):
        while await lookout.status("/v1/events", boss) != 200:  # the gateway has to notice that they have hung up
            await asyncio.sleep(0.01)


async def test_the_fleet_s_stream_has_every_session_from_now_on(lookout: Lookout) -> None:
    boss = await lookout.token("boss", "owner", None)
    async with event_source(lookout.gateway.port, "/v1/events", boss, last_event_id="3") as source:
        await subscribed(lookout)
        for chat in ("one", "two"):
            await lookout.turn(platform_id=chat)
        seen = await take(source, lambda seen: [sent.name for sent in seen].count("turn_ended") == 2)
    sessions = {row.id for row in await lookout.fleet.sessions()} - {lookout.session_id}
    assert {sent.envelope["session"] for sent in seen} == sessions
    assert ids(seen) == []
    for session in sessions:
        numbers = [sent.envelope.get("seq") for sent in seen if sent.envelope["session"] == session]
        assert [number for number in numbers if number is not None] == list(range(1, 11))


async def subscribed(lookout: Lookout) -> None:
    async with redis_client(lookout.fleet.runtime.settings.redis_url) as client, asyncio.timeout(20):
        while dict(await client.pubsub_numsub("events:all")).get(b"events:all") == 0:
            await asyncio.sleep(0.01)


async def _allowed() -> bool:
    return True


async def test_a_reader_of_the_fleet_that_falls_behind_is_told(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news_module, "BEHIND_LIMIT", 3)
    async with redis_client(redis_url) as client:
        news = News(client)
        stream = fleet_stream(news, _allowed)
        assert (await anext(stream)).retry
        first = asyncio.ensure_future(anext(stream))
        async with asyncio.timeout(20):
            while not news._readers:
                await asyncio.sleep(0.01)
        half_way = [envelope("s1", Progress(text="half way"), seq=number) for number in range(1, 10)]
        news._tell(half_way[0].to_json().encode())
        assert (await first).event == "progress"
        for item in half_way[1:]:
            news._tell(item.to_json().encode())
        async with asyncio.timeout(20):
            while (told := await anext(stream)).event != "missed":
                pass
        assert told.data == {}
        news.close()


async def test_when_the_database_stays_away_the_stream_ends_without_a_fuss(redis_url: str) -> None:
    class Away:
        async def read(self, work: Any) -> Any:
            raise DatabaseDownError("gone")

    async with redis_client(redis_url) as client:
        news = News(client)
        away: Any = Away()
        assert [sent.retry async for sent in event_stream(away, news, "s1", 0, _allowed)] == [streams.RETRY_MS]
        news.close()


async def test_when_nobody_can_tell_whether_one_may_look_the_stream_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody_can_tell() -> bool:
        raise DatabaseDownError("gone")

    allowed = Allowed(nobody_can_tell)
    assert await allowed.still(), "the route has just asked"
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.0)
    assert not await allowed.still()
