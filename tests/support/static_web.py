"""A web server on 127.0.0.1 with a few files, which remembers what it was asked for."""

import asyncio
from collections.abc import Mapping


class StaticWeb:
    def __init__(self, files: Mapping[str, tuple[str, bytes]]) -> None:
        self._files = files
        self.asked: list[str] = []
        self.port = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def __aenter__(self) -> "StaticWeb":
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        self.asked.append(path)
        known = self._files.get(path)
        kind, body = known or ("text/plain", b"not here")
        status = "200 OK" if known else "404 Not Found"
        lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", "connection: close"]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        writer.close()
