"""The names of a workflow's boundaries. Each begins with the stage (or what else) it is passed in, so that it is the
same boundary for every process that comes by, however many have died before."""

from collections.abc import Sequence
from typing import Final

from tests.support.boundary_marks import FLUSH

BEFORE_GIT, DURING, AFTER_GIT = "before git: ", "while git is at work: ", "after git: "
LOCKED, HALF = "lock left by git: ", "half done by git: "
ON_HOST: Final = "host "
MOVE: Final = "host update-ref"
OVER: Final = "over"
OUTSIDE: Final = "outside"  # the stages: leases that are renewed, and the end
SHOWN: Final = "shown.jsonl"
BETWEEN: Final = " | "
_BEFORE, _AFTER = "before ", "after "
_EACH: Final = ("advance", "decide")


def named(where: str, what: str) -> str:
    return f"{where}{BETWEEN}{what}"


def is_sure(boundary: str) -> bool:
    """Whether events are written on their own or with something else is a matter of milliseconds; all else is sure."""
    return FLUSH not in boundary and not boundary.startswith(OUTSIDE)


def is_settled(boundary: str) -> bool:
    """Whether every life comes by. One that goes on after a death looks around more, and may find two tasks in another
    order."""
    return not boundary.startswith(("advance", "sweep", "delivery")) and " #" not in boundary


def kinds_once(boundaries: Sequence[str]) -> list[str]:
    """One boundary of each kind: the kind of a stage (or what else it is passed in) and what is done there. Of those
    that are alike, the first task and round stands for the others. Between stages, and where a person decides, each is
    a kind of its own."""
    found: dict[tuple[str, str], str] = {}
    for boundary in boundaries:
        where, _, what = boundary.partition(BETWEEN)
        kind = where.split(" ")[0]
        found.setdefault((where if kind in _EACH else kind, what.partition(" #")[0]), boundary)
    return list(found.values())


def apart(boundaries: Sequence[str]) -> list[str]:
    """Without those that find everything as the boundary before them has left it; but with both sides of a person's
    decision."""
    kept = []
    for earlier, boundary in zip(("", *boundaries), boundaries, strict=False):
        alike = BETWEEN + _BEFORE in boundary and (BETWEEN + _BEFORE in earlier or BETWEEN + _AFTER in earlier)
        if not alike or boundary.startswith("decide"):
            kept.append(boundary)
    return kept


def dealt(boundaries: Sequence[str], hands: int) -> list[list[str]]:
    """To so many lives of the story, so that those of one life are far apart."""
    return [list(boundaries[start::hands]) for start in range(hands)]
