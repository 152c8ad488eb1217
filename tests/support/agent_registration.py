"""An agent that registers another one, as people ask it to."""

from typing import Any

from models import Approval
from tests.support.fleet import Fleet
from tests.support.tool_calls import fetch_answer, script_calls
from workers.consent.approvals import decide

GARDENER: dict[str, Any] = {
    "name": "The Gardener",
    "folder": "gardener",
    "platformId": "garden",
    "channelType": "fake",
    "provider": "scripted",
    "model": "script",
    "sessionMode": "per-thread",
    "triggerRules": {"pattern": "^plants", "mentionOnly": True, "excludeSenders": ["bot"]},
}


async def register_agent(fleet: Fleet, arguments: dict[str, Any], sender: str = "olga", *, approve: bool = True) -> str:
    """Somebody asks for an agent, and somebody approves (or denies) it. Returns what the agent was told."""
    await script_calls(fleet, ("register_agent_group", arguments))
    accepted = await fleet.send("make one", sender_id=sender)
    assert await fleet.answer_wakes() == ["parked"]
    [approval] = [row for row in await fleet.rows(Approval) if row.status == "pending"]
    await decide(fleet.db, approval.id, approve=approve, user_id="local:olga")
    assert await fleet.wake(accepted.session_id) == "completed"
    return await fetch_answer(fleet, accepted.message_id)
