"""Boundaries: moments at which a process may die. Each has a name; passing it writes that to the trace.

The trace is a file outside the database. What a process has written to a file survives its SIGKILL: only a crash of the
machine would need a sync. Knows no SDK, so that whoever only judges traces need not load them."""

import os
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from workers.model_journal import ModelJournal
from workers.toolbox import JournaledToolBox

BEFORE_COMMIT, AFTER_COMMIT = "before commit: ", "after commit: "
BEFORE_EFFECT, AFTER_EFFECT = "before effect: ", "after effect: "
BEFORE_DELIVERY, AFTER_DELIVERY = "before delivery: ", "after delivery: "
ASKING, FIRST_PIECE, ARRIVED, HEARD = "asking: ", "first piece: ", "reply arrived: ", "reply heard: "
FLUSH = "flush"
BEGIN, END = JournaledToolBox._begin.__qualname__, JournaledToolBox._finish.__qualname__
RECORD, COMPLETE = ModelJournal.finish.__qualname__, "Ending.complete"
OVER = "over"  # passed last by a process that was not killed
BETWEEN = " | "
_place: ContextVar[str] = ContextVar("place", default="")


@dataclass(frozen=True)
class Case:
    """What a worker is asked to run: to the end, or to the first boundary of `kill_at` that it comes to. `life`: how
    many have died before it. `warms`: in the server itself, not in a fork."""

    folder: str
    database_url: str
    redis_url: str
    options: Mapping[str, str] = field(default_factory=dict)
    life: int = 0
    kill_at: tuple[str, ...] = ()
    warms: bool = False

    @property
    def name(self) -> str:
        return Path(self.folder).name

    @property
    def trace(self) -> Path:
        return Path(self.folder) / f"trace.{self.life}"

    @property
    def effects(self) -> Path:
        return Path(self.folder) / "effects"

    @property
    def shown(self) -> Path:
        return Path(self.folder) / "shown.jsonl"


class Marks:
    """Passes boundaries, and dies at the first deadly one. A name that comes again gets a number."""

    def __init__(self, path: Path, kill_at: Iterable[str] = ()) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._kill_at = frozenset(kill_at)
        self._seen: Counter[str] = Counter()

    def __call__(self, name: str) -> None:
        if where := _place.get():
            name = f"{where}{BETWEEN}{name}"
        self._seen[name] += 1
        if (times := self._seen[name]) > 1:
            name = f"{name} #{times}"
        os.write(self._file, f"{name}\n".encode())
        if name in self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def place(where: str) -> Iterator[None]:
    """Names that begin with where they are passed are the same for every process, however many have died before."""
    token = _place.set(where)
    try:
        yield
    finally:
        _place.reset(token)


def around_commits(*commits: str) -> set[str]:
    return {f"{side}{commit}" for side in (BEFORE_COMMIT, AFTER_COMMIT) for commit in commits}


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
