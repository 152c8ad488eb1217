"""Who may use whose tools over MCP: the token decides, nothing else, and only while the turn lasts."""

import asyncio
import json
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from adapters.contracts import ToolOutcome, ToolSpec
from adapters.policy import McpServerPolicy
from adapters.sandbox.bubblewrap import Bubblewrap
from adapters.sandbox.none import Unconfined
from adapters.tools.mcp_client import external_tools
from tests.support import mcp_stand_in
from tests.support.servers import private_folder
from workers.tool_binding import MAX_BODY, TURN_OVER
from workers.tool_server import ToolServer

pytestmark = pytest.mark.spec("T1", "T7")

JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


class Box:
    """A tool box that says whose it is."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.specs = (ToolSpec("whose", f"Of {owner}.", {"type": "object"}),)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.reached = asyncio.Event()

    async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        self.calls.append((name, dict(arguments)))
        if name == "wait":
            self.reached.set()
            await asyncio.Event().wait()
        if name != "whose":
            return ToolOutcome(f"there is no tool {name!r} here", ok=False)
        return ToolOutcome(f"{self.owner}, {call_id}")


@pytest.fixture
async def server() -> AsyncIterator[ToolServer]:
    server = ToolServer()
    yield server
    await server.close()


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, headers=JSON) as http:
        yield http


def suppress_disconnect() -> suppress:
    """Whoever is refused before all is said may find the line cut while still talking."""
    return suppress(httpx2.WriteError, httpx2.ReadError, httpx2.RemoteProtocolError)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def calling(name: str = "whose", arguments: Any = None, **params: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments or {}} | params,
    }


def said(response: httpx2.Response) -> str:
    assert response.status_code == 200, response.text
    [block] = response.json()["result"]["content"]
    return str(block["text"])


def assert_refused(response: httpx2.Response, token: str = "") -> None:
    assert response.status_code == 401
    assert set(response.json()) == {"error"}
    assert not token or token not in response.text
    assert response.headers["www-authenticate"] == "Bearer"


async def test_a_token_reaches_its_own_tools_and_no_others(server: ToolServer, http: httpx2.AsyncClient) -> None:
    ours, theirs = Box("ours"), Box("theirs")
    async with server.bind(ours) as a, server.bind(theirs) as b:
        assert a.url == b.url
        assert a.token != b.token
        for _ in range(3):
            assert said(await http.post(a.url, json=calling(), headers=bearer(a.token))).startswith("ours, ")
        assert len(ours.calls) == 3
        assert theirs.calls == []
        together = [http.post(a.url, json=calling(), headers=bearer(t)) for t in [a.token, b.token] * 10]
        answers = [said(response).split(",")[0] for response in await asyncio.gather(*together)]
        assert answers == ["ours", "theirs"] * 10


async def test_claims_of_another_identity_are_not_heard(server: ToolServer, http: httpx2.AsyncClient) -> None:
    """In headers, in `_meta`, in arguments, in ids: the last are handed on as the data they are."""
    ours, theirs = Box("ours"), Box("theirs")
    async with server.bind(ours) as a, server.bind(theirs) as b:
        claims = {"session_id": "theirs", "token": b.token, "call_id": "mcp_99"}
        body = calling(arguments=claims, _meta={"session_id": "theirs", "token": b.token, "progressToken": 1})
        headers = bearer(a.token) | {
            "mcp-session-id": b.token,
            "x-session-id": "theirs",
            "cookie": f"token={b.token}",
            "x-forwarded-for": "10.0.0.1",
            "last-event-id": "1",
        }
        response = await http.post(
            f"{a.url}?token={b.token}&session=theirs", json=body | {"id": "mcp_7"}, headers=headers
        )
        assert said(response) == "ours, mcp_1"
        assert ours.calls == [("whose", claims)]
        assert theirs.calls == []


NO_TOKENS: list[dict[str, str]] = [
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer wrong"},
    {"Authorization": "Bearer {token}x"},
    {"Authorization": "Bearer {token} {token}"},
    {"Authorization": "Basic {token}"},
    {"Authorization": "{token}"},
    {"X-Authorization": "Bearer {token}"},
    {"Cookie": "token={token}"},
    {"Authorization": "Bearer \xff\xfe"},
    {"Authorization": "Bearer " + "x" * 30_000},
]


async def test_without_the_token_nothing(server: ToolServer, http: httpx2.AsyncClient) -> None:
    box = Box("ours")
    async with server.bind(box) as binding:
        for headers in NO_TOKENS:
            raw = [
                (name.encode(), text.format(token=binding.token).encode("latin-1")) for name, text in headers.items()
            ]
            for method, path in (("POST", ""), ("GET", ""), ("DELETE", ""), ("POST", "/elsewhere")):
                response = await http.request(method, binding.url + path, json=calling(), headers=raw)
                assert_refused(response, binding.token)
    assert box.calls == []


async def test_a_token_in_the_address_is_not_accepted(server: ToolServer, http: httpx2.AsyncClient) -> None:
    box = Box("ours")
    async with server.bind(box) as binding:
        for query in (
            f"token={binding.token}",
            f"access_token={binding.token}",
            f"authorization=Bearer {binding.token}",
        ):
            assert_refused(await http.post(f"{binding.url}?{query}", json=calling()), binding.token)
        address = binding.url.replace("http://", f"http://{binding.token}@")
        assert_refused(await http.post(address, json=calling()), binding.token)
    assert box.calls == []


async def test_two_tokens_at_once_are_none(server: ToolServer, http: httpx2.AsyncClient) -> None:
    async with server.bind(Box("ours")) as a, server.bind(Box("theirs")) as b:
        headers = [("Authorization", f"Bearer {a.token}"), ("Authorization", f"Bearer {b.token}")]
        assert_refused(await http.post(a.url, json=calling(), headers=headers))


async def test_a_token_dies_with_its_turn(server: ToolServer, http: httpx2.AsyncClient) -> None:
    box = Box("ours")
    async with server.bind(Box("another")):
        async with server.bind(box) as binding:
            assert said(await http.post(binding.url, json=calling(), headers=bearer(binding.token)))
        assert_refused(await http.post(binding.url, json=calling(), headers=bearer(binding.token)), binding.token)
    assert len(box.calls) == 1


async def test_a_token_dies_in_time(server: ToolServer, http: httpx2.AsyncClient) -> None:
    async with server.bind(Box("ours"), seconds=0.0) as binding:
        assert_refused(await http.post(binding.url, json=calling(), headers=bearer(binding.token)))
    async with server.bind(Box("ours"), seconds=3600.0) as binding:
        assert said(await http.post(binding.url, json=calling(), headers=bearer(binding.token)))


async def test_what_the_turn_leaves_unfinished_is_ended(server: ToolServer, http: httpx2.AsyncClient) -> None:
    """A call under way, and a request whose body is still coming."""
    box = Box("ours")
    half = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        whole = json.dumps(calling()).encode()
        yield whole[:10]
        half.set()
        await over.wait()
        yield whole[10:]

    over = asyncio.Event()
    async with server.bind(box) as binding:
        late = asyncio.create_task(http.post(binding.url, content=slowly(), headers=bearer(binding.token)))
        await half.wait()
        under_way = asyncio.create_task(http.post(binding.url, json=calling("wait"), headers=bearer(binding.token)))
        await box.reached.wait()
    over.set()
    assert said(await under_way) == TURN_OVER
    with suppress_disconnect():
        assert_refused(await late)
    assert [name for name, _ in box.calls] == ["wait"]


async def test_other_hosts_and_pages_of_a_browser_are_turned_away(server: ToolServer, http: httpx2.AsyncClient) -> None:
    box = Box("ours")
    async with server.bind(box) as binding:
        port = httpx2.URL(binding.url).port
        for host in (
            "evil.example",
            f"evil.example:{port}",
            f"127.0.0.1.evil.example:{port}",
            "127.0.0.1",
        ):
            response = await http.post(binding.url, json=calling(), headers=bearer(binding.token) | {"Host": host})
            assert response.status_code == 421, host
        for origin in ("http://evil.example", f"http://127.0.0.1:{port}", "http://localhost", "null"):
            headers = bearer(binding.token) | {"Origin": origin}
            assert (await http.post(binding.url, json=calling(), headers=headers)).status_code == 403, origin
        preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        response = await http.options(binding.url, headers=preflight)
        assert response.status_code == 401
        assert "access-control-allow-origin" not in response.headers
        headers = bearer(binding.token) | {"Host": f"localhost:{port}"}
        assert said(await http.post(binding.url, json=calling(), headers=headers))
    assert len(box.calls) == 1


async def test_bodies_have_an_end(server: ToolServer, http: httpx2.AsyncClient) -> None:
    box = Box("ours")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY // 65_536 + 2):
            yield b"x" * 65_536

    async with server.bind(box) as binding:
        for content in (b"x" * (MAX_BODY + 1), endless()):
            with suppress_disconnect():
                response = await http.post(binding.url, content=content, headers=bearer(binding.token))
                assert response.status_code == 413
        assert said(await http.post(binding.url, json=calling(), headers=bearer(binding.token)))
    assert len(box.calls) == 1


NO_REQUESTS = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"7",
    b'"x"',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"jsonrpc":"2.0","id":1}',
    b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/destroy"}',
    b'{"jsonrpc":"2.0","id":1,"method":"__class__"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whose","arguments":[]}}',
    b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}',
    b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]',
    b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"tools/list"}',
]


@pytest.mark.parametrize("version", [None, "2025-06-18", "2026-07-28", "1999-01-01", "\xff"])
async def test_what_is_no_request_is_an_error_and_no_more(
    server: ToolServer, http: httpx2.AsyncClient, version: str | None
) -> None:
    given: dict[str, Any] = {} if version is None else {"mcp-protocol-version": version.encode("latin-1")}
    for content in NO_REQUESTS:
        box = Box("ours")
        async with server.bind(box) as binding:
            response = await http.post(binding.url, content=content, headers=bearer(binding.token) | given)
            assert response.status_code < 500, content
            # One whose id is none of the protocol's is taken for a notification, to which there is no answer.
            assert response.status_code == 202 or "error" in response.json(), content
            assert "Traceback" not in response.text, content
            assert said(await http.post(binding.url, json=calling(), headers=bearer(binding.token)))
        assert len(box.calls) == 1, content


async def test_a_tool_that_is_not_offered_is_for_the_tool_box_to_refuse(
    server: ToolServer, http: httpx2.AsyncClient
) -> None:
    async with server.bind(Box("ours")) as binding:
        response = await http.post(binding.url, json=calling("shell"), headers=bearer(binding.token))
        assert said(response) == "there is no tool 'shell' here"
        assert response.json()["result"]["isError"] is True


async def test_it_listens_on_this_machine_only_and_says_nothing_of_tokens(
    server: ToolServer, http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        async with server.bind(Box("ours")) as binding:
            assert httpx2.URL(binding.url).host == "127.0.0.1"
            await http.post(binding.url, json=calling(), headers=bearer(binding.token))
            await http.post(f"{binding.url}?token={binding.token}", json=calling())
            await http.post(binding.url, json=calling(), headers=bearer(binding.token) | {"Host": "evil.example"})
        await http.post(binding.url, json=calling(), headers=bearer(binding.token))
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx2", "httpcore2"))]
    shown = "\n".join([*ours, str(logs), *capfd.readouterr(), repr(binding), str(server)])
    assert binding.token not in shown


@asynccontextmanager
async def started(tmp_path: Path, environ: Mapping[str, str], **env: str) -> AsyncIterator[Any]:
    shutil.copy(mcp_stand_in.__file__, tmp_path / "server.py")
    policy = McpServerPolicy(command=sys.executable, args=(str(tmp_path / "server.py"), "good"), env=env)
    async with external_tools({"x": policy}, Unconfined(), tmp_path, environ) as offered:
        yield offered


async def test_an_external_server_sees_none_of_the_workers_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the worker's own")
    monkeypatch.setenv("DATABASE_URL", "postgresql://of-the-fleet")
    monkeypatch.setenv("LONGSHORE_SECRET_OTHER", "of another server")
    monkeypatch.setenv("LONGSHORE_SECRET_MINE", "its own secret")
    async with started(tmp_path, os.environ, KEY="$LONGSHORE_SECRET_MINE", PLAIN="x") as offered:
        tool = offered.tools["x__env"]
        env = await tool.handler(tool.arguments(), None)
    # Its own secret is not shown to the agent either, though the server has it.
    seen = json.loads(env)
    assert set(seen) - {"PATH", "HOME", "LANG", "PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"} == {"KEY", "PLAIN"}
    assert seen["KEY"] == "[redacted]"
    assert "of-the-fleet" not in env
    assert "the worker's own" not in env


@pytest.mark.parametrize("value", ["$ANTHROPIC_API_KEY", "$PATH", "$", "$LONGSHORE_SECRET_", "${LONGSHORE_SECRET_X}"])
def test_no_other_variable_can_be_asked_for(value: str) -> None:
    with pytest.raises(ValueError, match="only variables named LONGSHORE_SECRET"):
        McpServerPolicy(command="x", env={"KEY": value})


@pytest.mark.parametrize("line", ["npx -y server", "uvx server", "docker run server:latest", "sh -c server"])
async def test_an_unpinned_command_is_not_started(tmp_path: Path, line: str) -> None:
    command, *args = line.split()
    servers = {"x": McpServerPolicy(command=command, args=tuple(args))}

    class Never(Unconfined):
        async def start(self, command: Any) -> Any:
            raise AssertionError("it was started")

    async with external_tools(servers, Never(), tmp_path, {}) as offered:
        assert offered.tools == {}
        assert "policy.mcp_servers.x" in offered.problems["x"]


@pytest.mark.spec("T7", "F9")
async def test_what_an_agent_plants_in_its_folder_is_not_what_is_started() -> None:
    """It would run with the server's secrets. Interpreters and launchers look around where they start."""
    root = private_folder()
    try:
        workspace = root / "workspace"
        workspace.mkdir()
        (workspace / "planted.py").write_text("import sys; sys.exit('I was started')")
        policy = McpServerPolicy(command="python3", args=("-m", "planted"), env={"KEY": "$LONGSHORE_SECRET_X"})
        environ = {"LONGSHORE_SECRET_X": "not-for-agents"}
        async with external_tools({"x": policy}, Bubblewrap(), workspace, environ) as offered:
            assert "No module named planted" in offered.problems["x"]
    finally:
        shutil.rmtree(root)
