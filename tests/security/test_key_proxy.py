"""The way of CLI agents to their model: the key stays on this side, and opens nothing but the model."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from aiohttp import web

from adapters.errors import ErrorClass, ProviderError
from adapters.providers.cli.key_proxy import KeyProxy, Pass, Wire
from adapters.providers.credentials import Credentials
from tests.support.servers import free_port

pytestmark = pytest.mark.spec("F9")
KEY = "sk-the-real-key-0123456789"


class Vendor:
    """A server that tells what it was asked, or answers as it is told to."""

    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.answer: web.Response | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.seen.append(request)
        return self.answer or web.json_response({"ok": True})


@pytest.fixture
async def vendor() -> AsyncIterator[tuple[Vendor, str]]:
    made, port = Vendor(), free_port()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield made, f"http://127.0.0.1:{port}"
    await runner.cleanup()


@asynccontextmanager
async def admitted(
    url: str, wire: Wire = "anthropic", *, final: bool = False
) -> AsyncIterator[tuple[Pass, httpx2.AsyncClient]]:
    proxy = KeyProxy(wire, lambda: Credentials("THE_KEY", url, KEY), final=final)
    try:
        async with proxy.admit() as given:
            transport = httpx2.AsyncHTTPTransport(uds=str(given.socket))
            async with httpx2.AsyncClient(transport=transport, base_url="http://model", trust_env=False) as http:
                yield given, http
    finally:
        await proxy.close()


@pytest.mark.parametrize(
    ("wire", "base", "path", "asked", "header"),
    [
        ("anthropic", "", "/v1/messages?beta=true", "/v1/messages?beta=true", ("x-api-key", KEY)),
        ("openai", "/v1", "/v1/responses", "/v1/responses", ("authorization", f"Bearer {KEY}")),
        (
            "gemini",
            "",
            "/v1beta/models/g-2:generateContent?key=mine",
            "/v1beta/models/g-2:generateContent",
            ("x-goog-api-key", KEY),
        ),
    ],
)
async def test_the_key_is_added_and_the_token_taken_away(
    vendor: tuple[Vendor, str], wire: Wire, base: str, path: str, asked: str, header: tuple[str, str]
) -> None:
    server, url = vendor
    async with admitted(url + base, wire) as (given, http):
        sent = {"x-api-key": given.token, "authorization": f"Bearer {given.token}", "x-goog-api-key": given.token}
        response = await http.post(path, headers={**sent, "anthropic-beta": "x", "cookie": "c=1"}, json={"a": 1})
    assert response.json() == {"ok": True}
    [seen] = server.seen
    assert str(seen.rel_url) == asked
    assert seen.headers[header[0]] == header[1]
    assert given.token not in str(dict(seen.headers)) + str(seen.rel_url)
    assert seen.headers["anthropic-beta"] == "x"
    assert "cookie" not in seen.headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/files"),
        ("POST", "/v1/messages/batches"),
        ("DELETE", "/v1/models/x"),
        ("GET", "/v1/models/../files"),
        ("GET", "/v1/models/.."),
        ("POST", "/v1/messages/"),
        ("POST", "//v1/messages"),
        ("GET", "/v1/organizations/users"),
        ("POST", "/v1/messages%2f..%2ffiles"),
    ],
)
async def test_nothing_else_of_the_api_is_open(vendor: tuple[Vendor, str], method: str, path: str) -> None:
    server, url = vendor
    async with admitted(url) as (given, http):
        request = http.build_request(method, "/", headers={"x-api-key": given.token})
        request.url = httpx2.URL("http://model", raw_path=path.encode())
        response = await http.send(request)
    assert response.status_code == 403, response.text
    assert response.json()["error"]["message"].startswith("longshore: agents may not ask for")
    assert server.seen == []


async def test_only_the_token_of_an_agent_that_runs_opens_it(vendor: tuple[Vendor, str]) -> None:
    server, url = vendor
    async with admitted(url) as (given, http):
        token = given.token
        for headers in ({}, {"x-api-key": "guess"}, {"x-api-key": KEY}, {"authorization": token[:-1]}):
            assert (await http.post("/v1/messages", headers=headers)).status_code == 401
    proxy = KeyProxy("anthropic", lambda: Credentials("THE_KEY", url, KEY))
    async with proxy.admit() as first:
        pass
    async with proxy.admit() as second:
        transport = httpx2.AsyncHTTPTransport(uds=str(second.socket))
        async with httpx2.AsyncClient(transport=transport, base_url="http://model", trust_env=False) as http:
            assert (await http.post("/v1/messages", headers={"x-api-key": first.token})).status_code == 401
    await proxy.close()
    assert server.seen == []


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500])
@pytest.mark.parametrize("final", [False, True])
async def test_a_vendor_that_repeats_the_key_does_not_tell_the_program(
    vendor: tuple[Vendor, str], status: int, final: bool
) -> None:
    server, url = vendor
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}."}})
    server.answer = web.Response(status=status, text=body, headers={"x-key": KEY, "retry-after": "7"})
    async with admitted(url, final=final) as (given, http):
        response = await http.post("/v1/messages", headers={"x-api-key": given.token})
        assert response.status_code == (400 if final else status)
        assert KEY not in response.text + str(response.headers)
        assert given.trouble is not None
        assert KEY not in str(given.trouble)


async def test_what_the_vendor_said_last_is_remembered(vendor: tuple[Vendor, str]) -> None:
    server, url = vendor
    async with admitted(url) as (given, http):
        server.answer = web.Response(status=429, text="{}", headers={"retry-after": "7"})
        await http.post("/v1/messages", headers={"x-api-key": given.token})
        assert given.trouble is not None
        assert (given.trouble.error_class, given.trouble.retry_after) == (ErrorClass.RATE_LIMIT, 7.0)
        server.answer = None
        await http.post("/v1/messages", headers={"x-api-key": given.token})
        assert given.trouble is None


async def test_a_redirect_is_not_followed_with_the_key(vendor: tuple[Vendor, str]) -> None:
    server, url = vendor
    server.answer = web.Response(status=302, headers={"location": f"{url}/elsewhere"})
    async with admitted(url) as (given, http):
        assert (await http.post("/v1/messages", headers={"x-api-key": given.token})).status_code == 302
    assert len(server.seen) == 1


async def test_without_a_key_nobody_is_admitted() -> None:
    proxy = KeyProxy("anthropic", lambda: Credentials("THE_KEY", "http://127.0.0.1:9", ""))
    with pytest.raises(ProviderError, match="there is no key: set THE_KEY"):
        async with proxy.admit():
            pass


async def test_a_server_that_is_not_there_is_told_without_its_address() -> None:
    async with admitted("http://user:password@127.0.0.1:9") as (given, http):
        response = await http.post("/v1/messages", headers={"x-api-key": given.token})
        assert response.status_code == 502
        assert "password" not in response.text
        assert given.trouble is not None
        assert given.trouble.error_class is ErrorClass.TRANSPORT
