"""Resetting and replaying sessions of another agent, on an agent's word: its policy must say that it steers that one,
and everybody whose messages the turn answers must be an admin of it, at the moment it is done.

Done in the transaction of the step, once: one whose commit has taken effect, and whose answer was lost, says again what
came of it, and no session is made twice, because its id is made of the step's."""

import uuid
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import SteerSession
from adapters.errors import ToolError
from adapters.policy import Policy, PolicyError, parse_policy
from models.audit import note
from models.base import AnyRow
from models.groups import agent_groups, how_it_runs
from models.lookup import short
from models.overseeing import conversations_of
from models.sessions import sessions_named
from models.turns import outcome_of
from workers.access import Act
from workers.actions.caller import Caller, Performed
from workers.failover import check_choice
from workers.giving_up import start_over
from workers.house import Done
from workers.operations.again import put_again
from workers.operations.replays import Wish, original_of, put_beside
from workers.refusals import RefusedError

MAX_AT_ONCE: Final = 20
NOT_YOURS: Final = "there is no session {!r} of an agent that you steer; list_sessions shows those you may read"


async def steer(conn: AsyncConnection, caller: Caller, action: SteerSession, step_id: str, number: int) -> Performed:
    done_before = await outcome_of(conn, step_id)
    if done_before is not None:
        return Performed(done_before)
    targets = await _targets(conn, caller, await _policy_now(conn, caller), action)
    if not await caller.have_asked(conn, Act.OPERATE, targets[0].agent_group_id):
        raise ToolError(
            f"only admins of {targets[0].folder} may have its sessions reset or replayed, and not everybody you are "
            "answering is one, or nobody is there to ask: a scheduled run does not. Nothing was done"
        )
    performed = Performed("")
    lines: list[str] = []
    for target in targets:
        try:
            done = await _steer_one(conn, caller, action, target, _id_of(step_id, target.id))
        except RefusedError as refusal:  # all or nothing
            raise ToolError(f"{refusal.reason}. Nothing was done") from None
        lines.append(done.text)
        performed.include(done, caller.default_provider)
    performed.text = "\n".join(lines)
    return performed


async def _policy_now(conn: AsyncConnection, caller: Caller) -> Policy:
    """Not the one the turn began with: that may be hours ago."""
    try:
        return parse_policy((await how_it_runs(conn, caller.turn.agent_group_id)).config or {})
    except PolicyError as error:
        raise ToolError(f"your policy cannot be read: {error}. Nothing was done") from None


async def _targets(conn: AsyncConnection, caller: Caller, policy: Policy, action: SteerSession) -> list[AnyRow]:
    """All of one agent. What is not there and what may not be touched give the same answer."""
    steered = {row.folder: row.id for row in await agent_groups(conn) if policy.may_steer(row.folder)}
    if action.agent_group is not None:
        if action.agent_group not in steered:
            raise ToolError(f"you steer no agent {action.agent_group!r}")
        found = await conversations_of(conn, steered[action.agent_group], MAX_AT_ONCE + 1)
        found = [row for row in found if row.id != caller.session_id]
        if not found:
            raise ToolError(f"{action.agent_group} has no conversation with people that is open")
        if len(found) > MAX_AT_ONCE:
            raise ToolError(
                f"{action.agent_group} has more than {MAX_AT_ONCE} conversations: name the session, one by one"
            )
        return found
    assert action.session_id is not None
    found = await sessions_named(conn, steered, action.session_id)
    if not found:
        raise ToolError(NOT_YOURS.format(action.session_id))
    if len(found) > 1:
        raise ToolError(f"{action.session_id!r} may be one of several sessions; give the whole id")
    if found[0].id == caller.session_id:
        raise ToolError("that is this session: reset_session begins it anew, and you are in the middle of it")
    return found


async def _steer_one(conn: AsyncConnection, caller: Caller, action: SteerSession, target: AnyRow, new: str) -> Done:
    by, who = caller.people[0] or "", _who(caller)
    wish = Wish(None, action.provider, action.model)
    if action.act == "reset":
        return await _reset(conn, by, target, new, who)
    if action.act == "again":
        made = await put_again(conn, caller.registry, by, target.id, new, wish, caller.default_provider, **who)
        return made.done
    check_choice(caller.registry, action.provider, action.model)
    original = await original_of(conn, target.id)
    replay = await put_beside(conn, caller.registry, by, original, new, wish, **who)
    said = f"{target.folder}: {short(target.id)} is said again on {replay.provider}, in the replay {short(new)}"
    return Done(said, wakes=[(new, replay.provider)])


async def _reset(conn: AsyncConnection, by: str, target: AnyRow, new: str, who: dict[str, Any]) -> Done:
    if target.replay_of is not None:
        raise RefusedError(f"session {short(target.id)} is a replay: it is not reset")
    if target.workflow_id is not None:
        raise RefusedError(f"session {short(target.id)} is part of a workflow: it is not reset")
    if target.status != "active":
        raise RefusedError(f"session {short(target.id)} is closed already")
    done = await start_over(conn, target.id, f"given up: reset by {by}", new)
    if done is None:
        raise RefusedError(f"session {short(target.id)} is closed already")
    await note(conn, by, "session.reset", target.id, agent_group_id=target.agent_group_id, to=new, **who)
    done.text = f"{target.folder} has begun anew, in {short(new)}"
    return done


def _who(caller: Caller) -> dict[str, Any]:
    """For the audit's line, beside the first of those who asked."""
    people = list(caller.people)
    return {"agent": caller.turn.folder, "turn_id": caller.turn.id, "people": people if len(people) > 1 else None}


def _id_of(step_id: str, session_id: str) -> str:
    """Of the session that comes of it."""
    return str(uuid.uuid5(uuid.UUID(step_id), session_id))
