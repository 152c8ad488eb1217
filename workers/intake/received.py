"""What comes of a message from outside when it has been looked at (`reception.py`), and so what is stored of it."""

from dataclasses import dataclass, field
from typing import Literal

from workers.consent.strangers import Stranger
from workers.house import Done
from workers.intake.switchboard import Found
from workers.refusals import RefusalKind


@dataclass(frozen=True)
class Passed:
    """It may be stored. `raw`: as a command to the agent's program. `stranger`: it waits until they are let in."""

    found: Found
    may_answer: bool
    raw: str | None = None
    stranger: Stranger | None = None


@dataclass(frozen=True)
class Handled:
    """It was no message for an agent, and is dealt with."""

    what: Literal["code", "command", "answer"]
    done: Done


@dataclass(frozen=True)
class Turned:
    """Nobody here takes it. What its sender is told, if anything, is stored."""

    reason: str
    kind: RefusalKind
    deliveries: list[str] = field(default_factory=list)


class AgainError(Exception):
    """A copy of this message was dealt with before; what this one has done is rolled back."""
