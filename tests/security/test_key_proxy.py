"""The way of CLI agents to their model: the key stays on this side, and opens nothing but the model."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from aiohttp import web

from adapters.errors import ErrorClass, ProviderError
from adapters.providers.catalog import Tokens
from adapters.providers.cli.key_proxy import AT_ONCE, KeyProxy, Pass
from adapters.providers.cli.usage_seen import MODELS, Wire, used, used_by_model
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


PATHS: dict[Wire, str] = {
    "anthropic": "/v1/messages",
    "openai": "/v1/responses",
    "gemini": "/v1beta/models/g-2:generateContent",
}


ERRANDS: list[tuple[Wire, dict[str, object], str]] = [
    ("anthropic", {"mcp_servers": [{"type": "url", "url": "https://elsewhere.example"}]}, "mcp_servers"),
    ("anthropic", {"tools": [{"name": "x"}, {"type": "web_search_20250305", "name": "s"}]}, "web_search_20250305"),
    ("anthropic", {"tools": [{"type": "web_fetch_20250910"}]}, "web_fetch_20250910"),
    ("anthropic", {"tools": [{"type": "code_execution_20250825"}]}, "code_execution_20250825"),
    ("anthropic", {"tools": [{"type": "mcp_toolset"}]}, "mcp_toolset"),
    ("openai", {"tools": [{"type": "mcp", "server_url": "https://elsewhere.example"}]}, "mcp"),
    ("openai", {"tools": [{"type": "web_search_preview"}]}, "web_search_preview"),
    ("openai", {"tools": [{"type": "computer_use_preview"}]}, "computer_use_preview"),
    ("openai", {"tools": [{"type": "code_interpreter"}]}, "code_interpreter"),
    ("openai", {"tools": [{"type": "file_search"}]}, "file_search"),
    ("openai", {"background": True}, "background"),
    ("openai", {"web_search_options": {}}, "web_search_options"),
    ("gemini", {"tools": [{"functionDeclarations": []}, {"googleSearch": {}}]}, "googleSearch"),
    ("gemini", {"tools": [{"google_search_retrieval": {}}]}, "google_search_retrieval"),
    ("gemini", {"tools": {"url_context": {}}}, "url_context"),
    ("gemini", {"tools": [{"codeExecution": {}}]}, "codeExecution"),
]
HARMLESS: list[tuple[Wire, dict[str, object]]] = [
    ("anthropic", {"mcp_servers": [], "tools": [{"type": "bash_20250124"}, {"name": "web_search"}, {"type": 7}, 7]}),
    ("openai", {"background": False, "tools": [{"type": "function", "name": "mcp"}, {"type": "custom"}]}),
    ("openai", {"tools": "mcp", "input": [{"type": "web_search"}]}),
    ("gemini", {"tools": [{"functionDeclarations": [{"name": "googleSearch"}]}]}),
]
UNREADABLE = [
    *(b"no JSON", b"[1]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"a": 1} {}', b'{"a": "' + b"x" * (1 << 20)),
    b'{"background": true, "background": false}',
]


@pytest.mark.parametrize("wire", PATHS)
async def test_the_vendor_is_not_sent_elsewhere_for_an_agent(vendor: tuple[Vendor, str], wire: Wire) -> None:
    server, url = vendor
    async with admitted(url, wire) as (given, http):
        headers = {"x-api-key": given.token}
        for body, named in ((body, named) for one, body, named in ERRANDS if one == wire):
            # However it is written: escapes are the same key.
            for text in (json.dumps(body), json.dumps(body).replace("a", "\\u0061")):
                response = await http.post(PATHS[wire], headers=headers, content=text)
                assert response.status_code == 403, response.text
                assert f"({named})" in response.json()["error"]["message"]
        assert given.trouble is None
        assert server.seen == []
        for body in (body for one, body in HARMLESS if one == wire):
            assert (await http.post(PATHS[wire], headers=headers, json=body)).status_code == 200, body


async def test_what_cannot_be_looked_into_does_not_pass(vendor: tuple[Vendor, str]) -> None:
    """Else it would be for the vendor to say which of two words counts."""
    server, url = vendor
    async with admitted(url, "openai") as (given, http):
        for body in UNREADABLE:
            response = await http.post("/v1/responses", headers={"x-api-key": given.token}, content=body)
            assert response.status_code == 400, body[:50]
            assert "JSON" in response.text
        many = b'{"a": [' + b"[]," * 5_000_000 + b"[]]}"
        response = await http.post("/v1/responses", headers={"x-api-key": given.token}, content=many)
        assert response.status_code == 413
    assert server.seen == []


async def test_what_was_used_is_summed_up_for_each_model_and_nothing_else_is_kept(vendor: tuple[Vendor, str]) -> None:
    server, url = vendor
    counts = {"input_tokens": 10, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}}
    server.answer = None
    async with admitted(url, "openai") as (given, http):

        async def ask(model: object) -> None:
            server.answer = web.json_response({"filler": "x" * 9000, "usage": counts})
            asked = {"model": model}
            assert (await http.post("/v1/responses", headers={"x-api-key": given.token}, json=asked)).status_code == 200

        for model in ("one", "two", "one", None, ["one"]):
            await ask(model)
        assert used_by_model("openai", given.answers) == {
            "one": Tokens(12, 6, 8),
            "two": Tokens(6, 3, 4),
            "": Tokens(12, 6, 8),
        }
        for number in range(3 * MODELS):
            await ask("m" * 5000 + str(number) if number == 0 else f"model-{number}")
        assert used("openai", given.answers) == Tokens(6 * (5 + 3 * MODELS), 3 * (5 + 3 * MODELS), 4 * (5 + 3 * MODELS))
        assert len(given.answers) <= MODELS + 1 + AT_ONCE
        assert sum(len(one.first) + len(one.last) + len(one.model) for one in given.answers) < 10_000


async def test_an_answer_that_breaks_off_is_counted_as_far_as_it_came() -> None:
    begun = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"message":{"usage":{"input_tokens":9,"output_tokens":1}}}\n\n')
        begun.set()
        await asyncio.Event().wait()
        return response

    app, port = web.Application(), free_port()
    app.router.add_route("*", "/{path:.*}", stream)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    async with admitted(f"http://127.0.0.1:{port}") as (given, http):
        asking = asyncio.create_task(
            http.post("/v1/messages", headers={"x-api-key": given.token}, json={"model": "one"})
        )
        await begun.wait()
        while not used("anthropic", given.answers).input:
            await asyncio.sleep(0.01)
        asking.cancel()
        while given.under_way:
            await asyncio.sleep(0.01)
        assert used_by_model("anthropic", given.answers) == {"one": Tokens(9, 1)}
        assert [one.first for one in given.answers] == [b""]
    await runner.cleanup()
