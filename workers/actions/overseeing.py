"""Reading sessions of agents one oversees: across them, and one of them.

Who oversees whom is the policy's word. A session that is not there and one that may not be read give the same answer,
so nobody learns by asking what there is."""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import ListSessions, ReadSession
from adapters.errors import ToolError
from models.base import AnyRow
from models.groups import agent_folders
from models.lookup import short
from models.overseeing import Overseen, first_messages, overseen
from models.quoting import one_line
from models.sessions import sessions_named
from workers.actions.caller import Caller, Performed
from workers.formatting import plain_text
from workers.retelling import event_lines, last_that_fit, said_lines, step_lines

MAX_LISTED: Final = 50
# Together less than a tool's result may have, so that it is the oldest that are left out and not the end.
MAX_SHOWN: Final = 40_000
MAX_ABOUT: Final = 120
HEAD: Final = "id | agent | state | turns | messages | begun (UTC) | last active (UTC) | about"


async def list_sessions(
    conn: AsyncConnection, caller: Caller, action: ListSessions, step_id: str, number: int
) -> Performed:
    folders = await _folders(conn, caller)
    if action.agent_group is not None:
        if action.agent_group not in folders:
            raise ToolError(f"you oversee no agent {action.agent_group!r}")
        folders = {action.agent_group}
    found = await overseen(conn, folders, MAX_LISTED, action.begun_since, action.state)
    if not found.sessions:
        return Performed("There are no such sessions." if action.narrows else "There are no sessions.")
    about = await first_messages(conn, [row.id for row in found.sessions])
    lines = [_session_line(row, about.get(row.id)) for row in found.sessions]
    return Performed("\n".join([_counts(found), HEAD, *lines]))


async def _folders(conn: AsyncConnection, caller: Caller) -> set[str]:
    """Of the agents it oversees."""
    return {folder for folder in await agent_folders(conn) if caller.policy.scope_of(folder) is not None}


def _counts(found: Overseen) -> str:
    """How many there are, not only how many are shown."""
    said = f"{_many(found.conversations, 'conversation')}, {_many(found.total, 'session')}"
    if found.replays:
        said += f" ({_many(found.replays, 'replay')} among them)"
    more = found.total > len(found.sessions)
    return f"{said}. The {len(found.sessions)} most recently active:" if more else f"{said}:"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _session_line(row: AnyRow, first: AnyRow | None) -> str:
    state = row.status if row.status != "active" else one_line(row.activity, 100) if row.activity else "idle"
    whose = row.folder if row.replay_of is None else f"{row.folder} (replay)"
    begun, active = (date.strftime("%Y-%m-%d %H:%M:%S") for date in (row.created_at, row.last_active))
    facts = f"{short(row.id)} | {whose} | {state} | {row.turn_seq} | {row.message_seq} | {begun} | {active}"
    return f"{facts} | {_about(first)}"


def _about(first: AnyRow | None) -> str:
    """What it began with: enough to tell one from the other."""
    if first is None:
        return "-"
    payload = first.content.get("payload")
    title = payload.get("title") if first.kind == "webhook" and isinstance(payload, dict) else None
    return one_line(title if isinstance(title, str) else plain_text(first), MAX_ABOUT) or "-"


async def read_session(
    conn: AsyncConnection, caller: Caller, action: ReadSession, step_id: str, number: int
) -> Performed:
    found = await sessions_named(conn, await _folders(conn, caller), action.session_id)
    if not found:
        raise ToolError(f"there is no session {action.session_id!r} that you may read; list_sessions shows them")
    if len(found) > 1:
        raise ToolError(f"{action.session_id!r} may be one of several sessions; give the whole id")
    [session] = found
    if action.view == "messages":
        lines = await said_lines(conn, session.id, action.limit)
    elif caller.policy.scope_of(session.folder) != "steps":
        raise ToolError(f"you may read what is said in sessions of {session.folder}, not their steps")
    else:
        done = await step_lines(conn, [session.id], action.limit)
        lines = [*done, *await event_lines(conn, session.id, action.limit)]
    head = f"Session {short(session.id)} of {session.folder}, {action.view}. What others said and did, for you to read:"
    return Performed("\n".join([head, *last_that_fit(lines, MAX_SHOWN)]))
