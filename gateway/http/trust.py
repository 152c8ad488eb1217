"""What was looked up a moment ago and is believed for a second, by routes that are asked very often.

Nothing else may be decided by it: whoever was sent away, or has lost a role, goes on for so long there."""

import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

TRUST_SECONDS: Final = 1.0
MOST: Final = 1000


@dataclass
class _Entry(Generic[T]):
    value: T
    at: float
    is_asked: bool = False


class Trust(Generic[T]):
    """Made once per gateway, for one kind of question."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _Entry[T]] = {}

    def get(self, key: Hashable) -> T | None:
        """None: look it up, and `put` it or `forget` it. One is told so before the time is over: when it is, all who
        come at once would look."""
        entry = self._known.get(key)
        if entry is None:
            return None
        age = time.monotonic() - entry.at
        if age > TRUST_SECONDS or (age > TRUST_SECONDS / 2 and not entry.is_asked):
            entry.is_asked = True
            return None
        return entry.value

    def put(self, key: Hashable, value: T, at: float) -> None:
        """`at`: by time.monotonic(), before it was looked up."""
        self._known.pop(key, None)
        self._known[key] = _Entry(value, at)
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def forget(self, key: Hashable) -> None:
        self._known.pop(key, None)
