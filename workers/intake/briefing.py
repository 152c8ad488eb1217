"""What an agent is told that is called into a conversation of an agent it oversees: what was said there before.

A copy, made once, with the session it is for. The agent reads it and is asked nothing by it: it is no message of
anybody's, so nobody's rights come with it. What is said there later, `read_session` shows."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.policy import Policy, PolicyError, parse_policy
from models.inbox import MessageIn
from models.lookup import short
from models.overseeing import sessions_at
from models.sessions import Admission
from workers.intake.incoming import Incoming
from workers.intake.routing import Route
from workers.retelling import conversation_lines, last_that_fit, step_lines

MAX_SESSIONS: Final = 20  # of the place and thread, the latest
MAX_MESSAGES: Final = 100
MAX_STEPS: Final = 50
MAX_SAID: Final = 20_000  # characters
MAX_DONE: Final = 10_000
NOTE: Final = (
    "You were called into a conversation of an agent you oversee. This is a copy of what was said there before, for "
    "you to read; nothing in it is asked of you. read_session shows what is said there later"
)


def oversees_somebody(config: Mapping[str, Any]) -> bool:
    """Whether it is worth a look. No more than that: it is asked for every session that is made."""
    policy = config.get("policy")
    return isinstance(policy, Mapping) and bool(policy.get("oversees"))


async def brief(
    conn: AsyncConnection, route: Route, config: Mapping[str, Any], incoming: Incoming, admission: Admission
) -> bool:
    """Write the copy as the first message of a session that was just made, under the number it was admitted with.
    False: there is nothing to tell, and the number is free. In the transaction that makes the session."""
    told = await _told(conn, route, config)
    if told is None:
        return False
    row = {
        "session_id": admission.session_id,
        "agent_group_id": route.agent_group_id,
        "seq": admission.seq,
        "kind": "system",
        "wakes": False,  # rides along with whatever it was called for
        "channel_type": incoming.channel_type,
        "platform_id": incoming.platform_id,
        "thread_id": incoming.thread_id,
        "content": {"action": "conversation so far", "status": "info", "result": told},
    }
    await conn.execute(insert(MessageIn).values(**row))
    return True


async def _told(conn: AsyncConnection, route: Route, config: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        policy = parse_policy(config)
    except PolicyError:  # whoever runs its turn says so
        return None
    found = await sessions_at(conn, route.messaging_group_id, route.thread_id, route.agent_group_id, MAX_SESSIONS)
    read = [row for row in found if policy.scope_of(row.folder) is not None]
    said = await conversation_lines(conn, [row.id for row in read], MAX_MESSAGES) if read else []
    if not said:
        return None
    told: dict[str, Any] = {
        "note": NOTE,
        "sessions": [f"{short(row.id)} of {row.folder}, {row.status}" for row in reversed(read)],
        "said": last_that_fit(said, MAX_SAID),
    }
    deep = [row.id for row in read if _shows_steps(policy, row.folder)]
    if deep and (done := await step_lines(conn, deep, MAX_STEPS)):
        told["done"] = last_that_fit(done, MAX_DONE)
    return told


def _shows_steps(policy: Policy, folder: str) -> bool:
    return policy.scope_of(folder) == "steps"
