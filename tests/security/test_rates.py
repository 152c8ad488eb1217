"""How often somebody may ask: counted by token or sign-in, else by address; and guesses lock nobody out."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import redis.asyncio
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from gateway.console.security import COOKIE
from gateway.http import rates
from gateway.http.rates import Rate, Rates
from models.errors import DatabaseDownError
from models.tokens import new_token
from tests.support.api_callers import caller
from tests.support.console_session import sign_in_user
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with
from workers.events import redis_client

pytestmark = pytest.mark.spec("G2", "G3")
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
SLOW = Rate(0.01, 10)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = redis_client(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
async def nobody() -> AsyncIterator[redis.asyncio.Redis]:
    """A Redis that is not there."""
    client = redis_client("redis://127.0.0.1:1/0")
    yield client
    await client.aclose()


async def count(rates: Rates, key: str, rate: Rate, most: int = 100) -> int:
    """How many are let through."""
    for number in range(most):
        if await rates.take(key, rate) > 0:
            return number
    return most


async def test_gateways_count_together(client: redis.asyncio.Redis) -> None:
    one, other, key = Rates(client), Rates(client), secrets.token_hex()
    for _ in range(5):
        assert (await one.take(key, SLOW), await other.take(key, SLOW)) == (0.0, 0.0)
    wait = await one.take(key, SLOW)
    assert 50 < wait <= 100  # one in a hundred seconds
    assert await other.take(key, SLOW) > 0
    assert await other.take(key + "x", SLOW) == 0.0


async def test_a_handful_at_a_time_is_still_no_more_than_all(client: redis.asyncio.Redis) -> None:
    rate = Rate(0.01, 200)
    assert rate.handful == 10
    some, key = [Rates(client), Rates(client)], secrets.token_hex()
    found = await asyncio.gather(*(count(one, key, rate, 500) for one in some))
    assert sum(found) == 200
    assert await client.ttl(rates.PREFIX + key) > 0


async def test_what_is_held_and_not_used_is_not_used_later(client: redis.asyncio.Redis) -> None:
    now = 0.0
    counting = Rates(client, clock=lambda: now)
    rate, key = Rate(0.01, 200), secrets.token_hex()
    assert await counting.take(key, rate) == 0.0
    now = rates.HELD_SECONDS + 1
    assert await count(counting, key, rate, 500) == 190  # the other nine of the first handful are gone


async def test_without_redis_each_gateway_counts_for_itself(nobody: redis.asyncio.Redis) -> None:
    now = 0.0
    counting = Rates(nobody, clock=lambda: now)
    assert await count(counting, "a", Rate(1.0, 5)) == 5
    assert await count(counting, "b", Rate(1.0, 5)) == 5
    now = 3.0
    assert await count(counting, "a", Rate(1.0, 5)) == 3


async def test_no_limit_is_none(nobody: redis.asyncio.Redis) -> None:
    assert await count(Rates(nobody), "a", Rate.of(0.0)) == 100


class At:
    """The gateway, from an address of one's own (all of 127.0.0.0/8 is this machine)."""

    def __init__(self, gateway: Gateway) -> None:
        address = f"127.{secrets.randbelow(250) + 2}.{secrets.randbelow(256)}.{secrets.randbelow(250) + 1}"
        transport = httpx2.AsyncHTTPTransport(local_address=address)
        base = f"http://127.0.0.1:{gateway.port}"
        self.client = httpx2.AsyncClient(base_url=base, transport=transport, timeout=20, trust_env=False)

    async def get(self, path: str, token: str | None = None) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return await self.client.get(path, headers=headers)

    async def statuses(self, times: int, path: str, token: str | None = None) -> list[int]:
        return [(await self.get(path, token)).status_code for _ in range(times)]


