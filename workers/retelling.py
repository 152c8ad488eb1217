"""Sessions in lines, for an agent that oversees another: what was said, what was done. Each line is one thing, each is
bounded, and what people wrote cannot look like a line of somebody else's.

Who may read what is decided by whoever asks; nothing here looks at it."""

import json
from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.conversation import Event
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.quoting import one_line
from models.turns import Step, Turn
from workers.formatting import plain_text

MAX_MESSAGE: Final = 2000
MAX_PART: Final = 500


async def said_lines(conn: AsyncConnection, session_id: str, limit: int) -> list[str]:
    """Every message of a session, also those that nobody has answered; the last of them."""
    heard = await _newest(conn, MessageIn, MessageIn.session_id == session_id, MessageIn.seq, limit)
    said = await _newest(conn, MessageOut, MessageOut.session_id == session_id, MessageOut.seq, limit)
    both = sorted([("in", row) for row in heard] + [("out", row) for row in said], key=lambda item: item[1].seq)
    return [_message_line(direction, row) for direction, row in both[-limit:]]


def _message_line(direction: str, row: AnyRow) -> str:
    return f"{row.seq} | {_time(row)} | {direction} {row.kind} {row.status} | {_words(direction, row)}"


def _words(direction: str, row: AnyRow) -> str:
    who = str(row.content.get("sender") or "someone") if direction == "in" else "the agent"
    words = plain_text(row) if direction == "in" else str(row.content.get("text") or "")
    return f"{one_line(who, 100)}: {one_line(words, MAX_MESSAGE)}"


def _time(row: AnyRow) -> str:
    return str(row.created_at.strftime("%Y-%m-%d %H:%M:%SZ"))


async def conversation_lines(conn: AsyncConnection, sessions: Collection[str], limit: int) -> list[str]:
    """What was said in these sessions of one conversation, in the order of time: by people, and by agents. Without what
    the fleet itself had to say, and without what no agent was given to read: people who are not let in yet."""
    heard = await _newest(
        conn,
        MessageIn,
        MessageIn.session_id.in_(sessions)
        & (MessageIn.kind != "system")
        & (MessageIn.status != "paused")
        & ((MessageIn.status != "discarded") | MessageIn.turn_id.is_not(None))
        & MessageIn.replay_of.is_(None),  # the first time stands for all
        MessageIn.created_at,
        limit,
    )
    spoken = (
        MessageOut.session_id.in_(sessions)
        & (MessageOut.kind != "notice")
        & MessageOut.turn_id.is_not(None)
        & (MessageOut.status != "cancelled")
        & or_(MessageOut.scheduled_for.is_(None), MessageOut.scheduled_for <= now())
    )
    said = await _newest(conn, MessageOut, spoken, MessageOut.created_at, limit)
    both = [("in", row) for row in heard] + [("out", row) for row in said]
    both.sort(key=lambda item: (item[1].created_at, item[0] == "out", item[1].seq))
    return [f"{_time(row)} | {_words(direction, row)}" for direction, row in both[-limit:]]


async def step_lines(conn: AsyncConnection, sessions: Collection[str], limit: int) -> list[str]:
    query = (
        select(Step.__table__, Turn.number.label("turn"))
        .join(Turn, Turn.id == Step.turn_id)
        .where(Turn.session_id.in_(sessions))
        .order_by(Turn.started_at.desc(), Turn.id.desc(), Step.number.desc())
        .limit(limit)
    )
    return [_step_line(row) for row in reversed((await conn.execute(query)).all())]


def _step_line(row: AnyRow) -> str:
    given, came = one_line(_json(row.input), MAX_PART), one_line(_json(row.output), MAX_PART)
    return f"turn {row.turn} step {row.number} | {row.kind} {row.name} {row.status} | {given} -> {came}"


async def event_lines(conn: AsyncConnection, session_id: str, limit: int) -> list[str]:
    rows = await _newest(conn, Event, Event.session_id == session_id, Event.seq, limit)
    return [f"event {row.seq} | {row.type} | {one_line(_json(row.payload), MAX_PART)}" for row in rows]


async def _newest(
    conn: AsyncConnection, table: type[Any], where: ColumnElement[bool], order: Any, limit: int
) -> list[AnyRow]:
    query = select(table.__table__).where(where).order_by(order.desc()).limit(limit)
    return list(reversed((await conn.execute(query)).all()))


def last_that_fit(lines: list[str], room: int) -> list[str]:
    """As many of the last lines as may be shown together, in so many characters."""
    shown: list[str] = []
    for line in reversed(lines):
        room -= len(line) + 1
        if room < 0:
            shown.append(f"[{len(lines) - len(shown)} earlier ones are left out]")
            break
        shown.append(line)
    return list(reversed(shown)) or ["(nothing yet)"]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
