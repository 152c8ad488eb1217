"""What the story of the tools must have come to: each effect once, everybody answered once. Of the risky call the
traces of the dead say all: once its approval was used up, and until its result is on record, nobody may run it again,
and the agent must be told that nobody knows."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.boundaries import plan_tools as plan
from tests.support.boundaries.ledger import Death, Evidence, Fact, within
from tests.support.boundaries.marks import AFTER_COMMIT, BEFORE_COMMIT, END
from workers.consent.risky_calls import Consent
from workers.toolbox import EFFECT_UNKNOWN

_DECIDES = (Consent._use.__qualname__, f"{END} launch")


@dataclass
class ToolEvidence(Evidence):
    channel = "fake"
    scheduled = ({"prompt": plan.PROMPT},)

    def unknown(self) -> set[str]:
        return {"launch"} if self._told() == EFFECT_UNKNOWN else set()

    def facts(self) -> Iterator[Fact]:
        for facts in (self._shown, self._agents, self._launch, self._sessions):
            yield from facts()
        yield "steps", Counter(step.name for step in self.steps), Counter(plan.TOOLS)

    def _shown(self) -> Iterator[Fact]:
        files = [(one["place"], one["text"], one["files"]) for one in self.shown if one["files"]]
        yield "files shown", files, [(plan.ROOM, plan.WITH_FILE, {plan.FILE: plan.REPORT})]
        answers = [text for text in self.texts_shown(plan.ROOM) if text.startswith(plan.HEARD)]
        others = sorted(text for text in self.texts_shown(plan.ROOM) if not text.startswith(plan.HEARD))
        expected = [plan.WITH_FILE, plan.ASKS_HERE, plan.TOLD + self._told(), plan.DONE]
        yield "the room was shown", others, sorted(expected)
        heard = " ".join(text.removeprefix(plan.HEARD) for text in answers)
        either = (f"{plan.WAITS} {plan.ADVICE}", f"{plan.ADVICE} {plan.WAITS}")
        yield "what waited was answered by", heard, heard if heard in either else either
        owner = [text[: len(plan.ASKS_OWNER)] for text in self.texts_shown(plan.OWNER)]
        yield "the owner was shown", owner, [plan.ASKS_OWNER]
        changed = [row.content["text"].split(" at ")[0] for row in self.outbox if "operation" in row.content]
        yield "the owner's card became", changed, [f"Approved by `{self.channel}:{plan.OWNER}`"]

    def _agents(self) -> Iterator[Fact]:
        folders = {row.id: row.folder for row in self.agents}
        said = Counter((folders[row.agent_group_id], row.content.get("text")) for row in self.inbox)
        to_agent = [(plan.AGENT, text) for text in (plan.GO, plan.WAITS, plan.ADVICE, None)]
        yield "said was", said, Counter([*to_agent, (plan.EXPERT, plan.ASKED)])
        between = Counter(row.content["text"] for row in self.outbox if row.channel_type == "agent")
        yield "between the agents", between, Counter([plan.ASKED, plan.ADVICE])
        tasks = [(row.id, row.content) for row in self.inbox if row.kind == "task"]
        scheduled = [(step.id, {"prompt": plan.PROMPT}) for step in self.steps if step.name == "schedule_task"]
        yield "tasks, by the id of their step", tasks, scheduled

    def _launch(self) -> Iterator[Fact]:
        decided = [(row.status, row.decided_by) for row in self.approvals]
        yield "approvals", decided, [("used", f"{self.channel}:{plan.OWNER}")]
        told, runs = self._told(), len(self.effects)
        least = 1 if told == plan.LAUNCHED else 0
        yield f"runs of launch, of which the agent was told {told!r}", runs, within(runs, least, 1)
        if any(_is_unsure(death) for death in self.deaths):
            yield (
                "of launch the agent was told",
                told,
                told if told in (plan.LAUNCHED, EFFECT_UNKNOWN) else "one of two",
            )
            return
        lost = next((death for death in self.deaths if _has_lost_launch(death)), None)
        yield "of launch the agent was told", told, plan.LAUNCHED if lost is None else EFFECT_UNKNOWN
        yield "runs of launch", runs, 1 if lost is None else len(lost.effects)

    def _told(self) -> str:
        said = [step.output["text"] for step in self.steps if step.name == "launch" and step.output]
        return said[0] if len(said) == 1 else f"{len(said)} results"

    def _sessions(self) -> Iterator[Fact]:
        """The one that was begun anew has what was said meanwhile; each message is answered where it is."""
        [agent] = [row.id for row in self.agents if row.folder == plan.AGENT]
        status = {row.id: row.status for row in self.sessions if row.agent_group_id == agent}
        yield "sessions", sorted(status.values()), ["active", "closed"]
        answered = {turn.id: turn.session_id for turn in self.turns}
        for row in self.inbox:
            if row.agent_group_id == agent:
                expected = "closed" if row.content.get("text") == plan.GO else "active"
                yield f"{row.content} is in the session that is", status.get(row.session_id), expected
            if row.kind != "task":
                yield f"{row.content} was answered in", answered.get(row.turn_id or ""), row.session_id


def _has_lost_launch(death: Death) -> bool:
    """It had used the approval up, and written no result."""
    used, launched = (AFTER_COMMIT + commit in death.trace for commit in _DECIDES)
    return used and not launched


def _is_unsure(death: Death) -> bool:
    """It died, elsewhere, while a COMMIT that decides was under way."""
    decides = ((BEFORE_COMMIT + commit, AFTER_COMMIT + commit) for commit in _DECIDES)
    return any(begun in death.trace and done not in death.trace and begun != death.boundary for begun, done in decides)
