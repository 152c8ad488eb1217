"""`terminal`: any program that wants a terminal. What it is told is typed, and what its screen shows when it has been
quiet for a while is its answer. People can watch, and take over (`adapters/terminal_port.py`).

For programs without a better way to talk to them. Nothing in here knows what a program is about to do: there are no
approvals, only the sandbox."""

import asyncio
import contextlib
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final, get_args

from adapters.contracts import Capabilities, Detection, Manifest, QueryInput
from adapters.errors import ErrorClass, ProviderError, SandboxError, TerminalError
from adapters.events import ControlChanged, Mode, Progress, Result, ScreenChanged
from adapters.providers.cli.installation import find
from adapters.providers.cli.program import command_of, station_of
from adapters.providers.cli.query import ProgramQuery
from adapters.providers.cli.terminal.options import Options
from adapters.providers.cli.terminal.screen import Screen
from adapters.sandbox.bubblewrap import PATH
from adapters.sandbox.port import Command, SandboxProcess
from adapters.sandbox.terminal import MOST_COLUMNS, MOST_ROWS
from adapters.station import Needs
from adapters.uninterrupted import uninterrupted

ADAPTER_ID: Final = "terminal"
TERM: Final = "xterm-256color"
SHOW_SECONDS: Final = 0.2  # between two pictures of a screen that changes all the time
CHUNK: Final = 1 << 16
# A flood of output makes the program wait: drawing takes no more than this part of the time.
DRAWING: Final = 0.2
MOST_TYPED: Final = 1 << 16  # bytes that wait for a program that does not read
# A program that looks at how fast keys come would take Enter for a part of what was pasted.
ENTER_SECONDS: Final = 0.1
_NO_KEYS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class TerminalProvider:
    manifest = Manifest(
        adapter_id=ADAPTER_ID,
        version="1",
        vendor="longshore",
        kind="cli",
        capabilities=Capabilities(push=True, plain_texts=True),
    )
    needs = Needs(state=(), memory_bytes=200 << 20)

    async def detect(self) -> Detection:
        return Detection(True, version("pyte"), "runs the program that the option `command` names")

    def check(self, options: Mapping[str, Any]) -> None:
        Options.read(options)

    def query(self, given: QueryInput) -> "TerminalQuery":
        return TerminalQuery(given)

    async def close(self) -> None:
        return


