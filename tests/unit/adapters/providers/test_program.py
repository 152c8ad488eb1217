"""What a program prints on stderr: told and drained, whatever it is."""

import asyncio
from pathlib import Path

import pytest

from adapters.events import Stderr
from adapters.providers.cli.lines import LONGEST_LINE
from adapters.providers.cli.program import STDERR_LINE, Program
from adapters.sandbox.none import Unconfined
from adapters.sandbox.port import Command

pytestmark = pytest.mark.spec("P12")


async def run(body: str, folder: Path) -> tuple[list[str], list[str], Program, int]:
    """What it said on stderr and on stdout, and how it ended."""
    said: list[str] = []

    async def say(event: Stderr) -> None:
        said.append(event.text)

    process = await Unconfined().start(Command(("sh", "-c", body), folder))
    program = Program("program", process, say)
    try:
        async with asyncio.timeout(30):
            printed = [line async for line in program.lines()]
            return said, printed, program, await program.ended()
    finally:
        await program.stop()


async def test_a_line_without_end_is_cut_and_the_program_goes_on(tmp_path: Path) -> None:
    """More than what is kept of a line and of what nobody reads together: else the program would hang."""
    body = f"head -c {LONGEST_LINE + (32 << 20)} /dev/zero | tr '\\0' x >&2; echo >&2; echo after >&2; echo answer"
    said, printed, program, code = await run(body, tmp_path)
    assert (said, printed, code) == (["x" * STDERR_LINE, "after"], ["answer"], 0)
    assert "after" in str(program.broke(3))


async def test_lines_are_told_whole_and_the_last_needs_no_end(tmp_path: Path) -> None:
    said, *_ = await run(r"printf 'gr\303\274n\r\n\n  \nbro\377ken\nlast' >&2", tmp_path)
    assert said == ["grün", "bro\ufffdken", "last"]


async def test_a_character_is_not_cut_in_the_middle(tmp_path: Path) -> None:
    said, *_ = await run(f"printf '.%.0s🚢' $(seq {STDERR_LINE}) >&2", tmp_path)
    assert said == [(".🚢" * STDERR_LINE)[:STDERR_LINE]]
