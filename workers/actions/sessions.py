"""Sessions: to begin one's own anew, and to read those of agents one oversees.

Who oversees whom is the policy's word. A session that is not there and one that may not be read give the same answer,
so nobody learns by asking what there is."""

import json
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import ListSessions, ReadSession, ResetSession
from adapters.errors import ToolError
from models.base import AnyRow
from models.conversation import Event
from models.groups import agent_folders
from models.inbox import MessageIn
from models.lookup import short
from models.outbox import MessageOut
from models.programs import forget
from models.quoting import one_line
from models.reminders import move_reminders
from models.sessions import mark_if_due, move_waiting, sessions_named, sessions_of, succeed
from models.tasks import unfollowed
from models.turns import Step, Turn
from scheduler.recurring import follow
from workers.actions.caller import Caller, Performed
from workers.formatting import plain_text

MAX_LISTED: Final = 50
# Together less than a tool's result may have, so that it is the oldest that are left out and not the end.
MAX_SHOWN: Final = 40_000
MAX_MESSAGE: Final = 2000
MAX_PART: Final = 500


async def reset(conn: AsyncConnection, caller: Caller, action: ResetSession, step_id: str, number: int) -> Performed:
    """Only words: the turn's end does it, if it comes to a good end (`begin_anew`)."""
    return Performed("When this turn is over, you begin anew: what was said so far will not be before you any more.")


@dataclass(frozen=True)
class Anew:
    session_id: str
    due: bool  # it has something to do at once
    deliveries: list[str]  # to ring for


async def begin_anew(conn: AsyncConnection, session_id: str) -> Anew | None:
    """The conversation goes on in a new session, with all that waits. None: somebody has closed the session.

    In the transaction that completes the turn, after its messages are `completed`. What has been sent stays with the
    old session, and is delivered from there. Recurring work whose next row the sweep has yet to write gets it here,
    since the sweep would write it into the old session, where nothing runs any more."""
    new = await succeed(conn, session_id)
    if new is None:
        return None
    await move_waiting(conn, session_id, new)
    await move_reminders(conn, session_id, new)
    await forget(conn, session_id)
    rows = await unfollowed(conn, MessageIn.session_id == session_id)
    deliveries = await follow(conn, rows, {session_id: new})
    return Anew(new, await mark_if_due(conn, new), deliveries)


async def list_sessions(
    conn: AsyncConnection, caller: Caller, action: ListSessions, step_id: str, number: int
) -> Performed:
    folders = await _overseen(conn, caller)
    if action.agent_group is not None:
        if action.agent_group not in folders:
            raise ToolError(f"you oversee no agent {action.agent_group!r}")
        folders = {action.agent_group}
    sessions = await sessions_of(conn, folders, MAX_LISTED)
    if not sessions:
        return Performed("There are no sessions.")
    head = "id | agent | state | turns | messages | last active (UTC)"
    return Performed("\n".join([head, *map(_session_line, sessions)]))


def _session_line(row: AnyRow) -> str:
    state = row.status if row.status != "active" else one_line(row.activity, 100) if row.activity else "idle"
    active = row.last_active.strftime("%Y-%m-%d %H:%M:%S")
    whose = row.folder if row.replay_of is None else f"{row.folder} (replay)"
    return f"{short(row.id)} | {whose} | {state} | {row.turn_seq} | {row.message_seq} | {active}"


async def read_session(
    conn: AsyncConnection, caller: Caller, action: ReadSession, step_id: str, number: int
) -> Performed:
    found = await sessions_named(conn, await _overseen(conn, caller), action.session_id)
    if not found:
        raise ToolError(f"there is no session {action.session_id!r} that you may read; list_sessions shows them")
    if len(found) > 1:
        raise ToolError(f"{action.session_id!r} may be one of several sessions; give the whole id")
    [session] = found
    if action.view == "messages":
        lines = await _messages(conn, session.id, action.limit)
    elif _scope(caller, session.folder) != "steps":
        raise ToolError(f"you may read what is said in sessions of {session.folder}, not their steps")
    else:
        lines = [*await _steps(conn, session.id, action.limit), *await _events(conn, session.id, action.limit)]
    head = f"Session {short(session.id)} of {session.folder}, {action.view}. What others said and did, for you to read:"
    return Performed("\n".join([head, *_last(lines)]))


def _scope(caller: Caller, folder: str) -> str | None:
    """How much of an agent's sessions may be read. What is said of it by name goes before what is said of all."""
    return caller.policy.oversees.get(folder) or caller.policy.oversees.get("*")


async def _overseen(conn: AsyncConnection, caller: Caller) -> set[str]:
    return {folder for folder in await agent_folders(conn) if _scope(caller, folder) is not None}


async def _messages(conn: AsyncConnection, session_id: str, limit: int) -> list[str]:
    heard = await _newest(conn, MessageIn, MessageIn.session_id == session_id, MessageIn.seq, limit)
    said = await _newest(conn, MessageOut, MessageOut.session_id == session_id, MessageOut.seq, limit)
    both = sorted([("in", row) for row in heard] + [("out", row) for row in said], key=lambda item: item[1].seq)
    return [_message_line(direction, row) for direction, row in both[-limit:]]


def _message_line(direction: str, row: AnyRow) -> str:
    who = str(row.content.get("sender") or "someone") if direction == "in" else "the agent"
    words = plain_text(row) if direction == "in" else str(row.content.get("text") or "")
    time = row.created_at.strftime("%Y-%m-%d %H:%M:%SZ")
    said = f"{one_line(who, 100)}: {one_line(words, MAX_MESSAGE)}"
    return f"{row.seq} | {time} | {direction} {row.kind} {row.status} | {said}"


async def _steps(conn: AsyncConnection, session_id: str, limit: int) -> list[str]:
    query = (
        select(Step.__table__, Turn.number.label("turn"))
        .join(Turn, Turn.id == Step.turn_id)
        .where(Turn.session_id == session_id)
        .order_by(Turn.number.desc(), Step.number.desc())
        .limit(limit)
    )
    return [_step_line(row) for row in reversed((await conn.execute(query)).all())]


def _step_line(row: AnyRow) -> str:
    given, came = one_line(_json(row.input), MAX_PART), one_line(_json(row.output), MAX_PART)
    return f"turn {row.turn} step {row.number} | {row.kind} {row.name} {row.status} | {given} -> {came}"


async def _events(conn: AsyncConnection, session_id: str, limit: int) -> list[str]:
    rows = await _newest(conn, Event, Event.session_id == session_id, Event.seq, limit)
    return [f"event {row.seq} | {row.type} | {one_line(_json(row.payload), MAX_PART)}" for row in rows]


async def _newest(
    conn: AsyncConnection, table: type[Any], where: ColumnElement[bool], order: Any, limit: int
) -> list[AnyRow]:
    query = select(table.__table__).where(where).order_by(order.desc()).limit(limit)
    return list(reversed((await conn.execute(query)).all()))


def _last(lines: list[str]) -> list[str]:
    """As many of the last lines as may be shown together."""
    shown: list[str] = []
    left = MAX_SHOWN
    for line in reversed(lines):
        left -= len(line) + 1
        if left < 0:
            shown.append(f"[{len(lines) - len(shown)} earlier ones are left out]")
            break
        shown.append(line)
    return list(reversed(shown)) or ["(nothing yet)"]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
