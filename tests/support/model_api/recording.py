"""What the stand-in was sent. Requests arrive on the server's loop and are read from tests' threads."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.model_api.conversation import Conversation, WireName

# hanging: held back until `release()`; left: the client closed before the end
Outcome = Literal["running", "hanging", "answered", "refused", "cut", "left"]
_SECRET = {"authorization", "x-api-key", "x-goog-api-key", "cookie"}


@dataclass
class Recorded:
    """One request. `body` is None when it was no JSON object, or when bodies are not kept. `side` are those that a
    program makes for itself: titles, probes."""

    number: int
    path: str
    headers: dict[str, str]  # names in lower case
    raw: bytes
    key: str | None
    wire: WireName
    time: float = field(default_factory=time.time)
    body: dict[str, Any] | None = None
    conversation: Conversation | None = None
    status: int | None = None
    outcome: Outcome = "running"
    fault: str | None = None
    side: bool = False
    problems: list[str] = field(default_factory=list)

    def public(self, bodies: bool = False) -> dict[str, Any]:
        """As JSON for other processes, without what could be a secret."""
        seen = self.conversation
        facts: dict[str, Any] = {
            "number": self.number,
            "time": self.time,
            "path": self.path,
            "wire": self.wire,
            "model": seen.model if seen else None,
            "text": seen.text if seen else None,
            "rounds": seen.rounds if seen else None,
            "status": self.status,
            "outcome": self.outcome,
            "fault": self.fault,
            "side": self.side,
            "problems": self.problems,
            "headers": {name: value for name, value in self.headers.items() if name not in _SECRET},
        }
        return facts | {"body": self.body} if bodies else facts


class Recorder:
    def __init__(self, bodies: bool = True) -> None:
        self._bodies = bodies
        self._all: list[Recorded] = []
        self._changed = threading.Condition()

    def add(self, path: str, headers: dict[str, str], raw: bytes, key: str | None, wire: WireName) -> Recorded:
        with self._changed:
            made = Recorded(len(self._all) + 1, path, headers, raw if self._bodies else b"", key, wire)
            self._all.append(made)
            self._changed.notify_all()
        return made

    def update(self, recorded: Recorded, **facts: Any) -> None:
        with self._changed:
            for name, value in facts.items():
                setattr(recorded, name, value)
            self._changed.notify_all()

    def all(self) -> list[Recorded]:
        with self._changed:
            return list(self._all)

    def clear(self) -> None:
        with self._changed:
            self._all.clear()

    def wait(self, count: int, outcome: Outcome | None = None, timeout: float = 10.0) -> None:
        """Until `count` requests have arrived, or have come to this outcome; blocks the calling thread."""

        def enough() -> bool:
            return sum(outcome is None or one.outcome == outcome for one in self._all) >= count

        with self._changed:
            if not self._changed.wait_for(enough, timeout):
                found = [(one.path, one.status, one.outcome) for one in self._all]
                raise TimeoutError(f"{count} requests ({outcome or 'arrived'}) did not come in {timeout} s: {found}")
