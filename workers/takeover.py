"""A person at the terminal of a program that runs for an agent: what they type or want comes on `control:{session}` and
is done in the order it came. Best effort, like any keyboard: a key that is lost is pressed again."""

import asyncio
import json
from typing import Annotated, Final, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from adapters.errors import TerminalError
from adapters.events import Mode, Progress
from adapters.sandbox.terminal import MOST_COLUMNS, MOST_ROWS
from adapters.terminal_port import Terminal
from workers.journal import Journal

log = structlog.get_logger()

MAX_KEYS: Final = 8192  # characters at once: a paste
WAITING: Final = 1000  # wishes; whoever sends more than a program takes is not listened to

Who = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class _Wish(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Keys(_Wish):
    do: Literal["type"] = "type"
    text: Annotated[str, StringConstraints(max_length=MAX_KEYS)]
    by: Who


class Control(_Wish):
    do: Literal["control"] = "control"
    mode: Mode
    by: Who


class Resize(_Wish):
    do: Literal["resize"] = "resize"
    rows: int = Field(ge=2, le=MOST_ROWS)
    columns: int = Field(ge=2, le=MOST_COLUMNS)


class Show(_Wish):
    """Somebody has just come and has seen nothing yet."""

    do: Literal["show"] = "show"


Wish = Keys | Control | Resize | Show
_WISH: Final[TypeAdapter[Wish]] = TypeAdapter(Annotated[Wish, Field(discriminator="do")])


class Takeover:
    """Open while the program runs."""

    def __init__(self, terminal: Terminal, journal: Journal) -> None:
        self._terminal = terminal
        self._journal = journal
        self._wishes: asyncio.Queue[Wish] = asyncio.Queue(WAITING)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Takeover":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def hear(self, raw: bytes) -> None:
        try:
            self._wishes.put_nowait(_WISH.validate_python(json.loads(raw)))
        except (ValueError, ValidationError):
            log.warning("takeover.not_understood", turn=self._journal.turn_id)
        except asyncio.QueueFull:
            log.warning("takeover.too_much", turn=self._journal.turn_id)

    async def _run(self) -> None:
        while True:
            try:
                await self._do(await self._wishes.get())
            except TerminalError as error:
                self._journal.add(Progress(text=str(error)))

    async def _do(self, wish: Wish) -> None:
        match wish:
            case Keys():
                await self._terminal.type(wish.text, wish.by)
            case Control():
                await self._terminal.control(wish.mode, wish.by)
            case Resize():
                await self._terminal.resize(wish.rows, wish.columns)
            case Show():
                self._journal.add(self._terminal.show())