class TerminalQuery(ProgramQuery):
    """A `Terminal` for whoever sits at it."""

    def __init__(self, given: QueryInput, options: Options | None = None) -> None:
        super().__init__(given)
        self._options = options or Options.read(given.options)
        self._screen = Screen(self._options.rows, self._options.columns, self._write)
        self._process: SandboxProcess | None = None
        self._mode: Mode = "agent-led"
        self._prompts: list[str] = []
        self._takes = True  # prompts
        self._news = asyncio.Event()  # it has drawn, or somebody has done something
        self._drawn = asyncio.Event()
        self._over = asyncio.Event()
        self._shown: ScreenChanged | None = None

    # --- People at the terminal ---

    async def type(self, text: str, by: str) -> None:
        if self._mode == "agent-led":
            raise TerminalError("the agent leads here: take over first (human-led), or work side by side (delegated)")
        self._alive()
        self._write(text)
        self._news.set()

    async def control(self, mode: Mode, by: str) -> None:
        self._alive()
        if mode not in get_args(Mode):
            raise TerminalError(f"{mode!r} is no way to lead; there are {', '.join(get_args(Mode))}")
        if mode != self._mode:
            self._mode = mode
            self._news.set()
            await self.say(ControlChanged(mode=mode, by=by))

    async def resize(self, rows: int, columns: int) -> None:
        process = self._alive()
        if not (1 < rows <= MOST_ROWS and 1 < columns <= MOST_COLUMNS):
            raise TerminalError(f"a terminal has 2 to {MOST_ROWS} rows and 2 to {MOST_COLUMNS} columns")
        self._screen.resize(rows, columns)
        process.resize(rows, columns)
        self._drawn.set()

    def show(self) -> ScreenChanged:
        return self._screen.show()

    def _alive(self) -> SandboxProcess:
        if self._process is None or self._over.is_set():
            raise TerminalError("no program runs in this terminal now")
        return self._process

    # --- The agent ---

    async def push(self, text: str) -> bool:
        if self._takes and self.status in ("starting", "running"):
            self._prompts.append(text)
            return True
        return False

    async def converse(self) -> None:
        self._prompts.insert(0, _text(self.given))
        await self.run(self._command())

    async def run(
        self, command: Command, continuation: str = "", version: str = "", note: str = "", *, told: bool = False
    ) -> None:
        """The program, until it has answered all that it was told. `told`: the first of it by `command` itself."""
        size = (self._options.rows, self._options.columns)
        try:
            self._process = process = await station_of(self.given).sandbox.start(replace(command, terminal=size))
        except SandboxError as error:
            raise ProviderError(f"the terminal could not be made: {error}", ErrorClass.INTERNAL) from error
        self.pid = process.pid
        work = [asyncio.create_task(self._read_all(process)), asyncio.create_task(self._tell())]
        try:
            await self.begin(continuation, version)
            if note:
                await self.say(Progress(text=note))
            await self._lead(process, told)
        finally:
            self._takes = False
            for task in work:
                task.cancel()
            await uninterrupted(process.stop())
            await asyncio.gather(*work, return_exceptions=True)

    async def _lead(self, process: SandboxProcess, told: bool) -> None:
        answered = False
        while True:
            await self._quiet()
            if self._over.is_set():
                break
            if told:
                answered = True
                await self._answer()
                if not self._prompts:
                    return
            told = True
            await self._type(self._prompts.pop(0))
        code = await process.wait()
        if process.passed is not None:
            raise ProviderError(f"the program used more {process.passed} than it may", ErrorClass.INTERNAL)
        if code and not answered:
            last = " / ".join(self.show().lines[-5:])
            raise ProviderError(f"the program ended with exit code {code}: {last[-500:]}", ErrorClass.INTERNAL)
        await self._answer()

    async def _quiet(self) -> None:
        """Until it has drawn nothing for a while, or is over. While a person leads it is not for us to say."""
        while not self._over.is_set():
            self._news.clear()
            try:
                async with asyncio.timeout(self._options.idle_seconds):
                    await self._news.wait()
            except TimeoutError:
                if self._mode != "human-led" and not self.is_at_work():
                    return

    def is_at_work(self) -> bool:
        """Whether it is known to be busy although it draws nothing."""
        return False

    async def _type(self, text: str) -> None:
        """Text, not keys: a message must not be able to press Ctrl-C."""
        while self._mode == "human-led" and not self._over.is_set():
            self._news.clear()
            await self._news.wait()
        text = _NO_KEYS.sub("", text)
        self._write(f"\x1b[200~{text}\x1b[201~" if self._screen.pastes else text)
        await asyncio.sleep(ENTER_SECONDS)
        self._write(self._options.prompt_keys)

    async def _answer(self) -> None:
        await self._show()
        if text := await self.read_answer():
            await self.say(Result(text=text))

    async def read_answer(self) -> str:
        """What it says, now that it is quiet: what can be seen."""
        return "\n".join(self.show().lines).strip("\n")

    # --- The screen ---

    async def _read_all(self, process: SandboxProcess) -> None:
        try:
            while data := await process.stdout.read(CHUNK):
                for text in self._screen.slices(data):
                    began = time.monotonic()
                    self._screen.draw(text)
                    self._drawn.set()
                    self._news.set()
                    await asyncio.sleep((time.monotonic() - began) * (1 / DRAWING - 1))
        finally:
            self._over.set()
            self._drawn.set()
            self._news.set()

    async def _tell(self) -> None:
        while True:
            await self._drawn.wait()
            await self._show()
            await asyncio.sleep(SHOW_SECONDS)

    async def _show(self) -> None:
        self._drawn.clear()
        shown = self.show()
        if shown != self._shown:
            self._shown = shown
            await self.say(shown)

    def _write(self, text: str) -> None:
        if self._process is None or self._over.is_set():
            return
        data = text.encode("utf-8", "replace")
        with contextlib.suppress(OSError, RuntimeError):
            if self._process.stdin.transport.get_write_buffer_size() + len(data) <= MOST_TYPED:
                self._process.stdin.write(data)

    def _command(self) -> Command:
        if not self._options.command:
            raise ProviderError(
                "no program is named: set the option `command` of the terminal provider, like [gemini]",
                ErrorClass.INVALID_REQUEST,
            )
        program, *arguments = self._options.command
        # One of the system's is found inside as well; others must be shown to it.
        ours = None if "/" in program or shutil.which(program, path=PATH) else find(program)
        argv = (*(ours.argv if ours else (program,)), *arguments)
        return command_of(self.given, argv, ours.readable if ours else (), env={"TERM": TERM})


def _text(given: QueryInput) -> str:
    """People's own words: a program in a terminal knows nothing of the marks around them."""
    return "\n".join(given.messages) or str(given.prompt)
