"""Lines of standard input for a program that does something else meanwhile.

Read by a thread that nobody waits for: asyncio waits for its own, so whoever interrupts would have to press Enter."""

import asyncio
import codecs
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

_READ_BYTES: Final = 65_536


async def piped_lines(file: int) -> AsyncIterator[str]:
    """Until the end of the file. Not through `sys.stdin`, whose lock such a thread would hold when the program ends."""
    loop = asyncio.get_running_loop()
    parts: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            while part := _part(file):
                loop.call_soon_threadsafe(parts.put_nowait, part)
            loop.call_soon_threadsafe(parts.put_nowait, b"")

    threading.Thread(target=read, name="longshore-stdin", daemon=True).start()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    begun = ""
    while part := await parts.get():
        *lines, begun = (begun + decoder.decode(part)).split("\n")
        for line in lines:
            yield line
    if last := begun + decoder.decode(b"", final=True):
        yield last


def _part(file: int) -> bytes:
    try:
        return os.read(file, _READ_BYTES)
    except OSError:  # a terminal that is gone
        return b""
