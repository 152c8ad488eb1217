"""The port of a sandbox: a place where a program of an agent runs, and nothing outside its workspace is to be had.

No network except named hosts through a local proxy, a read-only system, a /tmp of its own, the agent's folder as
/workspace, an environment of only what is handed in, and limits. Children die with whoever started them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

WORKSPACE = "/workspace"
HOME = "/home/agent"


@dataclass(frozen=True)
class SandboxLimits:
    """Whoever passes one is ended. `memory_bytes` counts all its processes together, `output_bytes` what they print,
    `file_bytes` one file, `disk_bytes` the whole workspace, and as much again the home."""

    seconds: float = 60.0
    memory_bytes: int = 1 << 30
    output_bytes: int = 10 << 20
    processes: int = 128
    file_bytes: int = 256 << 20
    disk_bytes: int = 2 << 30


@dataclass(frozen=True)
class Door:
    """A service of the host that the program finds at 127.0.0.1:`port`; `socket` is where it listens out here."""

    port: int
    socket: Path


@dataclass(frozen=True)
class Command:
    """`folder` is where it starts, relative to the workspace; None: outside it, where no agent has put anything that a
    launcher would pick up. `hosts` are names that may be reached. `readable` are folders of the host
    that it may read and run from, at their own paths: where a program lives that is not below /usr. `home` is a folder
    of the host that becomes its HOME, to be written; without one, HOME is /tmp. `terminal` are the rows and columns of
    a terminal that it runs in: what it prints, errors too, is what the terminal is sent. `parting_seconds` it has after
    a TERM to put its things in order."""

    argv: tuple[str, ...]
    workspace: Path
    folder: str | None = "."
    env: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    readable: tuple[Path, ...] = ()
    home: Path | None = None
    doors: tuple[Door, ...] = ()
    limits: SandboxLimits = SandboxLimits()
    terminal: tuple[int, int] | None = None
    parting_seconds: float = 1.0


@dataclass(frozen=True)
class Probe:
    """Whether the sandbox holds here. If not: why, and what to do about it."""

    ok: bool
    detail: str
    fix: str = ""


class SandboxProcess(Protocol):
    """A program under way. `memory_bytes`, `processes`, `file_bytes` and `disk_bytes` are watched for it; its time
    and what it prints are the reader's business."""

    @property
    def pid(self) -> int:
        """Of our child, which holds the program: its end is the program's."""

    @property
    def stdin(self) -> asyncio.StreamWriter: ...

    @property
    def stdout(self) -> asyncio.StreamReader: ...

    @property
    def stderr(self) -> asyncio.StreamReader: ...

    @property
    def passed(self) -> Literal["memory", "disk"] | None:
        """The limit it was ended for."""

    def resize(self, rows: int, columns: int) -> None:
        """Of its terminal, if it has one."""

    async def wait(self) -> int:
        """Its exit code."""

    async def stop(self) -> None:
        """End it and everything it has started: close its input, wait, TERM, wait, KILL. Returns when it is gone; may
        be called twice."""


class Sandbox(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def confines(self) -> bool:
        """Whether what runs in it is kept from the host. If not, nothing of an agent's is run that need not be."""

    def place(self, command: Command) -> tuple[str, str]:
        """Where its workspace and its home are, as the program sees them."""

    def ports(self, count: int) -> tuple[int, ...]:
        """Ports for the doors of a program that is started next."""

    async def probe(self) -> Probe:
        """Try it for real: start a program, and see that what must not work does not."""

    async def start(self, command: Command) -> SandboxProcess:
        """Raises SandboxError if it cannot be started."""
