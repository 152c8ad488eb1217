"""A direct chat as lines: what its person said and what agents answered, in the order of their times, with changes made
to what they change."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.visitors import Guest
from gateway.http.web_messages import show
from models.base import AnyRow
from models.groups import is_ours, wirings_of
from models.web_chats import WEB, asking_cards, last_heard, last_said, room_sessions
from workers.consent.cards import may_choose

LINES: Final = 100
# Of one line, and of all: what is over it is the beginning of the older ones.
LONG: Final = 20_000
CHARACTERS: Final = 200_000
SHORT: Final = 500
_DECIDES: Final = {
    "approval": "an admin of {} or an owner whose sign-in may decide",
    "question": "an answer from somebody whose sign-in may decide",
}


@dataclass
class Line:
    """`agent`: who says it; None is the fleet itself. `mine`: the person, or somebody in their chat, who is then named
    by `by`; `status` is how their message stands. `turn`: in which an agent said it. `waits_for`: who is to
    decide what it asks, if it is not this person."""

    key: str
    at: datetime
    text: str
    mine: bool = False
    by: str = ""
    turn: str | None = None
    agent: str | None = None
    status: str = ""
    waits_for: str = ""
    buttons: list[dict[str, Any]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    reactions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Chat:
    """`agents`: who listens there. `sessions`: their sessions, as `models.web_chats` gives them."""

    lines: list[Line]
    agents: list[str]
    sessions: list[AnyRow]


async def read_chat(conn: AsyncConnection, guest: Guest) -> Chat:
    chat = guest.name
    said = await last_said(conn, chat, LINES)
    lines: dict[str, Line] = {}
    for shown, row in zip(await show(conn, chat, said), said, strict=True):
        _say(lines, shown, row)
    await _keep_own_buttons(conn, lines, guest)
    for row in await last_heard(conn, chat, LINES):
        if isinstance(row.content.get("agent"), dict):
            continue  # of another agent, to the one that is here
        by = "" if row.sender_id == chat else str(row.content.get("sender") or "somebody")
        line = Line(f"in{row.id}", row.created_at, _words(row), mine=True, by=by, status=row.status)
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


async def _keep_own_buttons(conn: AsyncConnection, lines: dict[str, Line], guest: Guest) -> None:
    """Whoever may only talk is shown who is waited for, instead of buttons that would be refused."""
    asking = {f"out{card.message_out_id}": card for card in await asking_cards(conn, _with_buttons(lines))}
    for key, card in asking.items():
        if key in lines and not (guest.can("decide") and await may_choose(conn, card, guest.user_id)):
            line = lines[key]
            line.buttons, line.waits_for = [], _DECIDES[card.kind].format(line.agent or "the agent")


def _with_buttons(lines: dict[str, Line]) -> list[str]:
    return [key.removeprefix("out") for key, line in lines.items() if line.buttons]


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
        parts = {"agent": by, "turn": row.turn_id, "buttons": shown.get("buttons", []), "files": files}
        lines[key] = Line(key, row.delivered_at, shown["text"], **parts)


def _words(row: AnyRow) -> str:
    text = row.content.get("text")
    return text if isinstance(text, str) else ""
