"""Who is fit for which role: tables of what each role needs and what facts are worth to it, and nothing else to decide
by. Pure. Only says how fit each provider is; who gets a role is `roles.py`'s.

To change what is chosen, change a number here: a role goes to the provider with the most points."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from workers.workflows.candidates import Candidate, Record

Role = Literal["planner", "builder", "reviewer"]
ROLES: Final[tuple[Role, ...]] = ("planner", "builder", "reviewer")


@dataclass(frozen=True)
class Need:
    """What a role cannot be filled without. `words`: of one that does not have it."""

    is_met: Callable[[Candidate], bool]
    words: str


@dataclass(frozen=True)
class Trait:
    """What a provider can do, and how many points that is to each role."""

    has: Callable[[Candidate], bool]
    words: str
    planner: int = 0
    builder: int = 0
    reviewer: int = 0

    def points(self, role: Role) -> int:
        return {"planner": self.planner, "builder": self.builder, "reviewer": self.reviewer}[role]


@dataclass(frozen=True)
class Forte:
    """What one provider is known to be good at."""

    points: int
    words: str


@dataclass(frozen=True)
class Fit:
    """`score`: points; None: it is not chosen by itself. `why`, or why not, in words."""

    role: Role
    provider: str
    score: int | None
    why: str


# Plans and reviews are handed in by a tool. What was built is found in the files.
_HANDS_IN: Final = Need(lambda one: one.capabilities.tools or one.capabilities.mcp, "it calls no tools of ours")
_EDITS: Final = Need(lambda one: one.kind == "cli" or one.capabilities.tools, "it cannot change files here")
NEEDS: Final[Mapping[Role, Need]] = {"planner": _HANDS_IN, "builder": _EDITS, "reviewer": _HANDS_IN}

TRAITS: Final = (
    Trait(lambda one: one.kind == "cli", "works on files by itself", planner=10, builder=30, reviewer=10),
    Trait(lambda one: one.capabilities.structured_edits != "none", "says which files it changes", builder=10),
    # Findings go back to the session that built.
    Trait(lambda one: one.capabilities.resume, "continues a conversation", builder=10),
    Trait(lambda one: one.capabilities.approvals, "asks before risky acts", builder=5),
    Trait(
        lambda one: one.capabilities.replays_steps,
        "repeats nothing after a lost worker",
        planner=5,
        builder=5,
        reviewer=5,
    ),
)

FORTES: Final[Mapping[str, Mapping[Role, Forte]]] = {
    "codex": {"builder": Forte(20, "quick at implementing")},
    "claude-code": {
        "planner": Forte(20, "reasons deeply"),
        "builder": Forte(15, "good at refactoring and tests"),
        "reviewer": Forte(20, "reviews deeply"),
    },
    "gemini": {"planner": Forte(5, "scans broadly"), "reviewer": Forte(15, "good for a second opinion")},
    "anthropic": {"planner": Forte(15, "reasons deeply"), "reviewer": Forte(15, "reviews deeply")},
}

# For every role: all of it to one whose turns are always completed.
RELIABLE: Final = 40
# As if so many turns had been seen before, and so many of them completed: three failures are no pattern yet, and one
# that nobody has used is neither the best nor the worst.
_SEEN_BEFORE, _COMPLETED_BEFORE = 4, 3
# Both pass, so they make nobody unfit; but who answers now goes first.
HEALTH: Final = {"ok": 0, "limited": -10, "down": -40}
_HEALTH_WORDS: Final = {"limited": "held back by its vendor now", "down": "did not answer lately"}
# To a reviewer whose vendor did not make the builder: models of one house make the same mistakes.
OTHER_VENDOR: Final = 15


def points(one: Candidate, role: Role) -> int:
    traits = sum(trait.points(role) for trait in TRAITS if trait.has(one))
    forte = FORTES.get(one.name, {}).get(role)
    return traits + (forte.points if forte else 0) + round(RELIABLE * _share(one.record)) + HEALTH[one.health]


def _share(record: Record) -> float:
    seen = record.completed + record.faults
    return (record.completed + _COMPLETED_BEFORE) / (seen + _SEEN_BEFORE)


def merits(one: Candidate, role: Role) -> str:
    """What speaks for it, in words."""
    words = [trait.words for trait in TRAITS if trait.points(role) and trait.has(one)]
    if forte := FORTES.get(one.name, {}).get(role):
        words.append(forte.words)
    seen = one.record.completed + one.record.faults
    words.append(f"{one.record.completed} of {seen} recent turns completed" if seen else "no recent turns")
    if one.record.median_seconds is not None:
        words.append(f"half of them within {one.record.median_seconds:.0f} s")
    if one.health in _HEALTH_WORDS:
        words.append(_HEALTH_WORDS[one.health])
    words.append({0: "no worker listens", 1: "1 worker listens"}.get(one.workers, f"{one.workers} workers listen"))
    return ", ".join(words)


def is_up(candidates: Sequence[Candidate]) -> bool:
    """Whether anybody works at all; if not, that nobody listens for a provider says nothing of it."""
    return any(one.workers for one in candidates)


def obstacles(one: Candidate, role: Role, *, fleet_is_up: bool) -> list[str]:
    """Why it is not chosen for a role by itself."""
    if one.trouble is not None:
        return [one.trouble]
    # Turns were completed, and somebody listens: so the workers have what is not to be had where this is asked.
    works_elsewhere = one.record.completed > 0 and one.workers > 0
    found = [] if one.is_agent else ["it is no agent: it does what is written down for it"]
    found += [] if NEEDS[role].is_met(one) else [NEEDS[role].words]
    if one.wants_options is not None:
        found.append(f"it needs options: {one.wants_options}")
    if one.absent is not None and not works_elsewhere:
        found.append(one.absent)
    if one.missing_key is not None and not works_elsewhere:
        found.append(f"{one.missing_key} is not set here")
    if fleet_is_up and not one.workers:
        found.append("no worker listens")
    return found


def ranked(candidates: Sequence[Candidate], role: Role) -> list[Candidate]:
    """The fittest first; of equals the quicker, as far as that is known."""

    def place(one: Candidate) -> tuple[float, float, str]:
        seconds = one.record.median_seconds
        return -points(one, role), math.inf if seconds is None else seconds, one.name

    return sorted(candidates, key=place)


def fitness_table(candidates: Sequence[Candidate]) -> list[Fit]:
    """Everybody for every role, the fittest first, those that are not chosen by themselves last."""
    up, rows = is_up(candidates), []
    for role in ROLES:
        fits = [_fit(one, role, fleet_is_up=up) for one in ranked(candidates, role)]
        rows += sorted(fits, key=lambda fit: (fit.score is None, fit.provider if fit.score is None else ""))
    return rows


def _fit(one: Candidate, role: Role, *, fleet_is_up: bool) -> Fit:
    if against := obstacles(one, role, fleet_is_up=fleet_is_up):
        return Fit(role, one.name, None, "; ".join(against))
    return Fit(role, one.name, points(one, role), merits(one, role))
