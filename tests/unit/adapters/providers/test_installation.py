"""Looking at a program before it is used: what it is told, and that nothing of it is left, however it behaves."""

import asyncio
from pathlib import Path

import pytest

from adapters.providers.cli import installation
from adapters.providers.cli.installation import Installation, inspect
from tests.support.programs import living

pytestmark = pytest.mark.spec("P12")
CHILD = "(while :; do sleep 0.1; done) &"


def program(folder: Path, body: str) -> Installation:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return Installation("program", (str(path),), (folder,))


async def gone(folder: Path) -> None:
    async with asyncio.timeout(10):
        while living(str(folder)):
            await asyncio.sleep(0.02)


async def test_a_look_that_takes_too_long_leaves_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "LOOK_SECONDS", 0.5)
    with pytest.raises(OSError, match=r"did not end within 0\.5 s"):
        await inspect(program(tmp_path, f"{CHILD} wait"))
    await gone(tmp_path)


async def test_a_look_that_nobody_waits_for_any_more_leaves_no_child(tmp_path: Path) -> None:
    looking = asyncio.create_task(inspect(program(tmp_path, f"{CHILD} wait")))
    async with asyncio.timeout(10):
        while len(living(str(tmp_path))) < 4:  # two looks, with a child each
            await asyncio.sleep(0.02)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    await gone(tmp_path)


async def test_a_child_that_holds_its_output_open_is_not_waited_for(tmp_path: Path) -> None:
    assert (await inspect(program(tmp_path, f"{CHILD} echo 1.2"))).version == "1.2"
    await gone(tmp_path)


async def test_it_is_asked_to_stay_one_process(tmp_path: Path) -> None:
    told = (await inspect(program(tmp_path, "echo 1.2; env"))).help.splitlines()
    assert {"GEMINI_CLI_NO_RELAUNCH=true", "OPENCLAW_NO_RESPAWN=1"} <= set(told)
