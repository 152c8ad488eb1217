"""Lines of a program's output, however long, however broken: a line ends at a newline and nowhere else."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from adapters.errors import ErrorClass, ProviderError

# A whole file or picture may come as one line of JSON.
LONGEST_LINE: Final = 64 << 20
CHUNK: Final = 1 << 16


async def lines(stream: asyncio.StreamReader, longest: int = LONGEST_LINE) -> AsyncIterator[str]:
    """Each line without its end, the last one also if it has none; bytes that are no UTF-8 become U+FFFD. Raises
    ProviderError for a line that is longer than anybody needs."""
    begun = bytearray()  # not a list of pieces: a program that prints byte by byte would fill memory with their frames
    while chunk := await stream.read(CHUNK):
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            begun += piece
            yield _text(begun)
            begun.clear()
        begun += rest
        if len(begun) > longest:
            raise ProviderError(f"the program printed a line of more than {longest >> 20} MB", ErrorClass.INTERNAL)
    if begun:
        yield _text(begun)


def _text(line: bytearray) -> str:
    return line.decode("utf-8", "replace").removesuffix("\r")
