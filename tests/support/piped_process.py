"""A forked program (`fork_server`) whose streams a test reads and writes while both go on."""

import asyncio
import os
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.support import fork_server


class PipedProcess:
    """As asyncio.subprocess.Process."""

    def __init__(
        self,
        process: fork_server.Process,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
    ) -> None:
        self._process = process
        self.pid, self.send_signal, self.kill = process.pid, process.send_signal, process.kill
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> int:
        return await asyncio.to_thread(self._process.wait)

    async def communicate(self, given: bytes = b"") -> tuple[bytes, bytes]:
        self.stdin.write(given)
        self.stdin.close()
        said = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return said[0], said[1]


@asynccontextmanager
async def open_process(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, stderr: int = PIPE
) -> AsyncIterator[PipedProcess]:
    """Killed in the end, if it has not ended. `stderr` may be a file or STDOUT."""
    async with AsyncExitStack() as opened:
        their_input, input_end = os.pipe()
        opened.callback(os.close, their_input)
        stdin = await _writer(opened, input_end)
        stdout, their_output = await _reader(opened)
        reader, their_errors = await _reader(opened)
        errors = {PIPE: their_errors, STDOUT: their_output}.get(stderr, stderr)
        forked = fork_server.start(command, env, cwd, stdin=their_input, stdout=their_output, stderr=errors)
        for fd in (their_output, their_errors):
            os.close(fd)
        process = PipedProcess(forked, stdin, stdout, reader)
        try:
            yield process
        finally:
            forked.kill()
            await process.wait()


async def _writer(opened: AsyncExitStack, fd: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(fd, "wb", 0))
    opened.callback(transport.close)
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def _reader(opened: AsyncExitStack) -> tuple[asyncio.StreamReader, int]:
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", 0)
    )
    opened.callback(transport.close)
    return reader, theirs
