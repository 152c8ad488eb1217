"""A CLI agent under way: started in the sandbox, talked to line by line, and ended with all it has started.

Its environment is what is handed in here and nothing else. What it prints on stderr is passed on as events, and its
last words are kept for the case that it breaks."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from adapters.contracts import QueryInput
from adapters.errors import ErrorClass, ProviderError, SandboxError
from adapters.events import Stderr
from adapters.providers.cli.home import put
from adapters.providers.cli.installation import Installation
from adapters.providers.cli.lines import CHUNK, lines
from adapters.sandbox.port import Command, Door, SandboxLimits, SandboxProcess
from adapters.station import Station
from adapters.uninterrupted import uninterrupted

GB: Final = 1 << 30
# They keep whole conversations in memory, and run compilers and tests.
LIMITS: Final = SandboxLimits(memory_bytes=4 * GB, processes=1024, file_bytes=2 * GB, disk_bytes=8 * GB)
LAST_WORDS: Final = 20  # lines
STDERR_LINES: Final = 500  # events; a program that complains for ever is not listened to for ever
STDERR_LINE: Final = 2_000  # characters
EXIT_SECONDS: Final = 10.0
PARTING_SECONDS: Final = 5.0  # to write down what it remembers

Say = Callable[[Stderr], Awaitable[None]]


class Program:
    def __init__(self, name: str, process: SandboxProcess, say: Say) -> None:
        self._name = name
        self._process = process
        self.pid = process.pid
        self._say = say
        self._writing = asyncio.Lock()
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS)
        self._listening = asyncio.create_task(self._listen())

    def lines(self) -> AsyncIterator[str]:
        """What it prints, up to its end."""
        return lines(self._process.stdout)

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """What it prints, as JSON objects. Empty lines are passed over; anything else is an error."""
        async for line in self.lines():
            if line.strip():
                yield parse(self._name, line)

    async def write(self, message: Mapping[str, Any]) -> bool:
        """One line of JSON. False: it does not read any more."""
        async with self._writing:
            try:
                self._process.stdin.write(json.dumps(message).encode() + b"\n")
                await self._process.stdin.drain()
            except (OSError, RuntimeError):
                return False
        return True

    def close_input(self) -> None:
        """No more input comes: most programs finish what they do and end."""
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.close()

    async def stop(self) -> None:
        await self._process.stop()
        await self._end_listening()

    async def ended(self) -> int:
        """Its exit code; it is stopped if it does not end although its output has."""
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                code = await self._process.wait()
        except TimeoutError:
            await self._process.stop()
            code = await self._process.wait()
        await self._end_listening()
        return code

    def broke(self, code: int) -> ProviderError:
        """The error of a program that ended without saying how it went."""
        if self._process.passed is not None:
            what = {
                "memory": f"used more than the {LIMITS.memory_bytes >> 30} GB of memory it may",
                "disk": "wrote more than its workspace and home may hold",
            }
            return ProviderError(f"{self._name} was ended: it {what[self._process.passed]}", ErrorClass.INTERNAL)
        last = " / ".join(word for word in self._last_words if word.strip())
        return ProviderError(
            f"{self._name} ended with exit code {code} and no answer{f': {last[-500:]}' if last else ''}",
            ErrorClass.INTERNAL,
        )

    async def _listen(self) -> None:
        number = 0
        async for line in _beginnings(self._process.stderr):
            self._last_words.append(line)
            number += 1
            if line.strip() and number <= STDERR_LINES:
                await self._say(Stderr(text=line))

    async def _end_listening(self) -> None:
        """What is in the pipe is there at once; whoever holds it open is not waited for."""
        await asyncio.wait({self._listening}, timeout=1)
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)


@asynccontextmanager
async def started(
    installation: Installation,
    arguments: Sequence[str],
    given: QueryInput,
    say: Say,
    *,
    env: Mapping[str, str],
    doors: Sequence[Door] = (),
    files: Mapping[str, str] | None = None,
    outside: bool = False,
) -> AsyncIterator[Program]:
    """The program, in the agent's workspace with its own home; gone when this is left, whatever happens. `files` are
    put into the home before (path below it: text), for the settings it reads. `outside`: it begins where no agent has
    put settings, and is told later where the workspace is."""
    await lay_out(given, files or {})
    command = command_of(given, (*installation.argv, *arguments), installation.readable, env=env, doors=doors)
    try:
        process = await station_of(given).sandbox.start(replace(command, folder=None) if outside else command)
    except SandboxError as error:
        raise ProviderError(f"{installation.name} could not be started: {error}", ErrorClass.INTERNAL) from error
    program = Program(installation.name, process, say)
    try:
        yield program
    finally:
        await uninterrupted(program.stop())


async def lay_out(given: QueryInput, files: Mapping[str, str]) -> None:
    """Put files into the program's home (path below it: text)."""
    for path, text in files.items():
        await asyncio.to_thread(put, station_of(given).home, path, text)


def command_of(
    given: QueryInput, argv: Sequence[str], readable: Sequence[Path], *, env: Mapping[str, str],
    doors: Sequence[Door] = (),
) -> Command:  # fmt: skip
    """What is run in the sandbox: in the workspace, with its home, and nothing in its environment but this."""
    return Command(
        argv=tuple(argv),
        workspace=Path(given.cwd),
        env={**env, **given.env},
        hosts=given.policy.hosts,
        readable=(*readable, *map(Path, given.extra_directories)),
        home=station_of(given).home,
        doors=tuple(doors),
        limits=LIMITS,
        parting_seconds=PARTING_SECONDS,
    )


def station_of(given: QueryInput) -> Station:
    if given.station is None:
        raise ProviderError("a CLI agent runs in a sandbox, and there is none here", ErrorClass.INVALID_REQUEST)
    return given.station


def place_of(given: QueryInput) -> tuple[str, str]:
    """Where its workspace and its home are, as the program will see them."""
    station = station_of(given)
    return station.sandbox.place(Command(argv=(), workspace=Path(given.cwd).absolute(), home=station.home.absolute()))


async def _beginnings(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """The first STDERR_LINE characters of each line. Read to the end whatever comes: a full pipe stops the program."""
    most, begun = 4 * STDERR_LINE, b""  # bytes; a character has at most four
    while chunk := await stream.read(CHUNK):
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            yield _beginning(begun + piece)
            begun = b""
        begun = (begun + rest)[:most]
    if begun:
        yield _beginning(begun)


def _beginning(line: bytes) -> str:
    return line.decode("utf-8", "replace").removesuffix("\r")[:STDERR_LINE]


def parse(name: str, line: str) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):  # the latter if it is nested a thousand times
        message = None
    if not isinstance(message, dict):
        raise ProviderError(f"{name} said something that is no JSON object: {line[:200]!r}", ErrorClass.INTERNAL)
    return message
