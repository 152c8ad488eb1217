"""What there is to go to in the console, by which key, and for whom."""

from dataclasses import dataclass
from typing import Final

from gateway.console.visitors import Guest, Sight
from models.tokens import Scope


@dataclass(frozen=True)
class Place:
    """`key`: goes there after `g`. `sees` and `scope`: as the page itself asks."""

    name: str
    title: str
    address: str
    key: str
    scope: Scope
    sees: Sight = "own"


SECTIONS: Final[tuple[tuple[str, tuple[Place, ...]], ...]] = (
    (
        "Watch",
        (
            Place("overview", "Overview", "/console/", "o", "read"),
            Place("sessions", "Sessions", "/console/sessions", "s", "read", "some"),
            Place("workflows", "Workflows", "/console/workflows", "f", "read", "some"),
            Place("schedules", "Schedules", "/console/schedules", "t", "read", "some"),
        ),
    ),
    (
        "Act",
        (
            Place("chat", "Chat", "/console/chat", "c", "send"),
            Place("inbox", "Inbox", "/console/inbox", "a", "decide"),
            Place("dead", "Dead letters", "/console/dead", "d", "read", "some"),
        ),
    ),
    (
        "Fleet",
        (
            Place("providers", "Providers", "/console/providers", "p", "read", "all"),
            Place("usage", "Usage", "/console/usage", "u", "read", "some"),
            Place("groups", "Agents", "/console/groups", "g", "read", "some"),
            Place("wirings", "Wirings", "/console/wirings", "w", "read", "some"),
            Place("people", "People", "/console/people", "e", "admin", "all"),
            Place("audit", "Audit log", "/console/audit", "l", "admin", "all"),
        ),
    ),
)
_REACHES: Final[dict[Sight, int]] = {"own": 0, "some": 1, "all": 2}


def shown_to(place: Place, guest: Guest) -> bool:
    return guest.can(place.scope) and _REACHES[guest.sees] >= _REACHES[place.sees]
