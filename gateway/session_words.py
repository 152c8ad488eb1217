"""How a session and its turn stand, in words; for the console, the API and the command line alike."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from models.base import AnyRow
from models.browsing import state_of

Tone = Literal["busy", "bad", "warn", "quiet"]
_PERSON: Final = "awaiting human"
_LIMITED: Final = "rate limited"
_AGAIN: Final = "tries again after: "
_TOOL: Final = "tool: "
_DOING: Final = {
    "calling model": "asking the model",
    "resuming": "going on where another worker stopped",
    _PERSON: "asking a person",
}


@dataclass(frozen=True)
class Standing:
    """A sentence: the `word`, what stands `before` a span of time, and what stands `after` it. The span is how long ago
    the `moment` was, or how far ahead it is."""

    word: str
    tone: Tone
    before: str = ""
    moment: datetime | None = None
    after: str = ""

    def told(self, span: str) -> str:
        """All that follows the word."""
        return f"{self.before} {span}{self.after}" if self.moment is not None else self.before


def standing(session: AnyRow, at: datetime) -> Standing:
    """`session`: a row of `models.browsing`; `at`: what time it is."""
    match state_of(session, at):
        case "working":
            return Standing("at work", "busy", f": {doing(session.activity)}, for", session.activity_since)
        case "worker lost":
            since = session.lease_expires_at
            return Standing("worker lost", "bad", ": its time ran out", since, " ago; another takes over")
        case "resting":
            return _resting(session.activity or "", session.resume_after)
        case "waiting":
            return Standing("waiting", "warn", " for a worker, for", session.woken_at or session.last_active)
        case "closed":
            return Standing("closed", "quiet", ",", session.activity_since, " ago")
        case _:
            return Standing("idle", "quiet", " for", session.activity_since or session.last_active)


def turn_standing(turn: AnyRow) -> str:
    """What an unfinished turn is at. `turn`: one of `models.overview.Overview.turns`."""
    if turn.status == "parked" or turn.activity == _PERSON:
        return "waits for a person"
    if turn.status == "waiting":
        return f"rests: {turn.activity}" if turn.activity else "waits to be tried again"
    if turn.lease_expires_at is None or turn.lease_expires_at <= turn.at:
        return "has lost its worker; another takes over"
    return doing(turn.activity)


def doing(activity: str | None) -> str:
    """What it is at, after "is"."""
    if activity is None:
        return "beginning"
    return f"running {activity.removeprefix(_TOOL)}" if activity.startswith(_TOOL) else _DOING.get(activity, activity)


def _resting(activity: str, until: datetime) -> Standing:
    if activity.startswith(_PERSON):
        return Standing("waits for a person", "warn", f"{activity.removeprefix(_PERSON)}, for", until, " at most")
    if activity == _LIMITED:
        return Standing(_LIMITED, "warn", ": tries again in", until)
    if activity.startswith(_AGAIN):
        why = activity.removeprefix(_AGAIN).replace("_", " ")
        return Standing("tries again", "warn", " in", until, f", after a failure ({why})")
    return Standing("waits", "warn", f": {activity}, for" if activity else " for", until, " at most")
