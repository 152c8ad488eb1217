"""What a program that is an agent gets of the fleet: a sandbox, a home, our tools, and somebody to ask before it acts.

Providers whose agent is a program of its own (`ProgramProvider`) find it in `QueryInput.station`. The home holds the
program's own memory of a conversation: the fleet keeps what `Needs.state` names and lays it out on whichever machine
runs the next turn."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol, runtime_checkable

from adapters.contracts import Provider, ToolBox
from adapters.risk import Intent
from adapters.sandbox.port import Sandbox

MCP_SERVER: Final = "longshore"  # how a program knows our tools: mcp__longshore__send_message and the like


@dataclass(frozen=True)
class ToolDoor:
    """Our MCP server (streamable HTTP at /mcp), for one turn: where it listens, and what opens it."""

    socket: Path
    token: str = field(repr=False)


@dataclass(frozen=True)
class Permission:
    """`wait`: a person has been asked. The program is told `why`, and ended: the turn goes on when there is an answer.
    The other fields say what was asked for."""

    word: Literal["allow", "deny", "wait"]
    why: str = ""
    category: str = ""
    summary: str = ""
    risk: Literal["low", "medium", "high"] = "low"


class Guard(Protocol):
    async def ask(self, intent: Intent) -> Permission:
        """Whether the program may do what it says it is about to."""


class ToolDoors(Protocol):
    def open(self, tools: ToolBox) -> AbstractAsyncContextManager[ToolDoor]:
        """The tools can be called while this is open."""


@dataclass(frozen=True)
class Station:
    """`home` is a folder of the host, private to this attempt."""

    sandbox: Sandbox
    home: Path
    tool_doors: ToolDoors
    guard: Guard


@dataclass(frozen=True)
class Needs:
    """`state`: what of its home a program needs to go on with a conversation, as glob patterns relative to it.
    `memory_bytes`: what a session takes, for admission. `program`: what has to be installed, if that is always the
    same."""

    state: tuple[str, ...]
    memory_bytes: int
    program: str = ""


@runtime_checkable
class ProgramProvider(Provider, Protocol):
    """A provider whose agent is a program: it gets a Station."""

    @property
    def needs(self) -> Needs: ...

    async def close(self) -> None: ...
