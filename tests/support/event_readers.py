"""Reading what a follower of events is sent, until enough has come."""

import asyncio
from collections.abc import Callable

from adapters.events import Envelope
from workers.events import Follower


async def read_events(follower: Follower, until: Callable[[list[Envelope]], bool]) -> list[Envelope]:
    seen: list[Envelope] = []
    async with asyncio.timeout(20):
        async for item in follower.events():
            seen.append(item)
            if until(seen):
                break
    return seen


def turns_ended(count: int) -> Callable[[list[Envelope]], bool]:
    return lambda seen: sum(item.event.type == "turn_ended" for item in seen) == count


def event_numbers(items: list[Envelope]) -> list[int]:
    return [item.seq for item in items if item.seq is not None]
