"""What the story of the tools must have come to: each effect once, everybody answered once. Of the risky call the
traces of the dead say all: once its approval was used up, and until its result is on record, nobody may run it again,
and the agent must be told that nobody knows."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.support.boundaries.ledger import Death, Evidence, Fact, within
from tests.support.boundaries.marks import AFTER_COMMIT, BEFORE_COMMIT, END
from workers.consent.approvals import Consent
from workers.toolbox import EFFECT_UNKNOWN

ROOM, OWNER = "room", "olga"
AGENT, EXPERT = "demo", "expert"
GO, WAITS = "go", "and then?"
ASKED, ADVICE = "how much?", "It is 42"
FILE, REPORT, WITH_FILE = "report.txt", "all is well\n" * 1000, "Here it is."
PROMPT, LAUNCHED = "water the plants", "launched prod"
TOLD, HEARD, DONE = "launch says: ", "heard: ", "done"
ASKS_HERE: Final = "I wait for an approval before I go on (launch). Whoever runs me has been asked."
ASKS_OWNER: Final = f"**{AGENT} asks for an approval** (high risk, tool)\n`{AGENT} wants launch(what=prod)`\n"
TOOLS: Final = ("send_file", "send_to_agent", "schedule_task", "launch", "send_message", "reset_session")
_DECIDES: Final = (Consent._use.__qualname__, f"{END} launch")


@dataclass
class ToolEvidence(Evidence):
    channel = "fake"
    scheduled = ({"prompt": PROMPT},)

    def unknown(self) -> set[str]:
        return {"launch"} if self._told() == EFFECT_UNKNOWN else set()

    def facts(self) -> Iterator[Fact]:
        for facts in (self._shown, self._agents, self._launch, self._sessions):
            yield from facts()
        yield "steps", Counter(step.name for step in self.steps), Counter(TOOLS)

    def _shown(self) -> Iterator[Fact]:
        files = [(one["place"], one["text"], one["files"]) for one in self.shown if one["files"]]
        yield "files shown", files, [(ROOM, WITH_FILE, {FILE: REPORT})]
        answers = [text for text in self.texts_shown(ROOM) if text.startswith(HEARD)]
        others = sorted(text for text in self.texts_shown(ROOM) if not text.startswith(HEARD))
        yield "the room was shown", others, sorted([WITH_FILE, ASKS_HERE, TOLD + self._told(), DONE])
        heard = " ".join(text.removeprefix(HEARD) for text in answers)
        either = (f"{WAITS} {ADVICE}", f"{ADVICE} {WAITS}")
        yield "what waited was answered by", heard, heard if heard in either else either
        yield "the owner was shown", [text[: len(ASKS_OWNER)] for text in self.texts_shown(OWNER)], [ASKS_OWNER]
        changed = [row.content["text"].split(" at ")[0] for row in self.outbox if "operation" in row.content]
        yield "the owner's card became", changed, [f"Approved by `{self.channel}:{OWNER}`"]

    def _agents(self) -> Iterator[Fact]:
        folders = {row.id: row.folder for row in self.agents}
        said = Counter((folders[row.agent_group_id], row.content.get("text")) for row in self.inbox)
        expected = [(AGENT, GO), (AGENT, WAITS), (EXPERT, ASKED), (AGENT, ADVICE), (AGENT, None)]
        yield "said was", said, Counter(expected)
        between = Counter(row.content["text"] for row in self.outbox if row.channel_type == "agent")
        yield "between the agents", between, Counter([ASKED, ADVICE])
        tasks = [(row.id, row.content) for row in self.inbox if row.kind == "task"]
        scheduled = [(step.id, {"prompt": PROMPT}) for step in self.steps if step.name == "schedule_task"]
        yield "tasks, by the id of their step", tasks, scheduled

    def _launch(self) -> Iterator[Fact]:
        decided = [(row.status, row.decided_by) for row in self.approvals]
        yield "approvals", decided, [("used", f"{self.channel}:{OWNER}")]
        told, runs = self._told(), len(self.effects)
        least = 1 if told == LAUNCHED else 0
        yield f"runs of launch, of which the agent was told {told!r}", runs, within(runs, least, 1)
        if any(_is_unsure(death) for death in self.deaths):
            yield "of launch the agent was told", told, told if told in (LAUNCHED, EFFECT_UNKNOWN) else "one of two"
            return
        lost = next((death for death in self.deaths if _has_lost_launch(death)), None)
        yield "of launch the agent was told", told, LAUNCHED if lost is None else EFFECT_UNKNOWN
        yield "runs of launch", runs, 1 if lost is None else len(lost.effects)

    def _told(self) -> str:
        said = [step.output["text"] for step in self.steps if step.name == "launch" and step.output]
        return said[0] if len(said) == 1 else f"{len(said)} results"

    def _sessions(self) -> Iterator[Fact]:
        """The one that was begun anew has what was said meanwhile; each message is answered where it is."""
        [agent] = [row.id for row in self.agents if row.folder == AGENT]
        status = {row.id: row.status for row in self.sessions if row.agent_group_id == agent}
        yield "sessions", sorted(status.values()), ["active", "closed"]
        answered = {turn.id: turn.session_id for turn in self.turns}
        for row in self.inbox:
            if row.agent_group_id == agent:
                expected = "closed" if row.content.get("text") == GO else "active"
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
