"""What the story must have come to, wherever its processes were killed: each effect once, everybody answered once.

Of the risky call the traces of the dead say all: once its approval was used up, and until its result is on record,
nobody may run it again, and the agent must be told that nobody knows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.boundary_marks import AFTER_COMMIT, BEFORE_COMMIT
from tests.support.tool_boundary_marks import LAUNCHED_COMMIT, OVER, USE
from tests.support.tool_boundary_story import (
    ADVICE,
    AGENT,
    ASKED,
    ASKS_HERE,
    ASKS_OWNER,
    CHANNEL,
    DONE,
    EXPERT,
    FILE,
    GO,
    HEARD,
    LAUNCHED,
    OWNER,
    PROMPT,
    REPORT,
    ROOM,
    TOLD,
    TOOLS,
    WAITS,
    WITH_FILE,
)
from workers.toolbox import EFFECT_UNKNOWN


@dataclass(frozen=True)
class Death:
    """Of a process, at a boundary: what it had passed, and how often launch had been run by then."""

    boundary: str
    trace: Sequence[str]
    runs: int

    @property
    def unknown(self) -> bool:
        """It had used the approval up, and written no result."""
        return AFTER_COMMIT + USE in self.trace and AFTER_COMMIT + LAUNCHED_COMMIT not in self.trace

    @property
    def unsure(self) -> bool:
        """It died, elsewhere, while a COMMIT that decides was under way."""
        decides = ((BEFORE_COMMIT + commit, AFTER_COMMIT + commit) for commit in (USE, LAUNCHED_COMMIT))
        return any(begun in self.trace and done not in self.trace and begun != self.boundary for begun, done in decides)


@dataclass
class Found:
    """`last`: what the last process passed, which was not killed. `shown`: what the platform was sent, in order.
    `left`: files of messages that still lie in the outbox."""

    deaths: Sequence[Death]
    last: Sequence[str]
    effects: Sequence[str] = ()
    shown: Sequence[dict[str, Any]] = ()
    left: Sequence[str] = ()
    folders: dict[str, str] = field(default_factory=dict)  # of the agents, by id
    sessions: Sequence[Any] = ()
    inbox: Sequence[Any] = ()
    outbox: Sequence[Any] = ()
    turns: Sequence[Any] = ()
    steps: Sequence[Any] = ()
    approvals: Sequence[Any] = ()
    events: Sequence[Any] = ()

    def complaints(self) -> list[str]:
        checks = (
            self._ended(), self._sent(), self._heard(), self._agents(), self._task(), self._approval(), self._anew(),
            self._journal(),
        )  # fmt: skip
        where = " and ".join(death.boundary for death in self.deaths) or "no kill"
        return [f"[{where}] {what}" for check in checks for what in check]

    def _ended(self) -> Iterator[str]:
        if not self.last or self.last[-1] != OVER:
            yield "the last process did not come to its end"
        for row in self.inbox:
            if row.status != ("pending" if row.kind == "task" else "completed"):
                yield f"the message {row.content} is {row.status} ({row.error})"
        for row in self.outbox:
            if row.status != "delivered":
                yield f"to {row.channel_type} {row.platform_id}: {row.content} is {row.status} ({row.error})"
        for turn in self.turns:
            if turn.status != "completed":
                yield f"turn {turn.number} is {turn.status} ({turn.error})"
        for row in self.sessions:
            if (row.lease_owner, row.lease_expires_at, row.resume_after) != (None, None, None):
                yield f"session {row.id} is {row.lease_owner}'s, or rests until {row.resume_after}"

    def _sent(self) -> Iterator[str]:
        """Each row once, under its own key, and nothing besides; what changes a card shows no message of its own."""
        keys = Counter(one["key"] for one in self.shown)
        sent = [row for row in self.outbox if row.channel_type == CHANNEL and "operation" not in row.content]
        if keys != Counter(row.idempotency_key for row in sent):
            yield f"{len(self.shown)} messages were shown: {[one['text'] for one in self.shown]}"
        files = [(one["place"], one["text"], one["files"]) for one in self.shown if one["files"]]
        if files != [(ROOM, WITH_FILE, {FILE: REPORT})]:
            yield f"files: {[(place, text, {name: len(has[name]) for name in has}) for place, text, has in files]}"
        if self.left:
            yield f"in the outbox are still {list(self.left)}"

    def _heard(self) -> Iterator[str]:
        """What the person and the owner were shown."""
        room = Counter(one["text"] for one in self.shown if one["place"] == ROOM and not _is_answer(one))
        if room != Counter([WITH_FILE, ASKS_HERE, TOLD + self._told(), DONE]):
            yield f"the room was shown {dict(room)}"
        owner = [one["text"] for one in self.shown if one["place"] == OWNER]
        if len(owner) != 1 or not owner[0].startswith(ASKS_OWNER):
            yield f"the owner was told {owner}"
        changed = [row.content["text"] for row in self.outbox if "operation" in row.content]
        if len(changed) != 1 or not changed[0].startswith(f"Approved by `{CHANNEL}:{OWNER}` at "):
            yield f"the owner's card became {changed}"
        answered = " ".join(one["text"].removeprefix(HEARD) for one in self.shown if _is_answer(one))
        if answered not in (f"{WAITS} {ADVICE}", f"{ADVICE} {WAITS}"):
            yield f"what waited was answered by {answered!r}"

    def _agents(self) -> Iterator[str]:
        texts = Counter((self.folders[row.agent_group_id], row.content.get("text")) for row in self.inbox)
        expected = {(AGENT, GO): 1, (AGENT, WAITS): 1, (EXPERT, ASKED): 1, (AGENT, ADVICE): 1, (AGENT, None): 1}
        if texts != expected:
            yield f"said was {dict(texts)}"
        between = Counter(row.content["text"] for row in self.outbox if row.channel_type == "agent")
        if between != {ASKED: 1, ADVICE: 1}:
            yield f"between the agents: {dict(between)}"

    def _task(self) -> Iterator[str]:
        tasks = [row for row in self.inbox if row.kind == "task"]
        if [row.content for row in tasks] != [{"prompt": PROMPT}]:
            yield f"tasks: {[row.content for row in tasks]}"
        if [row.id for row in tasks] != [step.id for step in self.steps if step.name == "schedule_task"]:
            yield "the task is not that of its step"

    def _approval(self) -> Iterator[str]:
        if [(row.status, row.decided_by) for row in self.approvals] != [("used", f"{CHANNEL}:{OWNER}")]:
            yield f"approvals: {[(row.status, row.decided_by) for row in self.approvals]}"
        told, runs = self._told(), len(self.effects)
        if told not in (LAUNCHED, EFFECT_UNKNOWN) or runs > 1 or (told == LAUNCHED and runs != 1):
            yield f"launch was run {runs} times, and the agent told {told!r}"
        if any(death.unsure for death in self.deaths):
            return
        unknown = next((death for death in self.deaths if death.unknown), None)
        if (unknown is not None) != (told == EFFECT_UNKNOWN):
            yield f"whether launch was run is {'known' if unknown is None else 'unknown'}, and the agent told {told!r}"
        expected = 1 if unknown is None else unknown.runs
        if runs != expected:
            yield f"launch was run {runs} times, not {expected}"

    def _told(self) -> str:
        said = [step.output["text"] for step in self.steps if step.name == "launch" and step.output]
        return said[0] if len(said) == 1 else f"{len(said)} results"

    def _anew(self) -> Iterator[str]:
        ours = [row for row in self.sessions if self.folders[row.agent_group_id] == AGENT]
        if sorted(row.status for row in ours) != ["active", "closed"]:
            yield f"sessions of {AGENT}: {[row.status for row in ours]}"
            return
        now_in = {row.id for row in ours if row.status == "active"}
        for row in self.inbox:
            if row.agent_group_id != ours[0].agent_group_id:
                continue
            if (row.session_id in now_in) == (row.content.get("text") == GO):
                yield f"{row.content} is in the wrong session"
        answered = {turn.id: turn.session_id for turn in self.turns}
        for row in self.inbox:
            if row.kind != "task" and answered.get(row.turn_id or "") != row.session_id:
                yield f"{row.content} was not answered in its session"

    def _journal(self) -> Iterator[str]:
        steps = Counter(step.name for step in self.steps)
        if steps != Counter(TOOLS):
            yield f"steps: {dict(steps)}"
        for step in self.steps:
            expected = "failed" if step.name == "launch" and self._told() == EFFECT_UNKNOWN else "finished"
            if step.status != expected:
                yield f"step {step.name} is {step.status}: {step.output}"
        for session in self.sessions:
            numbers = sorted(event.seq for event in self.events if event.session_id == session.id)
            if numbers != list(range(1, len(numbers) + 1)):
                yield f"the events' numbers have gaps: {numbers}"
            taken = [row.seq for row in (*self.inbox, *self.outbox) if row.session_id == session.id]
            if len(taken) != len(set(taken)):
                yield f"messages share numbers: {sorted(taken)}"


def _is_answer(one: dict[str, Any]) -> bool:
    return one["place"] == ROOM and str(one["text"]).startswith(HEARD)
