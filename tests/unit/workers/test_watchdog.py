"""Silence of a provider counts as a hang; silence while one of our tools works does not."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from workers.watchdog import SilenceError, Watchdog

SHORT, LONG = 0.05, 0.3


async def _events(*pauses: float) -> AsyncIterator[int]:
    for number, seconds in enumerate(pauses):
        await asyncio.sleep(seconds)
        yield number


async def _watched(dog: Watchdog, events: AsyncIterator[int]) -> list[int]:
    return [event async for event in dog.watch(events)]


@pytest.mark.spec("P12", "M9")
async def test_events_pass_through_in_order() -> None:
    assert await _watched(Watchdog(5), _events(0, 0, 0)) == [0, 1, 2]
    assert await _watched(Watchdog(5), _events()) == []


@pytest.mark.spec("P12", "M9")
async def test_silence_is_a_hang() -> None:
    with pytest.raises(SilenceError):
        await _watched(Watchdog(SHORT), _events(0, 3600))


@pytest.mark.spec("P12", "M9")
async def test_each_event_starts_the_time_again() -> None:
    assert await _watched(Watchdog(LONG), _events(*[LONG / 3] * 6)) == list(range(6))


@pytest.mark.spec("P12", "M9")
async def test_a_reader_that_takes_its_time_is_not_the_provider_s_silence() -> None:
    seen = []
    async for event in Watchdog(SHORT).watch(_events(0, 0)):
        await asyncio.sleep(SHORT * 3)
        seen.append(event)
    assert seen == [0, 1]


@pytest.mark.spec("P12", "M9")
async def test_a_tool_that_runs_longer_than_the_limit_is_not_a_hang() -> None:
    dog = Watchdog(SHORT)

    async def events() -> AsyncIterator[int]:
        with dog.busy():
            await asyncio.sleep(SHORT * 4)
        yield 1

    assert await _watched(dog, events()) == [1]


@pytest.mark.spec("P12", "M9")
async def test_a_tool_that_another_task_runs_counts_as_well() -> None:
    dog, finished = Watchdog(SHORT), asyncio.Event()

    async def tool() -> None:
        with dog.busy():
            await asyncio.sleep(SHORT * 4)
        finished.set()

    async def events() -> AsyncIterator[int]:
        yield 0
        await finished.wait()
        yield 1

    async with asyncio.TaskGroup() as group:
        group.create_task(tool())
        assert await _watched(dog, events()) == [0, 1]


@pytest.mark.spec("P12", "M9")
async def test_silence_after_a_tool_is_a_hang_again() -> None:
    dog = Watchdog(SHORT)

    async def events() -> AsyncIterator[int]:
        with dog.busy():
            await asyncio.sleep(SHORT * 2)
        await asyncio.sleep(3600)
        yield 1

    with pytest.raises(SilenceError):
        await _watched(dog, events())


@pytest.mark.spec("P12", "M9")
async def test_of_two_tools_the_last_one_to_end_counts() -> None:
    dog = Watchdog(SHORT)

    async def events() -> AsyncIterator[int]:
        with dog.busy():
            with dog.busy():
                pass
            await asyncio.sleep(SHORT * 4)
        yield 1

    assert await _watched(dog, events()) == [1]


@pytest.mark.spec("P12", "M9")
async def test_a_tool_that_fails_is_not_busy_any_more() -> None:
    dog = Watchdog(SHORT)

    async def events() -> AsyncIterator[int]:
        try:
            with dog.busy():
                raise ValueError
        except ValueError:
            await asyncio.sleep(3600)
        yield 1

    with pytest.raises(SilenceError):
        await _watched(dog, events())


@pytest.mark.spec("P12")
@pytest.mark.parametrize("make", [lambda: RuntimeError("broken"), asyncio.CancelledError], ids=["error", "cancelled"])
async def test_what_the_provider_raises_is_raised(make: Callable[[], BaseException]) -> None:
    async def events() -> AsyncIterator[int]:
        yield 0
        raise make()

    with pytest.raises((RuntimeError, asyncio.CancelledError)):
        await _watched(Watchdog(5), events())


async def test_busy_outside_of_a_watch_does_nothing() -> None:
    with Watchdog(SHORT).busy():
        await asyncio.sleep(SHORT * 2)
