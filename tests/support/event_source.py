"""A client of event streams over HTTP, on a bare socket: cheap enough for hundreds in one process.

It knows of server-sent events what a browser's EventSource does, and comes back when it is told to."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sent:
    name: str
    id: str | None
    data: str

    @property
    def envelope(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.data)
        return found


class EventSource:
    """One connection. `ended`: the server made an end, and was not cut off."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.comments = 0
        self.ended = False

    async def ask(self, path: str, headers: dict[str, str]) -> None:
        lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        await self._writer.drain()
        self.status = int((await self._reader.readuntil(b"\r\n")).split()[1])
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            pass

    async def __aiter__(self) -> AsyncIterator[Sent]:
        """Until the stream ends, in order or not."""
        buffer = b""
        async for chunk in self._chunks():
            buffer += chunk
            *whole, buffer = buffer.split(b"\n\n")
            for block in whole:
                if (sent := self._read(block.decode())) is not None:
                    yield sent

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
            self.ended = True
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def _read(self, block: str) -> Sent | None:
        fields: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
        self.comments += "" in fields
        return Sent(fields["event"], fields.get("id"), fields["data"]) if "data" in fields else None


@asynccontextmanager
async def event_source(port: int, path: str, token: str = "", **more: str) -> AsyncIterator[EventSource]:
    """`more`: headers; `last_event_id` and its like as well."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        source = EventSource(reader, writer)
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        await source.ask(path, headers | ({"Authorization": f"Bearer {token}"} if token else {}))
        yield source
    finally:
        writer.close()
