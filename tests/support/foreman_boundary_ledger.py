"""What the foreman's story must have come to, wherever its processes were killed: one branch, the same as if nobody had
died, no commit, stage, answer, approval or charge twice, and nothing handed over before somebody said yes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.foreman_boundary_history import Commit
from tests.support.foreman_boundary_marks import AFTER_GIT, MOVE, OVER
from tests.support.foreman_boundary_story import BRANCH, CATEGORIES, CHANNEL, ONE, OWNER, STAGES
from workers.workflows.spec import CLERK

# Our own, merged by their order; and that of the second task with the first, which it was brought.
_MERGES = Counter({f"Merge {ONE}": 1, "add must add": 1, "Say what it is": 1})


@dataclass(frozen=True)
class Death:
    """Of a process: where, what it had passed, and what was to be seen then."""

    boundary: str
    trace: Sequence[str]
    branches: Mapping[str, str]
    approvals: Sequence[Any]


@dataclass
class Found:
    """`last`: what the last process passed, which was not killed. `shown`: what the platform was sent. `left`: what
    lies about that belongs to nobody. `decider`: who says yes, and whether by a card (`is_shown`)."""

    deaths: Sequence[Death]
    last: Sequence[str]
    branches: Mapping[str, str]
    began: str
    history: Sequence[Commit] = ()
    left: Sequence[str] = ()
    shown: Sequence[dict[str, Any]] = ()
    workflows: Sequence[Any] = ()
    stages: Sequence[Any] = ()
    sessions: Sequence[Any] = ()
    inbox: Sequence[Any] = ()
    outbox: Sequence[Any] = ()
    turns: Sequence[Any] = ()
    steps: Sequence[Any] = ()
    approvals: Sequence[Any] = ()
    usage: Sequence[Any] = ()
    events: Sequence[Any] = ()
    decider: str = f"{CHANNEL}:{OWNER}"
    is_shown: bool = True
    unharmed: "Found | None" = field(default=None, repr=False)

    def complaints(self) -> list[str]:
        checks = (
            self._ended(), self._branch(), self._merged(), self._stages(), self._answers(), self._approvals(),
            self._cards(), self._not_before(), self._usage(), self._journal(), self._left(),
        )  # fmt: skip
        where = " and ".join(death.boundary for death in self.deaths) or "no kill"
        return [f"[{where}] {what}" for check in checks for what in check]

    @property
    def _tip(self) -> str | None:
        return self.branches.get(BRANCH)

    def _ended(self) -> Iterator[str]:
        if not self.last or not self.last[-1].endswith(OVER):
            yield "the last process did not come to its end"
        if [row.status for row in self.workflows] != ["completed"]:
            yield f"workflows: {[(row.status, row.outcome) for row in self.workflows]}"
        for row in self.inbox:
            if row.status != "completed":
                yield f"the message {row.content} is {row.status} ({row.error})"
        for row in self.outbox:
            if row.status != "delivered":
                yield f"to {row.channel_type} {row.platform_id}: {row.content} is {row.status} ({row.error})"
        for turn in self.turns:
            if turn.status != "completed":
                yield f"turn {turn.id} is {turn.status} ({turn.error})"
        for row in self.sessions:
            if (row.lease_owner, row.lease_expires_at, row.resume_after) != (None, None, None):
                yield f"session {row.thread_id} is {row.lease_owner}'s, or rests until {row.resume_after}"

    def _branch(self) -> Iterator[str]:
        """One, with the same history as if nobody had died; and moved once, by whoever it was."""
        if dict(self.branches) != {"main": self.began, BRANCH: self._tip}:
            yield f"branches: {dict(self.branches)}"
        moved = sum(AFTER_GIT + MOVE in line for trace in self._traces() for line in trace)
        if moved > 1:
            yield f"the branch was moved {moved} times"
        mine = self.history[-1].shape if self.history else None
        wanted = self.unharmed.history[-1].shape if self.unharmed is not None else mine
        if mine != wanted:
            yield f"the branch is another: {[(one.message[:40], one.tree[:8]) for one in self.history]}"

    def _merged(self) -> Iterator[str]:
        """Each task once, and no work of a task twice."""
        merges = Counter(one.message.splitlines()[0] for one in self.history if len(one.parents) > 1)
        if merges != _MERGES:
            yield f"merges: {dict(merges)}"
        twice = [one for one, times in Counter((one.tree, one.parents) for one in self.history).items() if times > 1]
        if twice:
            yield f"the same was committed twice: {twice}"

    def _traces(self) -> Iterator[Sequence[str]]:
        yield from (death.trace for death in self.deaths)
        yield self.last

    def _stages(self) -> Iterator[str]:
        begun = Counter((row.kind, row.task, row.round, _is_ok(row)) for row in self.stages)
        if begun != Counter(STAGES):
            yield f"stages: {dict(begun - Counter(STAGES))} too many, {dict(Counter(STAGES) - begun)} missing"
        for row in self.stages:
            if (row.status, row.attempt) != ("completed", 1):
                yield f"{row.kind} {row.task} {row.round} is {row.status}, attempt {row.attempt} ({row.error})"
        lanes = Counter(row.thread_id for row in self.sessions)
        if lanes and max(lanes.values()) > 1:
            yield f"sessions: {dict(lanes)}"

    def _answers(self) -> Iterator[str]:
        """Each stage has one turn, and each turn has said one thing."""
        turns = {row.id: row.turn_id for row in self.inbox}
        said = Counter(row.turn_id for row in self.outbox if row.channel_type != CHANNEL and row.kind != "notice")
        for row in self.stages:
            turn = turns.get(row.id)
            if turn is None or turn != row.turn_id:
                yield f"{row.kind} {row.task} {row.round} was run in {row.turn_id}, its message in {turn}"
            elif said[turn] != 1:
                yield f"{row.kind} {row.task} {row.round} was answered {said[turn]} times"
        if len(self.turns) != len(self.stages):
            yield f"{len(self.turns)} turns for {len(self.stages)} stages"

    def _approvals(self) -> Iterator[str]:
        """Asked once for the commit that was handed over, decided by the person who was asked, and used."""
        asked = Counter((row.category, row.payload["arguments"].get("commit")) for row in self.approvals)
        if asked != Counter((category, self._tip) for category in CATEGORIES):
            yield f"approvals asked for: {dict(asked)}"
        for row in self.approvals:
            if (row.status, row.decided_by) != ("used", self.decider):
                yield f"the approval of {row.category} is {row.status} by {row.decided_by}"

    def _cards(self) -> Iterator[str]:
        """One for each approval, if there is somebody to be shown one."""
        keys = Counter(one["key"] for one in self.shown)
        cards = [row for row in self.outbox if row.channel_type == CHANNEL and "operation" not in row.content]
        if keys != Counter(row.idempotency_key for row in cards) or len(cards) != len(self.approvals) * self.is_shown:
            yield f"{len(self.shown)} cards were shown: {[one['text'] for one in self.shown]}"

    def _not_before(self) -> Iterator[str]:
        """As whoever looked after each death saw it."""
        for death in self.deaths:
            if BRANCH not in death.branches:
                continue
            if len(death.approvals) != len(CATEGORIES) or {row.status for row in death.approvals} != {"used"}:
                seen = [(row.category, row.status) for row in death.approvals]
                yield f"handed over before it was approved, at {death.boundary}: {seen}"

    def _usage(self) -> Iterator[str]:
        agents = {row.turn_id for row in self.stages if row.provider != CLERK}
        if (charged := Counter(row.turn_id for row in self.usage)) != Counter(agents):
            yield f"charged {dict(charged)} for {len(agents)} turns of agents"
        if self.unharmed is not None and (spent := _tokens(self.usage)) != _tokens(self.unharmed.usage):
            yield f"tokens: {spent}, not {_tokens(self.unharmed.usage)}"

    def _journal(self) -> Iterator[str]:
        for step in self.steps:
            if step.status != "finished":
                yield f"step {step.name} is {step.status}: {step.output}"
        if self.unharmed is not None:
            mine, theirs = (Counter(step.name for step in one.steps) for one in (self, self.unharmed))
            if mine != theirs:
                yield f"steps: {dict(mine)}, not {dict(theirs)}"
        for session in self.sessions:
            numbers = sorted(event.seq for event in self.events if event.session_id == session.id)
            if numbers != list(range(1, len(numbers) + 1)):
                yield f"the events' numbers have gaps: {numbers}"
            taken = [row.seq for row in (*self.inbox, *self.outbox) if row.session_id == session.id]
            if len(taken) != len(set(taken)):
                yield f"messages share numbers: {sorted(taken)}"

    def _left(self) -> Iterator[str]:
        if self.left:
            yield f"left behind: {list(self.left)}"


def _is_ok(stage: Any) -> bool:
    output = stage.output or {}
    return bool(output.get("ok", output.get("verdict", "approve") == "approve"))


def _tokens(usage: Sequence[Any]) -> tuple[int, int]:
    return sum(row.input_tokens for row in usage), sum(row.output_tokens for row in usage)
