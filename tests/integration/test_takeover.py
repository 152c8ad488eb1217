"""A person at the terminal of an agent's program, through Redis: sees it, takes it over, gives it back, on record."""

import asyncio
import fcntl
import getpass
import os
import struct
import termios
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from adapters.events import AnyEvent, ControlChanged, Envelope, Progress, ScreenChanged
from adapters.providers.cli.terminal.provider import TerminalProvider
from adapters.registry import Drivers, Registry
from gateway.cli.attach import LEAVE
from tests.support import fork_server
from tests.support.fleet import Fleet, MakeFleet
from workers.events import Follower, redis_client
from workers.nudges import control_channel
from workers.takeover import Control, Keys, Show, Wish

pytestmark = [pytest.mark.spec("P12"), pytest.mark.parametrize("database_kind", ["sqlite"])]


ROOT = Path(__file__).parents[2]


class Seat:
    def __init__(self, fleet: Fleet, session_id: str) -> None:
        self._client = redis_client(fleet.runtime.settings.redis_url)
        self.session_id = session_id
        self.seen: list[Envelope] = []
        self._reading = asyncio.create_task(self._read(fleet))
        self.ready = asyncio.Event()

    async def _read(self, fleet: Fleet) -> None:
        follower = Follower(fleet.db, self._client, self.session_id, ready=lambda: self.ready.set())
        async for item in follower.events():
            self.seen.append(item)

    async def wish(self, wish: Wish | bytes) -> None:
        raw = wish if isinstance(wish, bytes) else wish.model_dump_json()
        await self._client.publish(control_channel(self.session_id), raw)

    async def sees(self, text: str) -> None:
        await self.until(lambda event: isinstance(event, ScreenChanged) and any(text in line for line in event.lines))

    async def until(self, wanted: Callable[[AnyEvent], bool], since: int = 0) -> None:
        async with asyncio.timeout(30):
            while not any(wanted(item.event) for item in self.seen[since:]):
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._client.aclose()


@pytest.fixture
async def seat(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[tuple[Seat, Fleet, "asyncio.Task[str]"]]:
    registry = Registry(providers=Drivers("provider", {"terminal": TerminalProvider()}))
    fleet = await make_fleet(registry, sandbox="none", default_provider="terminal")
    options = {"command": ["sh", "-i"], "idle_seconds": 6}
    await fleet.add_group(provider="terminal", config={"provider_options": options})
    accepted = await fleet.send("echo from the agent")
    seat = Seat(fleet, accepted.session_id)
    await seat.ready.wait()
    running = asyncio.create_task(fleet.wake(accepted.session_id, "terminal"))
    yield seat, fleet, running
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await seat.close()


async def changes(fleet: Fleet) -> list[tuple[str, str]]:
    """Who led and by whose word, in order."""
    rows = [row.payload for row in await fleet.events() if row.type == "control_changed"]
    return [(row["mode"], row["by"]) for row in rows]


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
    await at.wish(Control(mode="delegated", by="bob"))
    await at.wish(Keys(text="echo by $((40 + 3)) both\r", by="bob"))
    await at.sees("by 43 both")
    await at.wish(Keys(text="exit\r", by="bob"))
    await asyncio.wait_for(running, 30)
    assert await changes(fleet) == [("human-led", "ann"), ("agent-led", "ann"), ("delegated", "bob")]
    assert "too early" not in str([row.payload for row in await fleet.events() if row.type == "result"])


class Desk:
    """`longshore attach` in a terminal of its own, as a person has it."""

    def __init__(self, fleet: Fleet, session_id: str, *options: str) -> None:
        settings = fleet.runtime.settings
        env = {"DATABASE_URL": settings.database_url, "REDIS_URL": settings.redis_url, "TERM": "xterm", "HOME": "/tmp"}
        self._ours, theirs = os.openpty()
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = fork_server.start(
            ["longshore", "attach", session_id[-12:], *options], env | {"PATH": os.environ["PATH"]}, ROOT,
            stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        self.shown = b""
        asyncio.get_running_loop().add_reader(self._ours, self._read)

    def _read(self) -> None:
        try:
            self.shown += os.read(self._ours, 65_536)
        except OSError:  # it has gone
            asyncio.get_running_loop().remove_reader(self._ours)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.02)

    def close_window(self) -> None:
        if self._ours >= 0:
            asyncio.get_running_loop().remove_reader(self._ours)
            os.close(self._ours)
            self._ours = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close_window()


BY_HAND = "echo by $((40 + 2)) hand\r"


@pytest.mark.parametrize(
    ("options", "mode"), [((), "human-led"), pytest.param(("--together",), "delegated", marks=pytest.mark.long)]
)
async def test_attach_shows_it_types_into_it_and_gives_it_back(
    options: tuple[str, ...], mode: str, seat: tuple[Seat, Fleet, "asyncio.Task[str]"]
) -> None:
    at, fleet, _ = seat
    await at.sees("from the agent")
    desk = Desk(fleet, at.session_id, *options)
    try:
        await desk.until(lambda: mode.encode() in desk.shown)
        assert b"from the agent" in desk.shown
        desk.type(BY_HAND)
        await desk.until(lambda: b"by 42 hand" in desk.shown)
        desk.type(LEAVE)
        await desk.until(lambda: desk.process.poll() is not None)
        assert desk.process.returncode == 0
        assert b"left; the agent leads again" in desk.shown
    finally:
        desk.close()
    await at.until(lambda event: isinstance(event, ControlChanged) and event.mode == "agent-led")
    me = getpass.getuser()
    assert await changes(fleet) == [(mode, me), ("agent-led", me)]


async def test_whoever_only_watches_neither_takes_over_nor_types(
    seat: tuple[Seat, Fleet, "asyncio.Task[str]"],
) -> None:
    at, fleet, _ = seat
    await at.sees("from the agent")
    desk = Desk(fleet, at.session_id, "--watch")
    try:
        await desk.until(lambda: b"from the agent" in desk.shown and b"agent-led" in desk.shown)
        desk.type(BY_HAND + LEAVE)
        await desk.until(lambda: desk.process.poll() is not None)
        assert desk.process.returncode == 0
        assert b"left; the agent leads again" not in desk.shown
    finally:
        desk.close()
    # Wishes are done in the order they come: whatever it had sent would have been done before this.
    seen = len(at.seen)
    await at.wish(Show())
    await at.until(lambda event: isinstance(event, ScreenChanged), since=seen)
    assert await changes(fleet) == []
    assert not any(isinstance(item.event, Progress) for item in at.seen)  # a key would have been refused aloud
    assert "hand" not in str([item.event for item in at.seen if isinstance(item.event, ScreenChanged)])


@pytest.mark.parametrize("end", ["SIGTERM", pytest.param("the window is closed", marks=pytest.mark.long)])
async def test_attach_gives_it_back_however_it_is_ended(
    end: str, seat: tuple[Seat, Fleet, "asyncio.Task[str]"]
) -> None:
    at, fleet, _ = seat
    await at.sees("from the agent")
    desk = Desk(fleet, at.session_id)
    try:
        await desk.until(lambda: b"human-led" in desk.shown)
        if end == "SIGTERM":
            desk.process.terminate()
        else:
            desk.close_window()
        await desk.until(lambda: desk.process.poll() is not None)
    finally:
        desk.close()
    await at.until(lambda event: isinstance(event, ControlChanged) and event.mode == "agent-led")
