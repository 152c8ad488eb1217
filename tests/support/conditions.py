"""Waiting for a condition, and not for time."""

import asyncio
from collections.abc import Callable
from typing import Any


async def wait_for_condition(condition: Callable[[], Any], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while True:
            met = condition()
            if await met if asyncio.iscoroutine(met) else met:
                return
            await asyncio.sleep(0.01)
