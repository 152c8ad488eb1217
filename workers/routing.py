"""Which agent answers a message: a pure decision over the wirings of a place, with the reason in words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

MAX_SEARCHED = 4000


class WiringRow(Protocol):
    @property
    def messaging_group_id(self) -> str: ...
    @property
    def agent_group_id(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def trigger_rules(self) -> dict[str, Any]: ...
    @property
    def response_scope(self) -> str: ...
    @property
    def session_mode(self) -> str: ...
    @property
    def follow_up(self) -> str: ...


@dataclass(frozen=True)
class Heard:
    """What the rules look at."""

    text: str
    sender_id: str | None = None
    thread_id: str | None = None
    is_mention: bool = False


@dataclass(frozen=True)
class Route:
    """`wakes` is false for a message the agent should know of but not answer."""

    agent_group_id: str
    messaging_group_id: str
    thread_id: str
    wakes: bool
    reason: str
    follow_up: str = "enqueue"


def choose(wirings: Sequence[WiringRow], heard: Heard) -> Route | None:
    """The first wiring, by priority, whose rules let the message through. None: nobody here listens to it.

    Scope `all`: every message is answered. `triggered`: only those that match the pattern or mention the agent; the
    rest rides along as context. `allowlisted`: only those of the senders in `includeSenders`."""
    context: Route | None = None
    for wiring in wirings:
        rules = wiring.trigger_rules or {}
        if heard.sender_id is not None and heard.sender_id in rules.get("excludeSenders", ()):
            continue
        listed = heard.sender_id is not None and heard.sender_id in rules.get("includeSenders", ())
        if wiring.response_scope == "allowlisted" and not listed:
            continue
        triggered = _triggers(rules, heard)
        if triggered or listed or (wiring.response_scope == "all" and not _selective(rules)):
            return _route(
                wiring, heard, wakes=True, reason=f"{wiring.folder}: {'triggered' if triggered else 'listens'}"
            )
        if wiring.response_scope == "triggered" and context is None:
            context = _route(wiring, heard, wakes=False, reason=f"{wiring.folder}: not triggered, kept as context")
    return context


def _selective(rules: dict[str, Any]) -> bool:
    return bool(rules.get("pattern") or rules.get("mentionOnly") or rules.get("includeSenders"))


def _triggers(rules: dict[str, Any], heard: Heard) -> bool:
    if heard.is_mention:
        return True
    pattern = rules.get("pattern")
    # Bounded: a pattern that takes its time over a long text would stop everything else on the event loop.
    return bool(pattern) and re.search(str(pattern), heard.text[:MAX_SEARCHED], re.IGNORECASE) is not None


def _route(wiring: WiringRow, heard: Heard, *, wakes: bool, reason: str) -> Route:
    thread = (heard.thread_id or "") if wiring.session_mode == "per-thread" else ""
    return Route(wiring.agent_group_id, wiring.messaging_group_id, thread, wakes, reason, wiring.follow_up)
