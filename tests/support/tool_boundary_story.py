"""The turn whose effects are counted, and how it goes on: a file is sent, another agent asked, a task scheduled, a
risky tool run once somebody has approved it, and the conversation begun anew while messages wait.

Known to the worker that lives it, to the dock that prepares it and to the ledger that judges it."""

from typing import Any, Final

from models import AgentGroup, User, UserDm, UserRole
from models.base import new_id
from models.groups import ensure_messaging_group
from tests.support.fleet import Fleet

CHANNEL: Final = "fake"
ROOM: Final = "room"
OWNER: Final = "olga"
AGENT, EXPERT = "demo", "expert"
GO, WAITS = "go", "and then?"
ASKED, ADVICE = "how much?", "It is 42"
FILE, REPORT, WITH_FILE = "report.txt", "all is well\n" * 1000, "Here it is."
PROMPT: Final = "water the plants"
LAUNCHED: Final = "launched prod"
TOLD, HEARD, DONE = "launch says: ", "heard: ", "done"
ASKS_HERE: Final = "I wait for an approval before I go on (launch). Whoever runs me has been asked."
ASKS_OWNER: Final = f"**{AGENT} asks for an approval** (high risk, tool)\n`{AGENT} wants launch(what=prod)`\n"
TOOLS: Final = ("send_file", "send_to_agent", "schedule_task", "launch", "send_message", "reset_session")

_SCRIPT: Final = f"""
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


async def prepare(fleet: Fleet) -> None:
    """Two agents, and somebody to ask for approvals."""
    await fleet.insert(AgentGroup, _agent(AGENT, _SCRIPT, agents=[EXPERT]), _agent(EXPERT, ADVICE))
    user = f"{CHANNEL}:{OWNER}"
    place = await fleet.db.transact(lambda conn: ensure_messaging_group(conn, CHANNEL, OWNER))
    await fleet.insert(User, {"id": user, "kind": CHANNEL})
    await fleet.insert(UserRole, {"id": new_id(), "user_id": user, "role": "owner"})
    await fleet.insert(UserDm, {"user_id": user, "channel_type": CHANNEL, "messaging_group_id": place})


def _agent(folder: str, script: str, **policy: Any) -> dict[str, Any]:
    config = {"provider_options": {"script": script}, "policy": policy}
    return {"id": new_id(), "name": folder, "folder": folder, "provider": "scripted", "config": config}
