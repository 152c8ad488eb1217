"""Many requests at once over few kept connections, as a platform's senders do. Plain sockets: a client library would
take longer over each than the gateway does."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: bytes

    def raw(self) -> bytes:
        lines = [f"POST {self.path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


@dataclass(frozen=True)
class Reply:
    status: int
    said: Any


async def flood(port: int, requests: Sequence[Request], connections: int) -> list[Reply]:
    """The answers, in the order of the requests; those of one connection follow each other, and all run at once."""
    replies: list[Reply | None] = [None] * len(requests)
    waiting = iter(enumerate(requests))

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for number, request in waiting:
                writer.write(request.raw())
                replies[number] = await _reply(reader)
        finally:
            writer.close()
            await writer.wait_closed()

    await asyncio.gather(*(connection() for _ in range(connections)))
    return [reply for reply in replies if reply is not None]


async def _reply(reader: asyncio.StreamReader) -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers["content-length"]))
    return Reply(int(head[0].split()[1]), json.loads(body))
