"""Who plans, who builds and who reviews: by fitness, unless somebody has said who. Pure.

Nobody reviews what it has built while another could; where that cannot be had, it is said. What is wished for is taken
as it is, with a word on what speaks against it: whoever wishes may know more than is known here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from adapters.providers.keys import NO_KEY_NEEDED
from workers.failover import Choice, check_model
from workers.refusals import RefusedError
from workers.workflows.candidates import Candidate
from workers.workflows.fitness import NEEDS, OTHER_VENDOR, Role, is_up, merits, obstacles, points, ranked
from workers.workflows.spec import CLERK

# Of several builders, none is worse than the best by more points than this.
NEARLY_AS_FIT: Final = 15


@dataclass(frozen=True)
class Wishes:
    """Each a provider's name, or `name:model`. Without a wish, fitness chooses."""

    planner: str | None = None
    builders: tuple[str, ...] = ()
    reviewer: str | None = None


@dataclass(frozen=True)
class Roles:
    """Each `name` or `name:model`. `reviewers`: by builder. `reasons`: why each has its role. `notes`: what is not as
    it should be."""

    planner: str
    builders: tuple[str, ...]
    reviewers: Mapping[str, str]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]


NO_WISHES: Final = Wishes()
NO_WORKERS: Final = "no worker runs now: nothing begins until one does"


def choose(candidates: Sequence[Candidate], wishes: Wishes = NO_WISHES, tasks: int = 1) -> Roles:
    """`tasks`: how many are built at once, and so how many builders there is work for. RefusedError: a wish cannot be
    granted, or nobody is there for a role; it says why."""
    casting = _Casting(candidates, wishes)
    planner = casting.planner()
    builders = casting.builders(tasks)
    reviewers = {str(builder): str(casting.reviewer(builder, builders)) for builder in builders}
    return Roles(str(planner), tuple(reviewers), reviewers, tuple(casting.reasons), tuple(casting.notes))


class _Casting:
    """One choice of everybody, with what there is to say about it."""

    def __init__(self, candidates: Sequence[Candidate], wishes: Wishes) -> None:
        self._all = {one.name: one for one in candidates}
        self._up = is_up(candidates)
        self._planner = self._wished(wishes.planner)
        builders = {str(wish): wish for wish in map(self._wished, wishes.builders) if wish is not None}
        self._builders = list(builders.values())
        self._reviewer = self._wished(wishes.reviewer)
        named = [self._planner, self._reviewer, *self._builders]
        self._vouched = {choice.provider for choice in named if choice is not None}
        self.reasons: list[str] = []
        self.notes: list[str] = [] if self._up else [NO_WORKERS]

    def planner(self) -> Choice:
        if self._planner is not None:
            return self._grant(self._planner, "planner")
        return self._give((self._agents("planner") or [self._stand_in("planner")])[0], "planner")

    def builders(self, tasks: int) -> list[Choice]:
        if self._builders:
            return [self._grant(wish, "builder") for wish in self._builders]
        fit = self._agents("builder") or [self._stand_in("builder")]
        reviewers = {self._reviewer.provider} if self._reviewer else {one.name for one in self._agents("reviewer")}
        # One that would be its own reviewer only if there is no other.
        fit = [one for one in fit if reviewers - {one.name}] or fit
        least = points(fit[0], "builder") - NEARLY_AS_FIT
        taken = [one for one in fit if points(one, "builder") >= least][: max(tasks, 1)]
        return [self._give(one, "builder") for one in taken]

    def reviewer(self, builder: Choice, builders: Sequence[Choice]) -> Choice:
        of, wish = f"reviewer of {builder}", self._reviewer
        if wish is not None and wish.provider != builder.provider:
            return self._grant(wish, "reviewer", of)
        own = self._all[builder.provider]
        others = [one for one in self._agents("reviewer") if one.name != own.name]
        # What only plays its part may play two: it has no judgement that could be partial.
        if wish is not None and (not others or not own.is_agent):
            self._note_own(own)
            return self._grant(wish, "reviewer", of)
        if wish is not None and all(one.provider == wish.provider for one in builders):
            names = ", ".join(one.name for one in others)
            raise RefusedError(
                f"{wish.provider} is not to review what it has built while another can: "
                f"wish for another reviewer ({names}), or for another builder"
            )
        if not others:
            one = own if self._is_fit(own, "reviewer") else self._stand_in("reviewer")
            if one is own:
                self._note_own(own)
            return self._give(one, "reviewer", of)
        best = max(others, key=lambda one: points(one, "reviewer") + OTHER_VENDOR * (one.vendor != own.vendor))
        if wish is not None:
            self._note(f"{own.name} does not review what it has built itself: {best.name} does")
        return self._give(best, "reviewer", of, "of another vendor, " if best.vendor != own.vendor else "")

    def _wished(self, text: str | None) -> Choice | None:
        if text is None:
            return None
        wish = Choice.parse(text)
        if wish.provider == CLERK:
            raise RefusedError(f"{CLERK!r} is for what needs no judgement: it plans, builds and reviews nothing")
        known = self._all.get(wish.provider)
        if known is None:
            raise RefusedError(
                f"there is no provider {wish.provider!r} here; installed: {', '.join(sorted(self._all))}"
            )
        if known.trouble is not None:
            raise RefusedError(f"the provider {wish.provider!r} cannot be used: {known.trouble}")
        check_model(wish.model)
        return wish

    def _agents(self, role: Role) -> list[Candidate]:
        """All that may have a role without being wished for in it, the fittest first."""
        return ranked([one for one in self._all.values() if self._is_fit(one, role)], role)

    def _is_fit(self, one: Candidate, role: Role) -> bool:
        """Whoever is wished for in another role is believed to work."""
        if one.name in self._vouched:
            return one.is_agent and NEEDS[role].is_met(one)
        return not obstacles(one, role, fleet_is_up=self._up)

    def _stand_in(self, role: Role) -> Candidate:
        one = self._all.get(NO_KEY_NEEDED)
        if one is not None and one.trouble is None and (one.workers or not self._up):
            self._note(f"no agent can be the {role}, so {one.name} stands in: it plays a script and does not think")
            return one
        against = [
            f"{one.name} ({', '.join(obstacles(one, role, fleet_is_up=self._up))})" for one in self._all.values()
        ]
        raise RefusedError(
            f"there is nobody to be the {role}: {'; '.join(against) or 'no providers are installed'}. "
            f"Set one of them up, or name one whose workers have what is missing here"
        )

    def _grant(self, wish: Choice, role: Role, title: str = "") -> Choice:
        one = self._all[wish.provider]
        self._reason(f"{wish}: {title or role}; wished for, {merits(one, role)}")
        if against := obstacles(one, role, fleet_is_up=self._up):
            self._note(f"{wish} is the {role} because that was wished for, although: {', '.join(against)}")
        return wish

    def _give(self, one: Candidate, role: Role, title: str = "", besides: str = "") -> Choice:
        self._reason(f"{one.name}: {title or role}; {besides}{merits(one, role)}")
        return Choice(one.name)

    def _note_own(self, own: Candidate) -> None:
        why = "no other provider is usable for that" if own.is_agent else "it only plays both parts"
        self._note(f"{own.name} reviews its own work: {why}")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _reason(self, text: str) -> None:
        if text not in self.reasons:
            self.reasons.append(text)
