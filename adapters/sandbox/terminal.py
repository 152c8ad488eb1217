"""A pseudo-terminal for a program: our end of it as streams, its end as stdin, stdout and stderr.

It is the program's own and nobody else's: there is no other session whose input it could forge. Closing our input hangs
up, as closing a terminal's window does."""

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Sequence

# A session leader that opens a terminal gets it as its own. Whoever is no leader yet (inside bubblewrap, whose pid 1
# is) becomes one first. Without one of its own a program has no Ctrl-C, and a shell no jobs.
_ON_TERMINAL = """
true 3<>/proc/self/fd/0
if (true 3<>/dev/tty) 2>/dev/null; then exec "$@"; fi
exec setsid -c "$@"
"""
MOST_ROWS = 500
MOST_COLUMNS = 1000


def on_terminal(argv: Sequence[str]) -> list[str]:
    """The command line that takes the terminal at its stdin for its own and becomes the program."""
    return ["/bin/sh", "-c", _ON_TERMINAL, "sandbox", *argv]


class PseudoTerminal:
    """`size` is rows and columns. Close it, or open `streams`: they close themselves when the program hangs up."""

    def __init__(self, size: tuple[int, int], uid: int | None = None) -> None:
        self._ours, self.theirs = os.openpty()
        self._closed = False
        if uid is not None:
            os.fchown(self.theirs, uid, -1)
        self.resize(*size)

    def resize(self, rows: int, columns: int) -> None:
        """The program is told by a signal."""
        rows, columns = min(max(rows, 1), MOST_ROWS), min(max(columns, 1), MOST_COLUMNS)
        if not self._closed:
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._ours)
            self.let_go()

    def let_go(self) -> None:
        """Of the program's end, once it has it: or nobody would be told when it hangs up."""
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    async def streams(self, limit: int) -> "tuple[asyncio.StreamWriter, asyncio.StreamReader]":
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit, loop)
        protocol = _Reading(reader, self)
        reading, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(os.dup(self._ours), "rb", 0))
        writing, flow = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop)),
            os.fdopen(os.dup(self._ours), "wb", 0),
        )
        protocol.writing = writing
        return _Typing(writing, flow, reading, loop), reader


class _Reading(asyncio.StreamReaderProtocol):
    writing: asyncio.WriteTransport | None = None

    def __init__(self, reader: asyncio.StreamReader, terminal: PseudoTerminal) -> None:
        super().__init__(reader)
        self._terminal = terminal

    def connection_lost(self, exc: Exception | None) -> None:
        """EIO says that nobody has the other end open any more: an end like any other."""
        super().connection_lost(None)
        if self.writing is not None:
            self.writing.abort()
        self._terminal.close()


class _Typing(asyncio.StreamWriter):
    def __init__(
        self,
        transport: asyncio.WriteTransport,
        protocol: asyncio.BaseProtocol,
        reading: asyncio.ReadTransport,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(transport, protocol, None, loop)
        self._reading = reading

    def close(self) -> None:
        """A program that does not read is not waited for."""
        self._reading.close()
