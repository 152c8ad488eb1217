"""What a session's page shows before anything else happens: its last turns, and what waits."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.timeline.fitting import ONE_TURN, PAGE, fit
from gateway.console.timeline.joining import turns_of
from gateway.console.timeline.turn_view import TurnView
from models.base import AnyRow
from models.timeline import (
    events_of_turns,
    find_turn_numbered,
    latest_turns,
    rows_of_turns,
    waiting_messages,
)
from workers.events import stored_envelope

TURNS: Final = 10  # on a page; those before are fetched when somebody wants them


@dataclass(frozen=True)
class History:
    """`earlier`: there are turns before this number that are not here; None: this is the beginning."""

    turns: list[TurnView]
    waiting: list[AnyRow]
    earlier: int | None


async def read_history(
    conn: AsyncConnection, session_id: str, before: int | None = None, turns: int = TURNS
) -> History:
    found = await latest_turns(conn, session_id, turns + 1, before)
    shown = found[-turns:]
    events = await events_of_turns(conn, session_id, [turn.id for turn in shown])
    numbers = {number for event in events for number in event.payload.get("messages", ())}
    following = await find_turn_numbered(conn, session_id, before) if before is not None else None
    until = following.started_at if following is not None else None
    rows = await rows_of_turns(conn, session_id, shown, numbers, until)
    envelopes = [item for event in events if (item := stored_envelope(event)) is not None]
    earlier = shown[0].number if len(found) > turns else None
    views = turns_of(rows, envelopes)
    fit(views, PAGE if turns > 1 else ONE_TURN)
    return History(views, await waiting_messages(conn, session_id), earlier)
