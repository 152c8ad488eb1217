"""A person at the terminal of an agent's program, through Redis: sees it, takes it over, gives it back, on record."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.events import ControlChanged, Envelope, Progress, ScreenChanged
from adapters.providers.cli.terminal.provider import TerminalProvider
from adapters.registry import Drivers, Registry
from tests.integration.conftest import MakeFleet
from tests.support.fleet import Fleet
from workers.events import Follower, redis_client
from workers.nudges import control_channel
from workers.takeover import Control, Keys, Show, Wish

pytestmark = [pytest.mark.spec("P12"), pytest.mark.parametrize("database_kind", ["sqlite"])]


class Seat:
    def __init__(self, fleet: Fleet, session_id: str) -> None:
        self._client = redis_client(fleet.runtime.settings.redis_url)
        self._session_id = session_id
        self.seen: list[Envelope] = []
        self._reading = asyncio.create_task(self._read(fleet))
        self.ready = asyncio.Event()

    async def _read(self, fleet: Fleet) -> None:
        follower = Follower(fleet.db, self._client, self._session_id, ready=lambda: self.ready.set())
        async for item in follower.events():
            self.seen.append(item)

    async def wish(self, wish: Wish | bytes) -> None:
        raw = wish if isinstance(wish, bytes) else wish.model_dump_json()
        await self._client.publish(control_channel(self._session_id), raw)

    async def sees(self, text: str) -> None:
        await self.until(lambda event: isinstance(event, ScreenChanged) and any(text in line for line in event.lines))

    async def until(self, wanted: object) -> None:
        assert callable(wanted)
        async with asyncio.timeout(30):
            while not any(wanted(item.event) for item in self.seen):
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._client.aclose()


@pytest.fixture
async def seat(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[tuple[Seat, Fleet, "asyncio.Task[str]"]]:
    registry = Registry(providers=Drivers("provider", {"terminal": TerminalProvider()}))
    fleet = await make_fleet(registry, sandbox="none", default_provider="terminal")
    options = {"command": ["sh", "-i"], "idle_seconds": 3}
    await fleet.add_group(provider="terminal", config={"provider_options": options})
    accepted = await fleet.send("echo from the agent")
    seat = Seat(fleet, accepted.session_id)
    await seat.ready.wait()
    running = asyncio.create_task(fleet.wake(accepted.session_id, "terminal"))
    yield seat, fleet, running
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await seat.close()


async def test_somebody_takes_over_types_and_gives_it_back(seat: tuple[Seat, Fleet, "asyncio.Task[str]"]) -> None:
    at, fleet, running = seat
    await at.sees("from the agent")
    await at.wish(Keys(text="echo too early\r", by="ann"))
    await at.until(lambda event: isinstance(event, Progress))
    await at.wish(b"\xff no JSON")
    await at.wish(Control(mode="human-led", by="ann"))
    await at.until(lambda event: isinstance(event, ControlChanged))
    await at.wish(Keys(text="echo by $((40 + 2)) ann\r", by="ann"))
    await at.sees("by 42 ann")
    await at.wish(Show())
    await at.wish(Control(mode="agent-led", by="ann"))
    await at.wish(Control(mode="delegated", by="ann"))
    await at.wish(Keys(text="exit\r", by="ann"))
    await asyncio.wait_for(running, 30)
    changes = [row.payload for row in await fleet.events() if row.type == "control_changed"]
    assert [(change["mode"], change["by"]) for change in changes][:1] == [("human-led", "ann")]
    assert "too early" not in str([row.payload for row in await fleet.events() if row.type == "result"])
