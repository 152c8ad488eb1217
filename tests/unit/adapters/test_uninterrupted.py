"""What must not be left half done goes on to its end, however often whoever waits for it is stopped."""

import asyncio

import pytest

from adapters.uninterrupted import uninterrupted


@pytest.mark.spec("P12")
@pytest.mark.parametrize("fails", [False, True])
async def test_it_is_over_when_whoever_waits_is_let_go(*, fails: bool) -> None:
    go_on, over = asyncio.Event(), False

    async def work() -> None:
        nonlocal over
        await go_on.wait()
        over = True
        if fails:
            raise OSError

    waiting = asyncio.create_task(uninterrupted(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert over


@pytest.mark.spec("P12")
async def test_what_comes_of_it_is_told() -> None:
    async def work() -> int:
        return 7

    async def broken() -> None:
        raise OSError("full")

    assert await uninterrupted(work()) == 7
    with pytest.raises(OSError, match="full"):
        await uninterrupted(broken())
