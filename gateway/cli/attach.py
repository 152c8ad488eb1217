"""`longshore attach SESSION`: the terminal of a program that runs for an agent, on your own; watched, or taken over.

Keys go to the worker by Redis and the screen comes back as events. Ctrl-] leaves, and gives the terminal back; so does
closing the window."""

import asyncio
import codecs
import contextlib
import getpass
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Annotated, Final

import redis.asyncio
import typer
from rich.cells import cell_len, set_cell_size

from adapters.events import ControlChanged, Envelope, Mode, ScreenChanged, TurnEnded
from adapters.sandbox.terminal import MOST_COLUMNS, MOST_ROWS
from gateway.cli.desk import Desk, fail, run, visible
from gateway.cli.sessions import one_session
from gateway.cli.terminal import is_interactive
from models.lookup import short
from workers.events import Follower, redis_client
from workers.nudges import control_channel
from workers.takeover import MAX_KEYS, Control, Keys, Resize, Show, Wish

LEAVE: Final = "\x1d"  # Ctrl-]
RESIZED: Final = ""  # no key, but the window has another size
WAIT_SECONDS: Final = 5.0
_ENDS: Final = (signal.SIGHUP, signal.SIGTERM)
_SCREEN_ON, _SCREEN_OFF = "\x1b[?1049h", "\x1b[?1049l"


def attach(
    session: Annotated[str, typer.Argument(help="its id, or the end of it")],
    watch: Annotated[bool, typer.Option("--watch", help="only look; the agent goes on typing")] = False,
    together: Annotated[bool, typer.Option("--together", help="you and the agent both type")] = False,
) -> None:
    """Sit down at the terminal of an agent's program. You type, and the agent waits, until you leave with Ctrl-]."""
    if not is_interactive():
        fail("attach needs a terminal of its own; `longshore tail SESSION --json` shows the same as events")
    mode: Mode | None = None if watch else "delegated" if together else "human-led"

    async def work(desk: Desk) -> str:
        session_id = await one_session(desk, session)
        client = redis_client(desk.settings.redis_url)
        try:
            return await _Seat(desk, client, session_id, mode).sit()
        finally:
            await client.aclose()

    _put(f"{run(work, broker=True)}\n")


class _Seat:
    def __init__(self, desk: Desk, client: redis.asyncio.Redis, session_id: str, mode: Mode | None) -> None:
        self._desk = desk
        self._client = client
        self._session_id = session_id
        self._mode = mode
        self._led: str = "agent-led"
        self._by = getpass.getuser()[:100]
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._shown: ScreenChanged | None = None
        self._has_screen = False  # one of its own, to draw on

    async def sit(self) -> str:
        """Why it is over."""
        seen = asyncio.Event()
        following = asyncio.create_task(self._follow(seen))
        try:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await seen.wait()
            except TimeoutError:
                fail(f"no program shows a terminal in session {short(self._session_id)} now")
            with _raw(self._keys):
                self._has_screen = True
                self._draw()
                return await self._type(following)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, seen: asyncio.Event) -> str:
        async def ask() -> None:
            await self._send(Show())

        asking: list[asyncio.Task[None]] = []
        follower = Follower(
            self._desk.db, self._client, self._session_id, ready=lambda: asking.append(asyncio.create_task(ask()))
        )
        async for item in follower.events():
            if (ended := self._show(item)) is not None and seen.is_set():
                return ended
            if isinstance(item.event, ScreenChanged):
                seen.set()
        raise AssertionError("events never end")

    def _show(self, item: Envelope) -> str | None:
        match item.event:
            case ScreenChanged():
                self._shown = item.event
            case ControlChanged(mode=mode):
                self._led = mode
            case TurnEnded(status=status):
                return f"the turn has ended: {status}"
            case _:
                return None
        self._draw()
        return None

    def _draw(self) -> None:
        if self._shown is not None and self._has_screen:
            _draw(self._shown, f" {short(self._session_id)} · {self._led} · Ctrl-] leaves ")

    async def _type(self, following: "asyncio.Task[str]") -> str:
        """Whatever ends it, the agent leads again."""
        try:
            return await self._pass_on(following)
        finally:
            if self._mode is not None:
                await self._send(Control(mode="agent-led", by=self._by))

    async def _pass_on(self, following: "asyncio.Task[str]") -> str:
        await self._fit()
        if self._mode is not None:
            await self._send(Control(mode=self._mode, by=self._by))
        while True:
            pressed = asyncio.create_task(self._keys.get())
            await asyncio.wait({pressed, following}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                pressed.cancel()
                return following.result()
            if pressed.result() == RESIZED:
                await self._fit()
                self._draw()
                continue
            text, left, _ = pressed.result().partition(LEAVE)
            if text and self._mode is not None:
                for start in range(0, len(text), MAX_KEYS):
                    await self._send(Keys(text=text[start : start + MAX_KEYS], by=self._by))
            if left:
                return "left; the agent leads again" if self._mode is not None else "left"

    async def _fit(self) -> None:
        """Give the program's terminal the size of ours, but for the last line, which is ours."""
        size = shutil.get_terminal_size()
        rows, columns = min(max(2, size.lines - 1), MOST_ROWS), min(max(2, size.columns), MOST_COLUMNS)
        await self._send(Resize(rows=rows, columns=columns))

    async def _send(self, wish: Wish) -> None:
        await self._client.publish(control_channel(self._session_id), wish.model_dump_json())


@contextlib.contextmanager
def _raw(keys: "asyncio.Queue[str]") -> Iterator[None]:
    """Every key as it is pressed, and a screen of its own, until the block is left."""
    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read() -> None:
        try:
            data = os.read(keyboard, 65_536)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            loop.remove_reader(keyboard)
            keys.put_nowait(LEAVE)
        elif text := decoder.decode(data):
            keys.put_nowait(text)

    before = termios.tcgetattr(keyboard)
    _put(_SCREEN_ON)
    tty.setraw(keyboard)
    loop.add_reader(keyboard, read)
    for number in _ENDS:
        loop.add_signal_handler(number, keys.put_nowait, LEAVE)
    loop.add_signal_handler(signal.SIGWINCH, keys.put_nowait, RESIZED)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        for number in (*_ENDS, signal.SIGWINCH):
            loop.remove_signal_handler(number)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        _put(_SCREEN_OFF)


def _put(text: str) -> None:
    """On the screen. If that is gone the keyboard says so, and control is given back first."""
    with contextlib.suppress(OSError):
        sys.stdout.write(text)
        sys.stdout.flush()


def _cut(line: str, cells: int) -> str:
    return line if cell_len(line) <= cells else set_cell_size(line, cells)


def _draw(screen: ScreenChanged, status: str) -> None:
    """The whole screen: a program's text is not trusted to move our cursor."""
    size = shutil.get_terminal_size()
    rows = size.lines - 1
    lines = [_cut(visible(line), size.columns) for line in screen.lines[:rows]]
    drawn = "".join(f"\x1b[{number};1H\x1b[2K{line}" for number, line in enumerate(lines, 1))
    bar = f"\x1b[{size.lines};1H\x1b[2K\x1b[7m{status[: size.columns]}\x1b[0m"
    cursor = f"\x1b[{min(screen.row, rows - 1) + 1};{min(screen.column, size.columns - 1) + 1}H"
    _put(f"\x1b[?25l{drawn}\x1b[0J{bar}{cursor}\x1b[?25h")
