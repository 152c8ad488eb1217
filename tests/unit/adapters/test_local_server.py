"""The doors of programs: folders with a socket, also after somebody was killed."""

import asyncio
import os
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from starlette.responses import PlainTextResponse

from adapters import local_server
from adapters.local_server import HOST, LocalServer, listen_on


@pytest.mark.spec("P12")
async def test_what_killed_processes_left_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    alive = LocalServer(PlainTextResponse("yes"))
    await alive.open()
    for name in ("longshore-door-dead", "longshore-door-unfinished", "something-else"):
        (tmp_path / name).mkdir()
    for folder in ("longshore-door-dead", "something-else"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / folder / "http.sock"))
    late = LocalServer(PlainTextResponse("yes"))
    await late.open()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        alive.socket_path.parent.name,
        late.socket_path.parent.name,
        "longshore-door-unfinished",
        "something-else",
    }
    await alive.close()
    await late.close()
    assert {path.name for path in tmp_path.iterdir()} == {"longshore-door-unfinished", "something-else"}


@pytest.mark.spec("G2")
def test_pieces_of_an_answer_do_not_wait_for_each_other() -> None:
    """TCP_NODELAY: else each request of a connection takes 40 ms longer."""
    with listen_on(HOST, 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


REQUEST = b"GET / HTTP/1.1\r\nHost: door\r\n\r\n"


@pytest.mark.spec("P12", "F9")
@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTT", b"POST / HTTP/1.1\r\nHost: door\r\nContent-Length: 9\r\n\r\nx", REQUEST, REQUEST * 50_000],
    ids=["nothing", "half a head", "half a body", "all it wanted", "more than it reads the answers to"],
)
async def test_whoever_holds_connections_shuts_nobody_out(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """All programs of a process come by the same door, and whoever has no token can come as well."""
    monkeypatch.setattr(local_server, "CONNECTIONS", 10)
    server = LocalServer(PlainTextResponse("yes"))
    await server.open()
    address = str(server.socket_path)
    transport = httpx2.AsyncHTTPTransport(uds=address)
    files = len(os.listdir("/proc/self/fd"))
    with ExitStack() as held:
        for _ in range(40):
            visitor = held.enter_context(socket.socket(socket.AF_UNIX))
            visitor.setblocking(False)
            await asyncio.get_running_loop().sock_connect(visitor, address)
            if said:
                visitor.send(said)
        async with httpx2.AsyncClient(transport=transport, base_url="http://door", trust_env=False) as http:
            for _ in range(3):
                response = await http.get("/")
                assert (response.status_code, response.text) == (200, "yes")
            assert len(os.listdir("/proc/self/fd")) <= files + 40 + 1 + 10, "files of the process are not without end"
    await server.close()


@pytest.mark.spec("P12", "F9")
async def test_whoever_is_being_answered_is_not_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server, "CONNECTIONS", 10)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: object, receive: object, send: object) -> None:
        asked.set()
        await go_on.wait()
        await PlainTextResponse("at last")(scope, receive, send)  # type: ignore[arg-type]

    server = LocalServer(slow)
    await server.open()
    address = str(server.socket_path)
    transport = httpx2.AsyncHTTPTransport(uds=address)
    async with httpx2.AsyncClient(transport=transport, base_url="http://door", trust_env=False) as http:
        waiting = asyncio.create_task(http.get("/"))
        await asked.wait()
        with ExitStack() as held:
            for _ in range(40):
                visitor = held.enter_context(socket.socket(socket.AF_UNIX))
                visitor.setblocking(False)
                await asyncio.get_running_loop().sock_connect(visitor, address)
                await asyncio.sleep(0)
            go_on.set()
            assert (await waiting).text == "at last"
    await server.close()
