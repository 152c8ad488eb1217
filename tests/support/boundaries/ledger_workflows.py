"""What a workflow must have come to: one branch, the same as if nobody had died, no commit, stage, answer, approval or
charge twice, and nothing handed over before somebody said yes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.boundaries.git_marks import AFTER_GIT, MOVE
from tests.support.boundaries.ledger import Evidence, Fact, within
from tests.support.boundaries.plan_workflows import BRANCH, CATEGORIES, ONE, STAGES
from tests.support.boundaries.repository_state import Commit
from workers.workflows.spec import CLERK

# Our own, merged by their order; and that of the second task with the first, which it was brought.
_MERGES = Counter([f"Merge {ONE}", "add must add", "Say what it is"])


@dataclass
class WorkflowEvidence(Evidence):
    """`began`: the commit it began with. `decider`: who says yes, and whether by a card (`has_cards`)."""

    channel = "fake"

    branches: Mapping[str, str] = field(default_factory=dict)
    began: str = ""
    history: Sequence[Commit] = ()
    decider: str = "fake:olga"
    has_cards: bool = True
    unharmed: "WorkflowEvidence | None" = field(default=None, repr=False)

    @property
    def _reference(self) -> "WorkflowEvidence":
        return self.unharmed or self

    def facts(self) -> Iterator[Fact]:
        for facts in (self._branch, self._stages, self._approvals, self._charges):
            yield from facts()
        yield "workflows", [(row.status, row.outcome) for row in self.workflows if row.status != "completed"], []
        yield "how many workflows", len(self.workflows), 1
        mine, theirs = (Counter(step.name for step in one.steps) for one in (self, self._reference))
        yield "steps", mine, theirs

    def _branch(self) -> Iterator[Fact]:
        """One, with the same history as if nobody had died; and moved once, by whoever it was."""
        yield "branches", dict(self.branches), {"main": self.began, BRANCH: self.branches.get(BRANCH)}
        traces = [*(death.trace for death in self.deaths), self.last]
        moved = sum(AFTER_GIT + MOVE in line for trace in traces for line in trace)
        yield "how often the branch was moved", moved, within(moved, 0, 1)
        commits = [(one.message[:40], one.tree[:8]) for one in self.history]
        yield f"the branch is another, {commits}", _shape(self), _shape(self._reference)
        merges = Counter(one.message.splitlines()[0] for one in self.history if len(one.parents) > 1)
        yield "merges", merges, _MERGES
        made = Counter((one.tree, one.parents) for one in self.history)
        yield "committed twice", [one for one in made if made[one] > 1], []

    def _stages(self) -> Iterator[Fact]:
        """Each once, in one turn, which has said one thing."""
        yield "stages", Counter((row.kind, row.task, row.round, _is_ok(row)) for row in self.stages), Counter(STAGES)
        lanes = Counter(row.thread_id for row in self.sessions)
        yield "sessions of one lane", [lane for lane in lanes if lanes[lane] > 1], []
        turns = {row.id: row.turn_id for row in self.inbox}
        said = Counter(row.turn_id for row in self.outbox if row.channel_type != self.channel and row.kind != "notice")
        for row in self.stages:
            name = f"{row.kind} {row.task} {row.round}"
            yield f"{name} ({row.error})", (row.status, row.attempt), ("completed", 1)
            yield f"{name} was run in", turns.get(row.id, "no turn"), row.turn_id
            yield f"answers of {name}", said[row.turn_id], 1
        yield "how many turns", len(self.turns), len(self.stages)

    def _approvals(self) -> Iterator[Fact]:
        """Asked once for the commit that was handed over, decided by the person who was asked, and used; and handed
        over not before, as whoever looked after each death saw it."""
        asked = Counter((row.category, row.payload["arguments"].get("commit")) for row in self.approvals)
        yield "approvals asked for", asked, Counter((category, self.branches.get(BRANCH)) for category in CATEGORIES)
        for row in self.approvals:
            yield f"the approval of {row.category}", (row.status, row.decided_by), ("used", self.decider)
        yield "cards shown", len(self.shown), len(self.approvals) * self.has_cards
        for death in self.deaths:
            if BRANCH in death.branches:
                seen = sorted((row.category, row.status) for row in death.approvals)
                expected = sorted((category, "used") for category in CATEGORIES)
                yield f"handed over before it was approved, at {death.boundary}", seen, expected

    def _charges(self) -> Iterator[Fact]:
        agents = Counter({row.turn_id for row in self.stages if row.provider != CLERK})
        yield "charges of the agents' turns", Counter(row.turn_id for row in self.usage), agents
        yield "tokens", _tokens(self), _tokens(self._reference)


def _shape(found: WorkflowEvidence) -> Any:
    return found.history[-1].shape if found.history else None


def _is_ok(stage: Any) -> bool:
    output = stage.output or {}
    return bool(output.get("ok", output.get("verdict", "approve") == "approve"))


def _tokens(found: WorkflowEvidence) -> tuple[int, int]:
    return sum(row.input_tokens for row in found.usage), sum(row.output_tokens for row in found.usage)
