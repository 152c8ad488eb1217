"""Beginning a conversation anew: on the agent's own word when its turn is over, or on somebody else's.

What waits goes on in the new session; nothing of it is lost, and nothing is answered twice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from models.inbox import MessageIn
from models.programs import forget
from models.reminders import move_reminders
from models.replays import put_copies
from models.sessions import mark_if_due, move_waiting, succeed
from models.tasks import unfollowed
from scheduler.recurring import follow


@dataclass(frozen=True)
class Anew:
    session_id: str
    due: bool  # it has something to do at once
    deliveries: list[str]  # to ring for


async def begin_anew(
    conn: AsyncConnection, session_id: str, new: str | None = None, first: Sequence[dict[str, Any]] = ()
) -> Anew | None:
    """The conversation goes on in a new session, with all that waits. None: somebody has closed the session. `new`: the
    id it is to have. `first`: messages, numbered from 1, that come before what waits.

    In the transaction that completes the turn, after its messages are `completed`. What has been sent stays with the
    old session, and is delivered from there. Recurring work whose next row the sweep has yet to write gets it here,
    since the sweep would write it into the old session, where nothing runs any more."""
    new = await succeed(conn, session_id, new)
    if new is None:
        return None
    if first:
        await put_copies(conn, first)
    await move_waiting(conn, session_id, new, after=len(first))
    await move_reminders(conn, session_id, new)
    await forget(conn, session_id)
    rows = await unfollowed(conn, MessageIn.session_id == session_id)
    deliveries = await follow(conn, rows, {session_id: new})
    return Anew(new, await mark_if_due(conn, new), deliveries)
