"""Giving up what a session is at, because somebody wants it: whoever runs it can write nothing more, its messages are
put away and nobody is asked anything for it. Beginning anew, which may give something up.

In the transaction of whoever wants it, before anything else is done to the session; `workers.house.ring` after it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import ErrorClass
from adapters.events import Envelope, TurnEnded, event_to_dict
from models.base import now
from models.budgets import release_reservations
from models.consent import close_questions
from models.conversation import Event
from models.inbox import settle
from models.sessions import evict, find_session, take_event_number
from models.turns import open_turn, set_turn
from workers.events import envelope
from workers.house import Done
from workers.session_reset import begin_anew

First = Callable[[], Awaitable[Sequence[dict[str, Any]]]]  # rows of messages_in


@dataclass(frozen=True)
class GivenUp:
    """A turn that is over. `deliveries`: what its cards become, to be rung for."""

    turn_id: str
    number: int
    ended: Envelope
    deliveries: list[str]


async def give_up(conn: AsyncConnection, session_id: str, why: str) -> GivenUp | None:
    """None: no turn runs, waits or is parked; one that was just being ended has been. Either way nobody has the session
    any more, and its row is locked until the commit."""
    await evict(conn, session_id)
    turn = await open_turn(conn, session_id)
    if turn is None:
        return None
    await set_turn(conn, turn.id, status="cancelled", error=why, error_class=ErrorClass.CANCELLED, ended_at=now())
    await release_reservations(conn, turn.id)
    closed = await close_questions(conn, turn.id)
    # Without a class: what somebody gave up is no failure of the task that it may be a run of.
    await settle(conn, turn.id, "discarded", error=why, error_class=None)
    told = TurnEnded(status="cancelled", error=why, error_class=ErrorClass.CANCELLED)
    seq = await take_event_number(conn, session_id)
    ids = {"session_id": session_id, "turn_id": turn.id, "seq": seq}
    await conn.execute(insert(Event).values(type=told.type, payload=event_to_dict(told), **ids))
    return GivenUp(turn.id, turn.number, envelope(session_id, told, turn_id=turn.id, seq=seq), closed)


async def start_over(
    conn: AsyncConnection, session_id: str, why: str, new: str | None = None, first: First | None = None
) -> Done | None:
    """The conversation begins anew in a new session, with all that waits. What the agent was at is given up. None:
    somebody has closed the session. `new`: the id of the new session. `first`: what is to be answered there before all
    that waits; it is asked when what the agent was at is over."""
    given_up = await give_up(conn, session_id, why)
    session = await find_session(conn, session_id)
    assert session is not None
    anew = await begin_anew(conn, session_id, new, await first() if first is not None else ())
    if anew is None:
        return None
    said = f"{session.folder} begins anew: what was said before is not before it any more."
    done = Done(said, deliveries=anew.deliveries, stopped=[session_id])
    if given_up is not None:
        done.text += " What it was at was given up."
        done.deliveries += given_up.deliveries
        done.events.append(given_up.ended)
    if anew.due:
        done.wakes.append((anew.session_id, session.provider or session.group_provider))
    return done
