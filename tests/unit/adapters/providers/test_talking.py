"""A query is stopped in bounded time, also when nobody has read what it said."""

import asyncio

import pytest

from adapters.contracts import QueryInput
from adapters.events import Progress
from adapters.providers.conformance import ProbeBox
from adapters.providers.talking import AHEAD, TalkingQuery


class Chatterbox(TalkingQuery):
    def __init__(self) -> None:
        super().__init__(QueryInput(prompt="", tools=ProbeBox()))
        self.ahead = asyncio.Event()

    async def push(self, text: str) -> bool:
        return False

    async def converse(self) -> None:
        try:
            for number in range(2 * AHEAD):
                if number == AHEAD:
                    self.ahead.set()
                await self.say(Progress(text=str(number)))
        finally:
            await self.say(Progress(text="what it has cost"))


@pytest.mark.spec("P12")
@pytest.mark.parametrize("how", ["abort", "close"])
async def test_an_agent_nobody_listens_to_any_more_can_be_stopped(how: str) -> None:
    query = Chatterbox()
    assert await anext(query.events) == Progress(text="0")
    async with asyncio.timeout(10):
        await query.ahead.wait()
        await asyncio.sleep(0)
        if how == "abort":
            await query.abort()
            assert query.status == "aborted"
        else:
            await query.events.aclose()  # type: ignore[attr-defined]
