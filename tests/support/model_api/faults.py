"""How the stand-in misbehaves: one fault is one thing that goes wrong, and a queue says for which requests.

Faults are plain data, so that a script file and another process (`POST /_faults`) can ask for them too."""

import re
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import field
from itertools import count
from typing import Literal, TypedDict, Unpack

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from tests.support.model_api.conversation import Conversation, WireName
from tests.support.model_api.refusals import ErrorName, Form

Kind = Literal["refuse", "error_event", "cut", "truncate", "drop", "hang", "stall", "garbage", "drip"]
Predicate = Callable[[Conversation], bool]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Fault:
    """`after` counts bytes of the body, for `error_event` whole events; None is the middle of the answer.

    `times` is for how many requests it lasts: None is until told otherwise. With `each`, that is counted for every
    user text on its own, so that the first attempt of each of many conversations goes wrong."""

    kind: Kind
    error: ErrorName = "overloaded"
    after: int | None = None
    retry_after: float | None = None
    status: int | None = None
    message: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    form: Form = "nested"
    garbage: Literal["html", "json"] = "html"
    pause: float = 0.01
    size: int = 16
    times: int | None = 1
    each: bool = False
    when: str | None = None
    wire: WireName | None = None

    def fits(self, conversation: Conversation) -> bool:
        if self.wire is not None and self.wire != conversation.wire:
            return False
        return self.when is None or re.search(self.when, conversation.text) is not None


class Scope(TypedDict, total=False):
    """Which requests a fault is for; every constructor below takes these."""

    times: int | None
    each: bool
    when: str | None
    wire: WireName | None


def refuse(
    error: ErrorName,
    *,
    retry_after: float | None = None,
    status: int | None = None,
    message: str | None = None,
    headers: dict[str, str] | None = None,
    **scope: Unpack[Scope],
) -> Fault:
    """An HTTP error with the vendor's own body; `retry_after` in seconds, sent as the header."""
    return Fault(
        "refuse", error, retry_after=retry_after, status=status, message=message, headers=headers or {}, **scope
    )


def error_event(
    error: ErrorName = "overloaded", *, after: int | None = None, form: Form = "nested", **scope: Unpack[Scope]
) -> Fault:
    """Status 200, and an error after `after` events. `form` matters to Responses only, whose servers send all three."""
    return Fault("error_event", error, after=after, form=form, **scope)


def cut(after: int | None = None, **scope: Unpack[Scope]) -> Fault:
    """The connection breaks after exactly so many bytes of the body."""
    return Fault("cut", after=after, **scope)


def truncate(after: int | None = None, **scope: Unpack[Scope]) -> Fault:
    """The body ends in good order after so many bytes: HTTP sees nothing wrong, the answer lacks its end."""
    return Fault("truncate", after=after, **scope)


def drop(**scope: Unpack[Scope]) -> Fault:
    """The connection is closed without a word."""
    return Fault("drop", **scope)


def hang(**scope: Unpack[Scope]) -> Fault:
    """Nothing comes, not even headers, until `release()`, the client's end or the server's."""
    return Fault("hang", **scope)


def stall(after: int | None = None, **scope: Unpack[Scope]) -> Fault:
    """After so many bytes nothing more comes until `release()`, the client's end or the server's."""
    return Fault("stall", after=after, **scope)


def garbage(what: Literal["html", "json"] = "html", **scope: Unpack[Scope]) -> Fault:
    """Status 200 and a proxy's page instead of a stream, or a stream with broken JSON in the middle."""
    return Fault("garbage", garbage=what, **scope)


def drip(pause: float = 0.01, size: int = 16, **scope: Unpack[Scope]) -> Fault:
    """`size` bytes at a time, without regard for lines or events, `pause` seconds apart."""
    return Fault("drip", pause=pause, size=size, **scope)


class FaultQueue:
    """Faults in the order in which they were asked for; the first that fits a request is used up by it."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, Fault, Predicate | None]] = []
        self._numbers = count()
        self._used: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def add(self, fault: Fault, predicate: Predicate | None = None) -> None:
        with self._lock:
            self._entries.append((next(self._numbers), fault, predicate))

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._used.clear()

    def take(self, conversation: Conversation) -> Fault | None:
        with self._lock:
            for number, fault, predicate in self._entries:
                fits = fault.fits(conversation) and (predicate is None or predicate(conversation))
                if fits and self._use(fault, number, conversation):
                    return fault
        return None

    def take_scripted(self, place: Hashable, faults: Iterable[Fault], conversation: Conversation) -> Fault | None:
        """Faults of a rule or a reply; `place` says which one, as equal replies count apart."""
        with self._lock:
            for number, fault in enumerate(faults):
                if fault.fits(conversation) and self._use(fault, (place, number), conversation):
                    return fault
        return None

    def _use(self, fault: Fault, place: Hashable, conversation: Conversation) -> bool:
        counted = (place, conversation.text) if fault.each else place
        if fault.times is not None and self._used[counted] >= fault.times:
            return False
        self._used[counted] += 1
        return True
