"""Standard input, line by line, wherever it is cut."""

import asyncio
import os

import pytest

from gateway.cli.piped_lines import piped_lines

pytestmark = pytest.mark.spec("G4")


async def test_lines_come_whole_and_the_last_needs_no_end() -> None:
    reading, writing = os.pipe()
    lines = piped_lines(reading)
    os.write(writing, b"one\n\nt\xc3")
    assert [await anext(lines), await anext(lines)] == ["one", ""]
    os.write(writing, b"\xbcr\nlast \xff")
    assert await anext(lines) == "tür"
    os.close(writing)
    assert [line async for line in lines] == ["last �"]
    os.close(reading)


def test_whoever_stops_need_not_wait_for_a_line() -> None:
    """A loop that waited for the thread would not end: nobody writes."""
    reading, writing = os.pipe()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(piped_lines(reading)), 0.01)

    asyncio.run(give_up())
    os.close(writing)
    os.close(reading)
