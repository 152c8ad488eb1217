"""Sessions: to stop what one is at, to let it begin anew, to end it, to say something in it."""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from models.audit import note
from models.base import AnyRow
from models.groups import is_ours
from models.inbox import MessageIn, discard_waiting, has_waiting
from models.lookup import short
from models.programs import forget
from models.reminders import count_reminders
from models.sessions import close_session, find_session, lock_session, place_of
from models.tasks import unfollowed
from models.turns import open_turn, turns_of_session
from workers.giving_up import give_up, start_over
from workers.house import Done, House, due_wakes, ring
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.operations.keys import row_id_for, taken_once
from workers.refusals import RefusedError
from workers.scratch import remove_scratch
from workers.session_reset import begin_anew

COMMAND_LINE: Final = "cli"  # who it was, if it was nobody of the people


async def cancel(house: House, by: str, session_id: str) -> Done:
    """Stop the turn that runs, waits or is parked. Its worker can write nothing more, its messages are discarded, and
    what waits behind it goes on. RefusedError: there is none, or it has just ended."""

    async def work(conn: AsyncConnection) -> Done:
        session = await _session(conn, session_id)
        given_up = await give_up(conn, session_id, f"cancelled by {name_of_operator(by)}")
        if given_up is None:
            raise RefusedError(await _nothing_to_cancel(conn, session_id))
        about = {"agent_group_id": session.agent_group_id, "turn": given_up.number}
        await note(conn, by, "turn.cancel", session_id, **about)
        done = Done(f"turn {given_up.number} of {session.folder} was cancelled", deliveries=given_up.deliveries)
        done.stopped.append(session_id)
        done.events.append(given_up.ended)
        done.wakes += await due_wakes(conn, house.settings, session_id)
        return done

    return ring(house, await house.db.transact(work))


async def _nothing_to_cancel(conn: AsyncConnection, session_id: str) -> str:
    turns = await turns_of_session(conn, session_id)
    if not turns:
        return f"session {short(session_id)} has nothing to cancel: it has not begun a turn yet"
    last = turns[-1]
    return f"session {short(session_id)} has nothing to cancel: it has just ended (turn {last.number}: {last.status})"


async def reset(house: House, by: str, session_id: str) -> Done:
    """The conversation begins anew, in a new session, with all that waits; what the agent is at is given up."""

    async def work(conn: AsyncConnection) -> Done:
        session = await _session(conn, session_id)
        if session.replay_of is not None:
            raise RefusedError(
                f"session {short(session_id)} is a replay: close it, and replay {short(session.replay_of)} again"
            )
        done = await start_over(conn, session_id, f"given up: reset by {name_of_operator(by)}")
        if done is None:
            raise RefusedError(_closed(session_id))
        await note(conn, by, "session.reset", session_id, agent_group_id=session.agent_group_id)
        return done

    return ring(house, await house.db.transact(work))


async def close(house: House, by: str, session_id: str) -> Done:
    """End a session. What waits in it moves to the conversation's next one; a replay ends with all it was at.
    RefusedError: it is closed, or in the middle of a turn, whose messages would be lost."""

    async def work(conn: AsyncConnection) -> Done:
        session = await _session(conn, session_id)
        await lock_session(conn, session_id)
        done = await (_close_replay if session.replay_of is not None else _close)(conn, session)
        await note(conn, by, "session.close", session_id, agent_group_id=session.agent_group_id)
        return done

    done = ring(house, await house.db.transact(work))
    await remove_scratch(house.settings.workspace_root, session_id)
    return done


async def _close(conn: AsyncConnection, session: AnyRow) -> Done:
    turn = await open_turn(conn, session.id)
    if turn is not None:
        raise RefusedError(
            f"session {short(session.id)} is in the middle of turn {turn.number}: wait for its end, or cancel it first"
        )
    if not await _leaves_something(conn, session.id):
        if not await close_session(conn, session.id):
            raise RefusedError(_closed(session.id))
        await forget(conn, session.id)
        return Done(f"session {short(session.id)} of {session.folder} is closed")
    anew = await begin_anew(conn, session.id)
    if anew is None:
        raise RefusedError(_closed(session.id))
    said = f"session {short(session.id)} of {session.folder} is closed; what waits goes on in {short(anew.session_id)}"
    wakes = [(anew.session_id, session.provider or session.group_provider)] if anew.due else []
    return Done(said, list(wakes), anew.deliveries)


async def _leaves_something(conn: AsyncConnection, session_id: str) -> bool:
    """Messages, reminders, or recurring work whose next row the sweep has yet to write."""
    if await has_waiting(conn, session_id) or await count_reminders(conn, session_id):
        return True
    return bool(await unfollowed(conn, MessageIn.session_id == session_id))


async def _close_replay(conn: AsyncConnection, session: AnyRow) -> Done:
    done = Done(f"the replay {short(session.id)} of {session.folder} is closed", stopped=[session.id])
    given_up = await give_up(conn, session.id, "the replay was closed")
    if given_up is not None:
        done.deliveries += given_up.deliveries
        done.events.append(given_up.ended)
    await discard_waiting(conn, session.id, "the replay was closed")
    if not await close_session(conn, session.id):
        raise RefusedError(_closed(session.id))
    await forget(conn, session.id)
    return done


async def say(
    house: House, by: str, session_id: str, text: str, *, message_id: str | None = None, may_decide: bool = True
) -> Accepted:
    """A chat message in the session's own conversation, in the operator's name. Rings. `message_id`: the same one is
    taken once. `may_decide` False: it answers no question. RefusedError: the session is none that can be spoken to, or
    that one was used for something else."""
    session, place = await house.db.read(lambda conn: _place(conn, session_id))
    channel, _, person = by.partition(":")
    incoming = parse_incoming(
        {
            "agent_group": session.agent_group_id,
            "channel_type": place.channel_type,
            "platform_id": place.platform_id,
            "thread_id": session.thread_id or None,
            "text": text,
            # On another platform the same name may be somebody else's.
            "sender_id": person if channel == place.channel_type and person else None,
            "sender_name": "operator" if by == COMMAND_LINE else (person or by)[:200],
        }
    )
    row_id = row_id_for(f"say in {session_id}", by, message_id) if message_id is not None else None

    async def noted(conn: AsyncConnection, stored: Accepted) -> None:
        about = {"agent_group_id": session.agent_group_id, "message": stored.message_id}
        await note(conn, by, "session.say", session_id, **about)

    async def take() -> Accepted:
        within = (house.db, house.registry, house.settings)
        return await accept(*within, incoming, row_id=row_id, may_decide=may_decide, besides=noted)

    accepted = await taken_once(house, row_id, incoming, take)
    accepted.ring(house.bells)
    return accepted


async def _place(conn: AsyncConnection, session_id: str) -> tuple[AnyRow, AnyRow]:
    session = await _session(conn, session_id)
    place = await place_of(conn, session_id)
    if place is None:
        raise RefusedError(f"session {short(session_id)} is a replay: nobody can say anything in it")
    return session, place


async def _session(conn: AsyncConnection, session_id: str) -> AnyRow:
    session = await find_session(conn, session_id)
    if session is None or is_ours(session.folder):
        raise RefusedError(f"there is no session {session_id!r}; see: longshore sessions")
    return session


def _closed(session_id: str) -> str:
    return f"session {short(session_id)} is closed already"


def name_of_operator(by: str) -> str:
    return "the command line" if by == COMMAND_LINE else by
