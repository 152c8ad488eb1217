"""What a timeline consists of: the entries of a turn, each with the key that is its element's id in the page. Plain
data; `turn_view` makes them of events, `templates/timeline.html` shows them."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from models.base import AnyRow

Tone = Literal["", "good", "warn", "bad"]


@dataclass
class Entry:
    key: str
    at: datetime
    kind: ClassVar[str]


@dataclass
class Received(Entry):
    """A message the turn answers. `joined`: it came while the turn ran."""

    kind = "received"
    number: int
    joined: bool = False
    row: AnyRow | None = None


@dataclass
class Sent(Entry):
    """What left, or is to leave: an answer, what a tool sent, a word of the fleet's own. `text`: an answer's, whose row
    is not known."""

    kind = "sent"
    row: AnyRow | None = None
    text: str = ""


@dataclass
class Said(Entry):
    """Said on the way, to nobody. `void`: by a worker that was lost; the next has begun again."""

    kind = "said"
    text: str = ""
    void: bool = False


@dataclass
class Thought(Entry):
    kind = "thought"
    text: str = ""
    void: bool = False


@dataclass
class Call(Entry):
    """A tool's call. `state`: waiting for a person; unanswered, if its worker was lost or its turn has ended."""

    kind = "call"
    call: str = ""
    name: str = ""
    preview: str = ""
    state: Literal["running", "waiting", "ok", "failed", "unanswered"] = "running"
    ended_at: datetime | None = None
    step: AnyRow | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took. A step's own times are the database's."""
        if self.step is not None and self.step.ended_at is not None:
            return float((self.step.ended_at - self.step.started_at).total_seconds())
        return None if self.ended_at is None else max((self.ended_at - self.at).total_seconds(), 0.0)


@dataclass
class Asked(Entry):
    """Something a person decides or answers. `row` is the approval or the question as it stands."""

    kind = "asked"
    what: Literal["approval", "question"] = "approval"
    subject: str = ""
    title: str = ""
    text: str = ""
    row: AnyRow | None = None


@dataclass
class Attempt(Entry):
    """A worker takes the turn. `lost`: it was never heard of again. `again`: after a person was asked, or another
    worker left: nothing went wrong."""

    kind = "attempt"
    number: int = 1
    worker: str = ""
    provider: str = ""
    model: str | None = None
    lost: bool = False
    again: bool = False


@dataclass
class Note(Entry):
    """One line. `due`: when it goes on by itself."""

    kind = "note"
    mark: str = "·"
    text: str = ""
    tone: Tone = ""
    due: datetime | None = None
