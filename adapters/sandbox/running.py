"""Running a program to its end, for callers that want what it printed and how it ended, within all of its limits."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import Literal

from adapters.sandbox.port import Command, Sandbox, SandboxLimits

KEEP_BYTES = 60_000
CHUNK = 1 << 16
# After the program's end: what is still in the pipes is there at once, and whoever holds them open is not waited for.
DRAIN_SECONDS = 2.0

Ended = Literal["exited", "time", "output", "memory", "disk"]


@dataclass(frozen=True)
class Finished:
    """How a program ended. `stdout` and `stderr` have their middle left out if they were long."""

    exit_code: int
    stdout: str
    stderr: str
    ended: Ended
    seconds: float
    limits: SandboxLimits = field(default_factory=SandboxLimits)

    @property
    def words(self) -> str:
        """How it ended, for an agent."""
        after, limits = f"ended after {self.seconds:.3g} s", self.limits
        return {
            "exited": f"exit code {self.exit_code}",
            "time": f"{after}: it took longer than the {limits.seconds:g} s it may",
            "output": f"{after}: it printed more than the {_size(limits.output_bytes)} it may",
            "memory": f"{after}: it used more than the {_size(limits.memory_bytes)} of memory it may",
            "disk": f"{after}: the workspace holds more than the {_size(limits.disk_bytes)} it may",
        }[self.ended]


async def run(sandbox: Sandbox, command: Command, stdin: bytes = b"", keep: int = KEEP_BYTES) -> Finished:
    """Start, feed, read and end a program. `keep` is how many bytes of each stream are kept. Raises SandboxError if it
    cannot be started. When cancelled, the program is gone before the cancellation goes on."""
    started = time.monotonic()
    process = await sandbox.start(command)
    output = _Output(command.limits.output_bytes)
    out, err = _Ends(keep), _Ends(keep)
    work = [
        asyncio.create_task(_feed(process.stdin, stdin)),
        asyncio.create_task(output.read(process.stdout, out)),
        asyncio.create_task(output.read(process.stderr, err)),
    ]
    flood, over = asyncio.create_task(output.passed.wait()), asyncio.create_task(process.wait())
    ended: Ended = "exited"
    try:
        await asyncio.wait({flood, over}, timeout=command.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        if output.passed.is_set():
            ended = "output"
        elif not over.done():
            ended = "time"
        else:
            await asyncio.wait(work[1:], timeout=DRAIN_SECONDS)
    finally:
        try:
            await process.stop()
        finally:
            for task in (*work, flood):
                task.cancel()
            await asyncio.wait([*work, flood])
            over.cancel()
    if ended == "exited":
        ended = "output" if output.passed.is_set() else process.passed or ended
    code = await process.wait()
    return Finished(code, out.text(), err.text(), ended, time.monotonic() - started, command.limits)


class _Output:
    """Counts what is printed on both streams together."""

    def __init__(self, most: int) -> None:
        self._left = most
        self.passed = asyncio.Event()

    async def read(self, reader: asyncio.StreamReader, ends: "_Ends") -> None:
        while not self.passed.is_set() and (data := await reader.read(CHUNK)):
            self._left -= len(data)
            ends.add(data)
            if self._left < 0:
                self.passed.set()


class _Ends:
    """The beginning and the end of a stream, as much of each."""

    def __init__(self, keep: int) -> None:
        self._half = keep // 2
        self._head, self._tail, self._left_out = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if (surplus := len(self._tail) - self._half) > 0:
            del self._tail[:surplus]
            self._left_out += surplus

    def text(self) -> str:
        gap = f"\n[... {self._left_out:,} bytes left out ...]\n".encode() if self._left_out else b""
        return (bytes(self._head) + gap + bytes(self._tail)).decode(errors="replace")


async def _feed(writer: asyncio.StreamWriter, data: bytes) -> None:
    # A program need not read all that it is given.
    with contextlib.suppress(OSError):
        writer.write(data)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def _size(count: int) -> str:
    return f"{count / (1 << 20):,.4g} MB"
