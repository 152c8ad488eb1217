"""A change as git writes it (a unified diff), taken apart into files and lines to be shown. What is in it was written
by agents and repositories: a line counts as what its hunk says it is, whatever it looks like."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, NamedTuple

Kind = Literal["same", "gone", "new", "hunk", "note"]
MOST_LINES: Final = 4000  # of one change; the rest is in the repository
_LONGEST: Final = 2000  # characters of a line
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_KINDS: Final[dict[str, Kind]] = {" ": "same", "": "same", "-": "gone", "+": "new"}


class Line(NamedTuple):
    kind: Kind
    text: str


@dataclass
class Patch:
    """What became of one file. `added` and `removed`: lines, of those that are shown."""

    name: str
    lines: list[Line] = field(default_factory=list)

    @property
    def added(self) -> int:
        return sum(line.kind == "new" for line in self.lines)

    @property
    def removed(self) -> int:
        return sum(line.kind == "gone" for line in self.lines)


@lru_cache(maxsize=50)  # people open the same again
def patches_of(diff: str) -> tuple[Patch, ...]:
    patches: list[Patch] = []
    for number, (name, line) in enumerate(_read(diff)):
        if name is not None or not patches:
            patches.append(Patch(name or ""))
        if number >= MOST_LINES:
            patches[-1].lines.append(Line("note", "… the rest of the change is not shown here"))
            break
        if line is not None:
            patches[-1].lines.append(line)
    return tuple(patches)


def _read(diff: str) -> Iterator[tuple[str | None, Line | None]]:
    """Names of files, where one begins, and lines."""
    old = new = 0  # lines of the hunk that are still to come
    for text in diff.split("\n"):
        line = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        if line.startswith("diff --git "):  # what a file holds stands behind a sign
            old = new = 0
            yield _name(line), None
        elif old > 0 or new > 0:
            kind = _KINDS.get(line[:1], "note")
            old -= kind in ("same", "gone")
            new -= kind in ("same", "new")
            yield None, Line(kind, line)
        elif found := _HUNK.match(line):
            old, new = (int(count) if count is not None else 1 for count in found.groups())
            yield None, Line("hunk", line)
        elif line and not line.startswith(("--- ", "+++ ", "index ")):
            yield None, Line("note", line)


def _name(line: str) -> str:
    """Of `diff --git a/old b/new`: the new one, which is mostly the old one too."""
    both = line.removeprefix("diff --git ")
    half = len(both) // 2
    if both[:half].removeprefix("a/") == both[half + 1 :].removeprefix("b/"):
        return both[half + 1 :].removeprefix("b/")
    return both.rpartition(" b/")[2] if " b/" in both else both
