"""The only way out of a sandbox: an HTTP proxy of the host, on a unix socket, that reaches named hosts and no other.

It resolves the name itself, takes public addresses only and connects to the address it has looked at, so neither a name
that points inwards nor one that changes its mind leads to what is near the host."""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from adapters.addresses import is_among, resolve_public
from adapters.errors import WebError

PORTS = (80, 443)
CONNECTIONS = 32
HEAD_BYTES = 1 << 16
HEAD_SECONDS = 30.0
CONNECT_SECONDS = 15.0
# A model may think for minutes before its next word.
IDLE_SECONDS = 600.0
CLOSE_SECONDS = 2.0
CHUNK = 1 << 16

# The addresses of a host that may be connected to, each with its family. Raises WebError with a reason.
Resolver = Callable[[str, int], Awaitable[Sequence[tuple[int, str]]]]


async def public_addresses(host: str, port: int) -> Sequence[tuple[int, str]]:
    return await resolve_public(host, port)


class RefusedError(Exception):
    """The proxy says no; the status and the reason are for the program inside."""

    def __init__(self, reason: str, status: str = "403 Forbidden") -> None:
        super().__init__(reason, status)
        self.reason = reason
        self.status = status


@asynccontextmanager
async def open_proxy(
    hosts: Collection[str], resolve: Resolver = public_addresses, uid: int | None = None
) -> AsyncIterator[Path]:
    """The path of its socket, which only one user may connect to: `uid`, or our own."""
    folder = Path(tempfile.mkdtemp(prefix="longshore-proxy-"))
    proxy = _Proxy(hosts, resolve)
    try:
        path = folder / "proxy.sock"
        server = await asyncio.start_unix_server(proxy.serve, path, limit=HEAD_BYTES)
        os.chmod(path, 0o600)
        if uid is not None:
            os.chown(path, uid, uid)
            os.chmod(folder, 0o711)  # noqa: S103 - to be entered, not to be looked into
        try:
            yield path
        finally:
            server.close()
            await proxy.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Proxy:
    def __init__(self, hosts: Collection[str], resolve: Resolver) -> None:
        self._hosts = frozenset(_plain(host) for host in hosts)
        self._resolve = resolve
        self._open: set[asyncio.Task[None]] = set()

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tasks of our own instead of asyncio's, to be able to end them."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def close(self) -> None:
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._open) > CONNECTIONS:
                raise RefusedError(f"more than {CONNECTIONS} connections at a time", "503 Service Unavailable")
            await self._answer(reader, writer)
        except RefusedError as refused:
            body = f"longshore: {refused.reason}\n".encode()
            head = f"HTTP/1.1 {refused.status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        except OSError:
            pass  # one of the two has hung up: the other learns it by our closing
        finally:
            await _close(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                return
            raise RefusedError("the request has no end", "400 Bad Request") from error
        except (asyncio.LimitOverrunError, TimeoutError) as error:
            raise RefusedError("the request's head is too long or too slow", "400 Bad Request") from error
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise RefusedError("this is no HTTP request", "400 Bad Request")
        method, target, _ = words
        if method == "CONNECT":
            host, port = _authority(f"//{target}", None)
            far = await self._connect(host, port)
            first = b""
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            if not target.lower().startswith("http://"):
                raise RefusedError("only http:// addresses can be asked for, others by CONNECT", "400 Bad Request")
            host, port = _authority(target, 80)
            far = await self._connect(host, port)
            first = _origin_head(method, target, lines[1:])
        await _join(reader, writer, *far, first)

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not is_among(host, self._hosts):
            raise RefusedError(f"{host} is not among the hosts this program may reach")
        if port not in PORTS:
            raise RefusedError(f"port {port} may not be reached, only {' and '.join(map(str, PORTS))}")
        try:
            addresses = await self._resolve(host, port)
        except WebError as error:
            raise RefusedError(str(error)) from error
        for family, address in addresses:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await asyncio.open_connection(address, port, family=family, limit=CHUNK)
        raise RefusedError(f"{host} does not answer", "502 Bad Gateway")


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _authority(url: str, default: int | None) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or default
    except ValueError as error:
        raise RefusedError("the address does not read", "400 Bad Request") from error
    if not host or port is None or parts.username is not None:
        raise RefusedError("the address does not read", "400 Bad Request")
    return _plain(host), port


def _origin_head(method: str, target: str, lines: Sequence[str]) -> bytes:
    """What the far side gets: a path instead of an address, its own name, one request per connection."""
    parts = urlsplit(target)
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    dropped = ("host", "connection", "keep-alive", "proxy-connection", "proxy-authorization", "upgrade")
    kept = [line for line in lines if line and line.partition(":")[0].strip().lower() not in dropped]
    head = [f"{method} {path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close", *kept]
    return "\r\n".join([*head, "", ""]).encode("latin-1")


async def _join(
    near: asyncio.StreamReader,
    near_writer: asyncio.StreamWriter,
    far: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
    first: bytes,
) -> None:
    """Carry bytes both ways until the far side is done, or nothing has moved for a long time."""
    clock = asyncio.get_running_loop()
    moved = clock.time()

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        nonlocal moved
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK):
                moved = clock.time()
                target.write(data)
                await target.drain()
            if target.can_write_eof():
                target.write_eof()

    far_writer.write(first)
    up = asyncio.create_task(carry(near, far_writer))
    down = asyncio.create_task(carry(far, near_writer))
    try:
        while not down.done() and (left := moved + IDLE_SECONDS - clock.time()) > 0:
            await asyncio.wait({down}, timeout=left)
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.wait({up, down})
        await _close(far_writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    """What is still to be sent gets a moment; a far side that does not read must not hold us."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except OSError:
        pass
