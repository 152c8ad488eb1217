"""Which agent answers a message: a pure decision over the wirings of a place, with a reason in words for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from workers.intake.patterns import find_fault, matches


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
    """What the rules look at. `followed`: the agents that follow the message's thread, by id."""

    text: str
    sender_id: str | None = None
    thread_id: str | None = None
    is_mention: bool = False
    followed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Route:
    """`wakes` is false for a message the agent should know of but not answer. `follows`: from now on it listens to the
    whole thread."""

    agent_group_id: str
    messaging_group_id: str
    thread_id: str
    wakes: bool
    reason: str
    follow_up: str = "enqueue"
    follows: bool = False


@dataclass(frozen=True)
class Considered:
    """What one wiring makes of a message. `beaten`: it would take it, but another is asked before."""

    folder: str
    takes: Literal["answers", "overhears", "passes", "beaten"]
    reason: str


@dataclass(frozen=True)
class Decision:
    """Where a message goes (None: nobody here listens to it), and why, wiring by wiring in their order."""

    route: Route | None
    considered: tuple[Considered, ...]


def choose(wirings: Sequence[WiringRow], heard: Heard) -> Decision:
    """The first wiring, by priority, whose rules let the message through, answers.

    Every rule that is given must hold: `pattern` matches, `mentionOnly` needs a mention, the sender is in
    `includeSenders` and not in `excludeSenders`. With `sticky`, an agent that was once called in a thread needs neither
    pattern nor mention there. Scope `all`: what passes the rules is answered. `triggered`: the same, but without a rule
    only mentions are; the rest rides along as context, with the first of those that overhear. `allowlisted`: only
    senders in `includeSenders` are heard at all."""
    weighed = [(wiring, *_weigh(wiring, heard)) for wiring in wirings]
    # An answer goes before what would only be overheard, whatever the priority.
    takers = [[one for one in weighed if one[1] == takes] for takes in ("answers", "overhears")]
    winner = next((found[0] for found in takers if found), None)
    considered = tuple(
        Considered(one[0].folder, one[1] if one is winner or one[1] == "passes" else "beaten", one[2])
        for one in weighed
    )
    return Decision(_route(heard, *winner) if winner is not None else None, considered)


def hears(wiring: WiringRow, sender_id: str | None) -> bool:
    """Whether the rules about senders let this one through."""
    rules = wiring.trigger_rules or {}
    included = _senders(rules, "includeSenders")
    listed = sender_id in included if included else wiring.response_scope != "allowlisted"
    return listed and sender_id not in _senders(rules, "excludeSenders")


def _weigh(wiring: WiringRow, heard: Heard) -> tuple[Literal["answers", "overhears", "passes"], str]:
    rules = wiring.trigger_rules or {}
    if heard.sender_id is not None and heard.sender_id in _senders(rules, "excludeSenders"):
        return "passes", f"the sender {heard.sender_id} is excluded"
    included = _senders(rules, "includeSenders")
    listed = heard.sender_id is not None and heard.sender_id in included
    if wiring.response_scope == "allowlisted" and not listed:
        return "passes", "the sender is not on its list"
    holds, reason = _rules_hold(rules, heard, listed=listed, follows=wiring.agent_group_id in heard.followed)
    if holds is None and wiring.response_scope == "triggered":
        holds, reason = heard.is_mention, "it is mentioned" if heard.is_mention else "it is not mentioned"
    if holds is not False:
        return "answers", reason
    if wiring.response_scope == "triggered":
        return "overhears", f"{reason}: kept as context"
    return "passes", reason


def _rules_hold(rules: dict[str, Any], heard: Heard, *, listed: bool, follows: bool) -> tuple[bool | None, str]:
    """Whether all rules that are given hold, and the reason; None: there is none to hold."""
    reasons: list[str] = []
    if rules.get("includeSenders"):
        if not listed:
            return False, "the sender is not on its list"
        reasons.append("the sender is on its list")
    pattern, mention_only = rules.get("pattern"), bool(rules.get("mentionOnly"))
    if bool(rules.get("sticky")) and heard.thread_id is not None and follows:
        reasons.append("it follows this thread")
        return True, " and ".join(reasons)
    if pattern:
        if not matches(str(pattern), heard.text):
            return False, f"its pattern {pattern!r} {find_fault(str(pattern)) or 'does not match'}"
        reasons.append(f"its pattern {pattern!r} matches")
    if mention_only:
        if not heard.is_mention:
            return False, "it is not mentioned"
        reasons.append("it is mentioned")
    return (True, " and ".join(reasons)) if reasons else (None, "it listens to everything")


def _senders(rules: dict[str, Any], rule: str) -> list[Any]:
    senders = rules.get(rule)
    return senders if isinstance(senders, list) else []


def _route(heard: Heard, wiring: WiringRow, takes: str, reason: str) -> Route:
    sticky = bool((wiring.trigger_rules or {}).get("sticky"))
    wakes = takes == "answers"
    return Route(
        wiring.agent_group_id,
        wiring.messaging_group_id,
        (heard.thread_id or "") if wiring.session_mode == "per-thread" else "",
        wakes,
        f"{wiring.folder}: {reason}",
        wiring.follow_up,
        follows=wakes and sticky and heard.thread_id is not None,
    )
