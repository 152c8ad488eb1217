"""An agent with something of everything that the API shows, and a word in all of it that nobody else may read."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from models import Approval, MessageIn, MessageOut, PendingQuestion, Usage
from models.audit import Audit
from models.base import new_id
from models.fleet import Rejected
from models.groups import Wiring
from tests.support.fleet import Fleet
from tests.support.open_gateway import wire
from tests.support.workflow_rows import put_workflow
from workers.consent.requests import hash_of

TOMORROW = datetime.now(UTC) + timedelta(days=1)


async def seed(fleet: Fleet, folder: str, word: str) -> dict[str, str]:
    """Returns an id for each name of a parameter in the paths of the API."""
    script = f"{word}: {{texts}}"
    config = {"provider_options": {"script": script}, "budget": {"daily_usd": 5.0}, "policy": {"without": [word]}}
    group = await fleet.add_group(folder, name=word, config=config)
    await wire(fleet, group, "fake", f"{word}-room")
    accepted = await fleet.send(f"hello {word}", agent_group=folder, platform_id=f"{word}-inbox")
    await fleet.settle_down()
    session = accepted.session_id
    [turn] = [turn for turn in await fleet.turns() if turn.session_id == session]
    place = {"channel_type": "local", "platform_id": f"{word}-inbox"}
    dead, lost, question, approval = (new_id() for _ in range(4))
    said: dict[str, Any] = {"session_id": session, "content": {"text": word}, **place}
    failed = {"status": "failed", "error": word, "kind": "chat"}
    await fleet.insert(MessageIn, {"id": dead, "agent_group_id": group, "seq": 900, **said, **failed})
    await fleet.insert(MessageOut, {"id": lost, "seq": 901, "idempotency_key": lost, **said, **failed})
    of_turn = {"session_id": session, "turn_id": turn.id, "expires_at": TOMORROW}
    asked = {"title": word, "text": word, "options": [word]}
    await fleet.insert(PendingQuestion, {"id": question, "message_out_id": lost, "question": asked, **of_turn, **place})
    risky = {"category": "tool", "summary": word, "risk": "high", "payload": {"a": word}}
    await fleet.insert(Approval, {"id": approval, **of_turn, **risky, "payload_hash": hash_of({"a": word})})
    spent = {"agent_group_id": group, "session_id": session, "turn_id": turn.id, "provider": word, "model": word}
    await fleet.insert(Usage, {**spent, "input_tokens": 1, "output_tokens": 1, "cost_usd": Decimal("0.5")})
    await fleet.insert(Audit, {"who": word, "act": "x.y", "target": word, "agent_group_id": group, "detail": {}})
    await fleet.insert(Rejected, {"source": "x", "reason": word, "payload": {"text": word}})
    task = await fleet.send(word, agent_group=folder, kind="task", recurrence="@daily", platform_id=f"{word}-inbox")
    workflow = await put_workflow(fleet, "negative", folder=folder, word=word)
    stopped = await put_workflow(fleet, "cancelled", folder=folder, word=word)
    [wiring] = [row for row in await fleet.rows(Wiring) if row.agent_group_id == group]
    return {
        "folder": folder,
        "session_id": session,
        "turn_id": turn.id,
        "message_id": dead,
        "task_id": task.message_id,
        "approval_id": approval,
        "question_id": question,
        "wiring_id": wiring.id,
        "workflow_id": workflow.id,
        "stopped_workflow": stopped.id,
        "undelivered": lost,
        "group": group,
    }