@ONE_DATABASE
async def test_a_token_that_asks_too_often_waits_and_others_do_not(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet(registry_with(tmp_path), token_rate=0.01)
    async with gateway_to(fleet) as gateway:
        ada, bob = await caller(gateway, "ada", "owner"), await caller(gateway, "bob", "owner")
        for _ in range(2):  # the first tells that the token is good, and one may come at once
            await ada.get("/v1/groups")
        refused = await ada.ask("GET", "/v1/groups")
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 100
        assert refused.headers["content-type"] == "application/problem+json"
        await bob.get("/v1/groups")
        assert (await gateway.client.get("/healthz")).status_code == 200


@ONE_DATABASE
async def test_a_token_is_the_same_however_it_is_written(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet(registry_with(tmp_path), token_rate=0.01)
    async with gateway_to(fleet) as gateway:
        ada = await caller(gateway, "ada", "owner")
        await ada.get("/v1/groups")
        await ada.get("/v1/groups")
        for written in ("Bearer {}", "Bearer  {}", "Bearer       {}", "bearer {}", "BEARER {}"):
            headers = {"Authorization": written.format(ada.token)}
            assert (await gateway.client.get("/v1/groups", headers=headers)).status_code == 429, written


@ONE_DATABASE
async def test_guesses_behind_a_proxy_lock_nobody_out(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet(registry_with(tmp_path), address_rate=0.01)
    async with gateway_to(fleet) as gateway:
        ada, bob = await caller(gateway, "ada", "owner"), await sign_in_user(gateway, "bob")
        proxy, elsewhere = At(gateway), At(gateway)
        async with proxy.client, elsewhere.client:
            wrong = [(await proxy.get("/v1/groups", new_token())).status_code for _ in range(5)]
            assert wrong == [401, 429, 429, 429, 429]
            # Neither was seen here before.
            assert await proxy.statuses(2, "/v1/groups", ada.token) == [200, 200]
            for secret, status in ((bob.secret, 200), ("x", 429)):
                page = await proxy.client.get("/console/sessions", headers={"Cookie": f"{COOKIE}={secret}"})
                assert page.status_code == status
            assert await elsewhere.statuses(1, "/v1/groups", new_token()) == [401]


@ONE_DATABASE
async def test_wrong_tokens_do_not_close_the_sign_in_page(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet(registry_with(tmp_path))
    async with gateway_to(fleet) as gateway:
        ada, proxy = await caller(gateway, "ada", "owner"), At(gateway)
        async with proxy.client:
            for _ in range(25):
                assert (await proxy.get("/v1/groups", new_token())).status_code == 401
                assert (await proxy.get(f"/console/enter?code={new_token()}")).status_code == 200
            ours = {"Origin": f"http://127.0.0.1:{gateway.port}"}
            for token, status in (("x", 403), (ada.token, 303)):
                form = await proxy.client.post("/console/sign-in", data={"token": token}, headers=ours)
                assert form.status_code == status
            link = await proxy.client.post("/console/enter", data={"code": "x"}, headers=ours)
            assert link.status_code == 403


async def test_while_the_database_is_away_nobody_is_looked_up(nobody: redis.asyncio.Redis) -> None:
    async def away(_: rates.Credential) -> bool:
        raise DatabaseDownError("away")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("in")(scope, receive, send)

    limit = rates.RateLimit(app, Rates(nobody), away, token_rate=1.0, address_rate=0.01)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(limit), base_url="http://here") as asking:
        said = {"Authorization": "Bearer x"}
        assert [(await asking.get("/v1/groups", headers=said)).status_code for _ in range(2)] == [200, 429]


@ONE_DATABASE
async def test_who_says_nothing_is_counted_by_address(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet(registry_with(tmp_path), address_rate=0.01)
    async with gateway_to(fleet) as gateway:
        eve, other = At(gateway), At(gateway)
        async with eve.client, other.client:
            assert await eve.statuses(2, "/openapi.json") == [200, 429]
            assert await other.statuses(1, "/openapi.json") == [200]
            # Signed by platforms, and theirs to repeat.
            assert (await eve.client.post("/channels/platform")).status_code == 401
            assert await eve.statuses(1, "/healthz") == [200]
