"""The pipes to the process of an MCP server: a message is a line of JSON, in each direction.

The other end is hostile: lines, noise, messages and complaints are bounded, so that none of it fills our memory or
keeps this process busy without end."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from adapters.sandbox.port import SandboxProcess

MAX_LINE: Final = 4 << 20
# What is no message at all: banners are, a flood is not what a server prints by mistake.
MAX_GARBAGE: Final = 64 << 20
# All that a server sends in a turn. A request of its own counts for many: each is answered, and keeps room in memory
# until the server reads the answer.
MAX_MESSAGES: Final = 100_000
REQUEST_WEIGHT: Final = 100
STDERR_TAIL: Final = 8_192
_CHUNK: Final = 1 << 16


class Pipes:
    """`on_overlong` is called when a line was too long to be read. `excess`: why no more is read, if there was too
    much."""

    def __init__(self, process: SandboxProcess, on_overlong: Callable[[], None]) -> None:
        self.garbage = Counter[str]()
        self.excess = ""
        self._process = process
        self._on_overlong = on_overlong
        self._messages = 0
        self._complaints = bytearray()

    async def write(self, to_say: MemoryObjectReceiveStream[SessionMessage]) -> None:
        # Whoever does not listen any more has closed its output too, or is about to: that is where its end is seen.
        with to_say, suppress(OSError):
            async for said in to_say:
                line = said.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._process.stdin.write(line.encode() + b"\n")
                await self._process.stdin.drain()

    async def read(self, heard: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Lines of JSON. What is none is counted and skipped: servers print banners where they should not."""
        with heard, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for line in self._lines():
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    self.garbage.update(lines=1, bytes=len(line))
                    continue
                self._messages += REQUEST_WEIGHT if isinstance(message, types.JSONRPCRequest) else 1
                if self._messages > MAX_MESSAGES:
                    self.excess = "it sent messages without end"
                    return
                await heard.send(SessionMessage(message))

    async def _lines(self) -> AsyncIterator[bytes]:
        line = bytearray()
        too_long = False
        while chunk := await self._process.stdout.read(_CHUNK):
            if self.garbage["bytes"] > MAX_GARBAGE:
                self.excess = "it printed without end what is not MCP"
                return
            *ended, rest = chunk.split(b"\n")
            for part in ended:
                if not too_long and len(line) + len(part) <= MAX_LINE:
                    line += part
                    if line.strip():
                        yield bytes(line)
                elif not too_long:
                    self._overlong()
                line.clear()
                too_long = False
            if too_long:
                self.garbage["bytes"] += len(rest)
            elif len(line) + len(rest) > MAX_LINE:
                self._overlong()
                line.clear()
                too_long = True
            else:
                line += rest

    def _overlong(self) -> None:
        self.garbage.update(lines=1, bytes=MAX_LINE)
        self._on_overlong()

    async def listen_to_complaints(self) -> None:
        while chunk := await self._process.stderr.read(_CHUNK):
            self._complaints += chunk
            del self._complaints[:-STDERR_TAIL]

    def last_complaint(self, longest_secret: int) -> str | None:
        """The last line on stderr that says something."""
        whole = len(self._complaints) < STDERR_TAIL
        lines = self._complaints.decode("utf-8", "replace").splitlines()
        last = next((number for number in reversed(range(len(lines))) if lines[number].strip()), None)
        if last is None:
            return None
        # A line that was cut may begin in the middle of a secret, which nobody would recognise.
        return lines[last] if whole or last > 0 else lines[last][longest_secret:]


@contextmanager
def streams() -> Iterator[
    tuple[
        MemoryObjectSendStream[SessionMessage | Exception],
        MemoryObjectReceiveStream[SessionMessage | Exception],
        MemoryObjectSendStream[SessionMessage],
        MemoryObjectReceiveStream[SessionMessage],
    ]
]:
    """What a session talks through: from the server, and to it."""
    heard, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_say = anyio.create_memory_object_stream[SessionMessage](0)
    with heard, incoming, outgoing, to_say:
        yield heard, incoming, outgoing, to_say
