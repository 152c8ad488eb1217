"""The story of the tools: what is said, asked and done in it, and the boundaries of what it does."""

from typing import Final

from tests.support.boundaries.marks import (
    AFTER_DELIVERY,
    AFTER_EFFECT,
    BEFORE_DELIVERY,
    BEFORE_EFFECT,
    BEGIN,
    COMPLETE,
    END,
    around_commits,
)
from workers.consent.risky_calls import Consent

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
HALF_COPIED: Final = "half copied"
SCRIPT: Final = f"""
- when: ^{GO}$
  play:
  - {{tool: send_file, with: {{path: {FILE}, text: {WITH_FILE}}}}}
  - {{tool: send_to_agent, with: {{agentGroupId: {EXPERT}, text: '{ASKED}'}}}}
  - {{tool: schedule_task, with: {{prompt: {PROMPT}, processAfter: '2990-01-01T00:00:00Z'}}}}
  - {{tool: launch, with: {{what: prod}}}}
  - {{tool: send_message, with: {{text: '{TOLD}{{result}}'}}}}
  - {{tool: reset_session}}
  - {{answer: {DONE}}}
- play: [{{answer: '{HEARD}{{texts}}'}}]
"""
# Before and after every commit and every effect of the tools.
_COMMITS = [f"{commit} {tool}" for commit in (BEGIN, END) for tool in TOOLS]
AROUND_TOOLS = around_commits(*_COMMITS, Consent._use.__qualname__, Consent._ask.__qualname__) | {
    f"{side}{tool}" for side in (BEFORE_EFFECT, AFTER_EFFECT) for tool in TOOLS
}
# And around what makes an effect out of what they wrote: the file's delivery, the two ways between the agents, the
# decision, the end of the turn (the first is the other agent's).
NEVER_LEFT_OUT = (
    AROUND_TOOLS
    | {BEFORE_DELIVERY + WITH_FILE, AFTER_DELIVERY + WITH_FILE, HALF_COPIED}
    | around_commits("_claim", "delivered", "_to_agent", "_to_agent #2", "decide", f"{COMPLETE} #2")
)
