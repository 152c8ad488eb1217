"""Regular expressions of wirings. Whoever writes to a place makes them run, on the loop that everything else runs on,
and a search cannot be stopped: so one that could take long is not taken."""

import re
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

# Python's own, but not for everybody: the type checker may know them or not.
ops: Any = import_module("re._constants")
parser: Any = import_module("re._parser")

MAX_PATTERN: Final = 500
MAX_SEARCHED: Final = 500  # characters of a text
# In how many ways a pattern may be tried on one text. At worst that takes a fifth of a second.
MAX_WAYS: Final = 60_000_000


def find_fault(pattern: str) -> str | None:
    """Why a pattern cannot be taken; None: it can."""
    found = _judge(pattern)
    return found if isinstance(found, str) else None


def matches(pattern: str, text: str) -> bool:
    """One that cannot be taken matches nothing."""
    found = _judge(pattern)
    return not isinstance(found, str) and found.search(text[:MAX_SEARCHED]) is not None


@lru_cache(1000)
def _judge(pattern: str) -> re.Pattern[str] | str:
    if not pattern:
        return "is empty: it would match everything"
    if len(pattern) > MAX_PATTERN:
        return f"has {len(pattern)} characters; at most {MAX_PATTERN} are taken"
    try:
        compiled = re.compile(pattern, re.IGNORECASE)
        tree = parser.parse(pattern, re.IGNORECASE)
        ways = _starts(tree) * _ways(tree)
    except (re.error, OverflowError) as error:
        return f"is not a regular expression: {error}"
    except RecursionError:
        return "is nested too deeply"
    except _BackwardError:
        return "refers back to what it found, which can take for ever"
    if ways > MAX_WAYS:
        return "could take too long: begin it with a word or ^, use fewer of * and +, and none inside of another"
    return compiled


class _BackwardError(Exception):
    """It compares with a part of the text that it found before."""


def _starts(tree: Any) -> int:
    """At how many places of a text it is tried: words it begins with fit only so often."""
    first = tree[0] if len(tree) else None
    if first is not None and first[0] is ops.AT and first[1] in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING):
        return 1
    words = 0
    while words < len(tree) and tree[words][0] is ops.LITERAL:
        words += 1
    return MAX_SEARCHED // max(words, 1)


def _ways(tree: Any) -> int:
    """In how many ways, at most, a pattern can be laid over a text from one place on. Never too few, often too many:
    what excludes each other is counted as if it did not."""
    ways = 1
    for op, what in tree:
        ways = min(ways * _ways_of(op, what), MAX_WAYS + 1)
    return ways


def _ways_of(op: Any, what: Any) -> int:
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
        least, most, item = what
        return _repeated(_ways(item), int(least), min(int(most), MAX_SEARCHED))
    if op is ops.BRANCH:
        return sum(_ways(one) for one in what[1])
    if op in (ops.SUBPATTERN, ops.ATOMIC_GROUP, ops.ASSERT, ops.ASSERT_NOT):
        return _ways(what if op is ops.ATOMIC_GROUP else what[-1])
    if op in (ops.GROUPREF, ops.GROUPREF_EXISTS):
        raise _BackwardError
    return 1


def _repeated(ways: int, least: int, most: int) -> int:
    if ways == 1:
        return max(most - least, 0) + 1
    total = 0
    for times in range(least, max(most, least) + 1):
        total += ways**times
        if total > MAX_WAYS:
            return MAX_WAYS + 1
    return total
