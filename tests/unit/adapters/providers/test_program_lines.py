"""Lines of a program's output: whole, whatever their length and whatever their bytes."""

import asyncio

import pytest

from adapters.errors import ProviderError
from adapters.providers.cli.lines import lines

pytestmark = pytest.mark.spec("P12")
MB = 1 << 20


async def read(*chunks: bytes, longest: int | None = None) -> list[str]:
    stream = asyncio.StreamReader(limit=1 << 30)
    for chunk in chunks:
        stream.feed_data(chunk)
    stream.feed_eof()
    return [line async for line in (lines(stream) if longest is None else lines(stream, longest))]


@pytest.mark.parametrize(
    ("chunks", "told"),
    [
        ((b"one\ntwo\n",), ["one", "two"]),
        ((b"on", b"e\r\ntw", b"o"), ["one", "two"]),
        ((b"\n\nthree",), ["", "", "three"]),
        ((b"",), []),
        ((b"gr\xc3", b"\xbcn\n"), ["grün"]),
        ((b"bro\xffken\xc3\n",), ["bro\ufffdken\ufffd"]),
        (("a\u2028b\x0bc\x1ed\n".encode(),), ["a\u2028b\x0bc\x1ed"]),
    ],
)
async def test_a_line_ends_at_a_newline_and_nowhere_else(chunks: tuple[bytes, ...], told: list[str]) -> None:
    assert await read(*chunks) == told


async def test_a_line_of_fifty_megabytes_is_one_line() -> None:
    [long, short] = await read(b"x" * (50 * MB) + b"\nend\n")
    assert (len(long), short) == (50 * MB, "end")


async def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(ProviderError, match="a line of more than 1 MB"):
        await read(b"fine\n", b"x" * (2 * MB), longest=MB)
