"""Commands: words that begin with a slash and are for the fleet or for the agent's program, not for its model.

They are judged before the agent sees anything. What is not in a table here is ordinary text: people write paths."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import AdapterError
from adapters.model_port import ModelProvider
from adapters.registry import Registry
from models.audit import note
from models.base import AnyRow, new_id, now
from models.inbox import MessageIn
from models.sessions import find_active_session, find_session, take_numbers
from models.upsert import insert_ignoring
from workers.access import NEEDED, Act, Standing
from workers.giving_up import start_over
from workers.house import Done
from workers.intake.routing import Route

# Telegram adds the bot's name in groups.
_COMMAND: Final = re.compile(r"/([a-z][a-z0-9_-]*)(?:@\w+)?(?=\s|$)")

OWN: Final[Mapping[str, Act]] = {
    "status": Act.STATUS,
    "clear": Act.CLEAR,
    "compact": Act.COMPACT,
    "remote-control": Act.REMOTE_CONTROL,
}
_ACCOUNT: Final = "accounts and keys are set by whoever runs the fleet"
_SETTINGS: Final = "settings of an agent are changed with `longshore groups set`"
_PROGRAM: Final = "the fleet starts and stops agents"
_SCREEN: Final = "it needs a terminal"
# What programs know and nobody may tell them through a chat, with the reason.
FILTERED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("login", "logout", "upgrade", "setup-token", "privacy-settings"), _ACCOUNT),
    **dict.fromkeys(
        ("config", "settings", "permissions", "allowed-tools", "model", "mcp", "hooks", "plugin", "add-dir", "sandbox"),
        _SETTINGS,
    ),
    **dict.fromkeys(("exit", "quit", "resume", "rewind", "bashes", "tasks"), _PROGRAM),
    **dict.fromkeys(("vim", "theme", "terminal-setup", "statusline", "ide", "doctor", "bug", "feedback"), _SCREEN),
}
# What passes to a program as it is, by provider; a group's config adds its own: {"commands": ["review"]}.
RAW: Final[Mapping[str, frozenset[str]]] = {"claude-code": frozenset({"cost", "context", "usage"})}
# Programs that have these themselves.
HAVE_COMPACT: Final = frozenset({"claude-code"})
HAVE_REMOTE_CONTROL: Final = frozenset({"claude-code"})
# Somebody's wish to sum up, as a system message that rides along with the next turn (`workers/compaction.py`).
_COMPACT: Final = {"action": "compact", "status": "requested", "result": "what was said before is summed up now"}


@dataclass(frozen=True)
class Command:
    name: str
    act: Act  # what the sender must be allowed to
    kind: Literal["own", "filtered", "raw"]
    text: str


def command_in(text: str, provider: str, config: Mapping[str, Any] | None) -> Command | None:
    """The command that a text is to an agent on this provider; None: it is ordinary text."""
    found = _COMMAND.match(text.strip())
    if found is None:
        return None
    name = found[1]
    whole = f"/{name}{text.strip()[found.end() :]}"
    if name in OWN:
        return Command(name, OWN[name], "own", whole)
    if name in FILTERED:
        return Command(name, Act.TALK, "filtered", whole)
    added = (config or {}).get("commands")
    if name in RAW.get(provider, ()) or (isinstance(added, list) and name in added):
        return Command(name, Act.TALK, "raw", whole)
    return None


def denial(command: Command, folder: str, standing: Standing) -> str:
    needed = {Standing.MEMBER: "members", Standing.ADMIN: "admins"}[NEEDED[command.act]]
    return f"/{command.name} is for {needed} of {folder}. You are {standing.words}."


async def perform(
    conn: AsyncConnection,
    registry: Registry,
    command: Command,
    route: Route,
    agent: AnyRow,
    provider: str,
    by: str | None,
) -> Done | None:
    """Do what a command says, for somebody who may. None: the program is to get it as it is. `agent`: folder, provider,
    config. `by`: whose command it is, for the audit log."""
    if command.kind == "filtered":
        return Done(f"/{command.name} was not passed on: {FILTERED[command.name]}.")
    if command.kind == "raw":
        return None
    session_id = await find_active_session(conn, route.agent_group_id, route.messaging_group_id, route.thread_id)
    match command.name:
        case "status":
            return Done(await _status(conn, session_id, agent.folder))
        case "clear":
            assert by is not None  # nobody in particular has no standing
            return await _clear(conn, session_id, route, agent.folder, by)
        case "compact":
            return await _compact(conn, registry, session_id, agent.folder, provider, route)
        case _:
            if provider in HAVE_REMOTE_CONTROL:
                return None
            return Done(f"{agent.folder} runs on {provider}, which has no /remote-control.")


async def _clear(conn: AsyncConnection, session_id: str | None, route: Route, folder: str, by: str) -> Done:
    done = await start_over(conn, session_id, "given up by /clear") if session_id is not None else None
    if session_id is None or done is None:
        return Done(f"There is nothing to forget: {folder} was told nothing here yet.")
    await note(conn, by, "session.reset", session_id, agent_group_id=route.agent_group_id)
    return done


async def _status(conn: AsyncConnection, session_id: str | None, folder: str) -> str:
    session = await find_session(conn, session_id) if session_id is not None else None
    if session is None:
        return f"{folder} is idle. Nothing was said here yet."
    query = select(func.count(), now()).where(
        MessageIn.session_id == session_id,
        MessageIn.status == "pending",
        MessageIn.turn_id.is_(None),
        MessageIn.wakes,
        MessageIn.process_after <= now(),
    )
    waiting, at = (await conn.execute(query)).one()
    doing = session.activity or "at work"
    since = f", for {_span((at - session.activity_since).total_seconds())}" if session.activity_since else ""
    if session.lease_expires_at is not None and session.lease_expires_at < at:
        state = "was interrupted, and is about to be taken up by another worker"
    elif session.lease_expires_at is not None:
        state = f"is at work: {doing}{since}"
    elif session.resume_after is not None and session.resume_after > at:
        state = f"waits: {session.activity or 'to try again'}{since}"
    else:
        state = "is idle"
    more = {0: "No message waits.", 1: "1 message waits."}.get(waiting, f"{waiting} messages wait.")
    return f"{folder} {state}. {more}"


async def _compact(
    conn: AsyncConnection, registry: Registry, session_id: str | None, folder: str, provider: str, route: Route
) -> Done | None:
    if provider in HAVE_COMPACT:
        return None
    if not _is_model(registry, provider):
        return Done(f"{folder} runs on {provider}, which has no /compact. /clear lets it begin anew.")
    session = await find_session(conn, session_id) if session_id is not None else None
    if session is None or session.turn_seq == 0:
        return Done(f"There is nothing to sum up: {folder} was told nothing here yet.")
    wish = {
        "id": new_id(),
        "session_id": session.id,
        "agent_group_id": route.agent_group_id,
        "seq": await take_numbers(conn, session.id, 1),
        "kind": "system",
        "wakes": False,
        "content": _COMPACT,
    }
    query = select(MessageIn.channel_type, MessageIn.platform_id, MessageIn.thread_id)
    last = query.where(MessageIn.session_id == session.id).order_by(MessageIn.seq.desc()).limit(1)
    place = (await conn.execute(last)).one()
    await insert_ignoring(conn, MessageIn, **wish, **place._mapping)
    return Done(f"Before {folder} answers the next message, what was said so far is archived and summed up.")


def _is_model(registry: Registry, provider: str) -> bool:
    try:
        return isinstance(registry.providers.get(provider), ModelProvider)
    except AdapterError:
        return False


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
