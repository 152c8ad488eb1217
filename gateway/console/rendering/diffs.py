"""Two texts as one, with what is gone and what is new marked: word by word, or line by line where that is too much."""

import difflib
import re
from collections import Counter
from functools import lru_cache
from typing import Final, Literal, NamedTuple

Op = Literal["same", "gone", "new"]
MAX_PIECES: Final = 2000
# Comparing looks at every pair of the same pieces, again for each that is found to be the same: that is the square, and
# the cube where a text says the same again and again.
MAX_STEPS: Final = 5_000_000
_WORDS: Final = re.compile(r"\s+|\w+|[^\w\s]")
_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")


class Piece(NamedTuple):
    op: Op
    text: str


@lru_cache(maxsize=200)  # a page asks for the same every two seconds
def difference(old: str, new: str) -> list[Piece] | None:
    """None: too much to compare."""
    if old == new:
        return [Piece("same", old)]
    for pattern in (_WORDS, _LINES):
        before, after = pattern.findall(old), pattern.findall(new)
        if steps(before, after) <= MAX_STEPS:
            return _pieces(before, after)
    return None


def steps(before: list[str], after: list[str]) -> int:
    """At most so many are needed; found out without taking them."""
    if max(len(before), len(after)) > MAX_PIECES:
        return MAX_STEPS + 1
    ours, theirs = (Counter(piece for piece in side if not piece.isspace()) for side in (before, after))
    both = ours.keys() & theirs.keys()
    return sum(ours[piece] * theirs[piece] for piece in both) * sum(min(ours[piece], theirs[piece]) for piece in both)


def _pieces(before: list[str], after: list[str]) -> list[Piece]:
    pieces: list[Piece] = []
    # What is between words is no reason to call them the same, and there is too much of it to compare.
    for op, a, b, c, d in difflib.SequenceMatcher(str.isspace, before, after, autojunk=False).get_opcodes():
        if op == "equal":
            pieces.append(Piece("same", "".join(before[a:b])))
            continue
        if a < b:
            pieces.append(Piece("gone", "".join(before[a:b])))
        if c < d:
            pieces.append(Piece("new", "".join(after[c:d])))
    return pieces
