"""A direct chat as lines: what its person said and what agents answered, in the order of their times, with changes made
to what they change."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.http.web_messages import show
from models.base import AnyRow
from models.groups import is_ours, wirings_of
from models.web_chats import WEB, last_heard, last_said, room_sessions

LINES: Final = 100
# Of one line, and of all: what is over it is the beginning of the older ones.
LONG: Final = 20_000
CHARACTERS: Final = 200_000
SHORT: Final = 500


@dataclass
class Line:
    """`agent`: who says it; None is the fleet itself. `mine`: the person; `status` is how their message stands."""

    key: str
    at: datetime
    text: str
    mine: bool = False
    agent: str | None = None
    status: str = ""
    buttons: list[dict[str, Any]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    reactions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Chat:
    """`agents`: who listens there. `sessions`: their sessions, as `models.web_chats` gives them."""

    lines: list[Line]
    agents: list[str]
    sessions: list[AnyRow]


async def read_chat(conn: AsyncConnection, chat: str) -> Chat:
    said = await last_said(conn, chat, LINES)
    lines: dict[str, Line] = {}
    for shown, row in zip(await show(conn, chat, said), said, strict=True):
        _say(lines, shown, row)
    for row in await last_heard(conn, chat, LINES):
        line = Line(f"in{row.id}", row.created_at, _words(row), mine=True, status=row.status)
        lines[line.key] = line
    sessions = await room_sessions(conn, chat, None)
    agents = {row.folder for row in [*await wirings_of(conn, WEB, chat), *sessions] if not is_ours(row.folder)}
    latest = sorted(lines.values(), key=lambda line: line.at)[-LINES:]
    shorten(latest)
    return Chat(latest, sorted(agents), sessions)


def shorten(lines: Sequence[Line]) -> None:
    """The latest have the most room."""
    room = CHARACTERS
    for line in reversed(lines):
        most = LONG if room > 0 else SHORT
        if len(line.text) > most:
            line.text = line.text[:most] + "…"
        room -= len(line.text)


def _say(lines: dict[str, Line], shown: dict[str, Any], row: AnyRow) -> None:
    changed = lines.get(f"out{shown.get('changes')}")
    if shown.get("operation") == "reaction":
        if changed is not None:
            changed.reactions.append(str(shown.get("emoji") or ""))
    elif changed is not None:
        changed.text, changed.buttons = shown["text"], shown.get("buttons", [])
    elif "operation" not in shown:
        key = f"out{row.id}"
        files = [{"name": file["name"], "number": number} for number, file in enumerate(shown.get("files", ()))]
        by = None if row.kind == "notice" else shown["agent"]
        parts = {"agent": by, "buttons": shown.get("buttons", []), "files": files}
        lines[key] = Line(key, row.delivered_at, shown["text"], **parts)


def _words(row: AnyRow) -> str:
    text = row.content.get("text")
    return text if isinstance(text, str) else ""
