"""A web server on loopback that plays public hosts and misbehaves as its script says.

It writes raw bytes: a proper HTTP library would not send what hostile servers send. `seen` holds the head of each
request; one that must not be asked (a stand-in for a metadata service) has seen nothing in the end."""

import asyncio
import gzip
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from adapters.web import Web

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class HostileWeb:
    """`answers` are by the path of the request; other paths get a plain 200 that says `secret`."""

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        self.answers = dict(answers or {})
        self.seen: list[str] = []
        self.written = 0  # bytes of endless bodies that were taken off our hands
        self.keeps_connections = False  # even when it is asked to close them
        self.port = 0
        self._server: asyncio.Server | None = None
        self._asked: set[asyncio.Task[None]] = set()

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._asked:
            task.cancel()
        await asyncio.gather(*self._asked, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def paths(self) -> list[str]:
        return [head.split(" ", 2)[1] for head in self.seen]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._asked.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                    self.seen.append(head)
                    path = head.split(" ", 2)[1]
                    await self.answers.get(path, page(b"secret"))(writer)
                    await writer.drain()
                    if not self.keeps_connections:
                        break
        finally:
            self._asked.discard(task)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def endless(self, head: bytes, chunk: bytes) -> Answer:
        async def answer(writer: asyncio.StreamWriter) -> None:
            writer.write(head)
            while True:
                writer.write(chunk)
                await writer.drain()
                self.written += len(chunk)

        return answer


@asynccontextmanager
async def hostile_web(
    answers: Mapping[str, Answer] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[HostileWeb]:
    server = HostileWeb(answers)
    await server.start(tls)
    try:
        yield server
    finally:
        await server.stop()


def raw(data: bytes) -> Answer:
    """These bytes and the end of the connection."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return answer


def page(body: bytes, *headers: str, status: str = "200 OK", content_type: str | None = "text/plain") -> Answer:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    return raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)


def redirect(location: str, status: str = "302 Found") -> Answer:
    return page(b"moved", f"Location: {location}", status=status)


def slow_head() -> Answer:
    """A header that goes on letter by letter and never ends."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.01)

    return answer


def huge_head() -> Answer:
    return raw(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 1000) for i in range(2000)) + b"\r\nbody")


def bomb(encoding: str = "gzip", mebibytes: int = 10 * 1024) -> Answer:
    """A body that is small on the wire (a thousandth) and of this size when it is decompressed."""
    bits = zlib.MAX_WBITS | (16 if encoding == "gzip" else 0)

    async def answer(writer: asyncio.StreamWriter) -> None:
        packer = zlib.compressobj(9, wbits=bits)
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Type: text/plain\r\n\r\n".encode())
        zeros = bytes(1024 * 1024)
        # After a full flush nothing refers back: one packed mebibyte stands for all that follow.
        first, again = (packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
        writer.write(first)
        for _ in range(mebibytes - 1):
            writer.write(again)
            await writer.drain()

    return answer


def packed(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


PUBLIC: Final = "93.184.215.14"  # the address that the site plays; nothing is ever sent there


@dataclass
class Internet:
    """What an agent's fetch meets: a public site, and a victim on every other address.

    A check that lets a private address through therefore does not end in a refused connection, which would look like
    success, but in the victim's secret."""

    site: HostileWeb
    victim: HostileWeb
    names: dict[str, list[list[str]]] = field(default_factory=dict)  # answers in turn; the last one stays
    resolved: list[str] = field(default_factory=list)
    dialled: list[tuple[str, int]] = field(default_factory=list)

    def web(self, tls: ssl.SSLContext | None = None, private_hosts: Collection[str] = ()) -> Web:
        return Web(private_hosts, resolve=self.resolve, connect_to=self.connect_to, tls=tls)

    async def resolve(self, name: str, port: int) -> list[tuple[int, str]]:
        self.resolved.append(name)
        answers = self.names.get(name) or [_as_the_system_would(name)]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET6 if ":" in address else socket.AF_INET, address) for address in found]

    def connect_to(self, address: str, port: int) -> tuple[str, int]:
        self.dialled.append((address, port))
        return "127.0.0.1", (self.site if address == PUBLIC else self.victim).port


def _as_the_system_would(name: str) -> list[str]:
    """The system's resolver takes 127.1 and the like for addresses."""
    try:
        return ["127.0.0.1" if name == "localhost" else socket.inet_ntoa(socket.inet_aton(name))]
    except OSError:
        return [PUBLIC] if name.endswith("public.example") else []


@asynccontextmanager
async def internet(tls: ssl.SSLContext | None = None) -> AsyncIterator[Internet]:
    async with hostile_web(tls=tls) as site, hostile_web() as victim:
        yield Internet(site, victim)
