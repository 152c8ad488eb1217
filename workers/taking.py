"""What a turn is about: what is due in a session, or the turn that a dead worker left; and on what terms, if it is the
run of a scheduled task. Part of the transaction that opens a turn (`workers.opening`)."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.budgets import release_reservations
from models.inbox import TRAVELS_ALONE_AFTER, batch, due_messages, messages_of_turn, settle
from models.outbox import has_left
from models.programs import interrupted_at
from models.series import DEFAULT_TERMS, Terms, find_series, terms_of, terms_of_series
from models.turns import has_effects, open_turn, set_turn
from scheduler.following import is_missed
from workers.failover import Choice
from workers.settings import Settings


@dataclass(frozen=True)
class Taken:
    """What a turn is about. `unfinished`: the turn that an earlier worker left, if it is that one. `leftover`: others
    are due. `series_id` and `terms`: of the one task it may be a run of. `named`: who is to run it, if somebody has
    chosen."""

    messages: list[AnyRow]
    unfinished: AnyRow | None
    leftover: bool
    series_id: str | None
    terms: Terms
    named: Choice | None


async def take(conn: AsyncConnection, session: AnyRow, settings: Settings) -> Taken | None:
    """For whoever has claimed the session. None: nothing is to be done.

    Decided before anybody asks whose queue this is: whichever worker looks finds the same."""
    due = await _due(conn, session)
    unfinished = await open_turn(conn, session.id) if any(message.turn_id for message in due) else None
    if unfinished is not None:
        messages = await messages_of_turn(conn, unfinished.id)
        if not is_lost(unfinished, messages, settings) and await _may_split(conn, unfinished, messages):
            # One of them may be what kills it: they go on one by one, in their order.
            await _split(conn, unfinished.id)
            due, unfinished = await _due(conn, session), None
    if unfinished is None:
        messages = batch(due)
        if not messages:
            return None
    ids = {message.id for message in messages}
    leftover = any(message.wakes for message in due if message.id not in ids)
    series_id = next((message.series_id for message in messages if message.series_id is not None), None)
    terms = DEFAULT_TERMS
    if series_id is not None:
        terms = await terms_of_series(conn, series_id, session.agent_group_id)
    named = next((Choice(row.provider, row.model) for row in messages if row.provider is not None), None)
    return Taken(messages, unfinished, leftover, series_id, terms, named)


async def _due(conn: AsyncConnection, session: AnyRow) -> list[AnyRow]:
    """What is due in a session, without the runs that come too late for their task: the sweep puts those away."""
    due = await due_messages(conn, session.id)
    late = {
        message.id: message.series_id
        for message in due
        if message.series_id is not None
        and message.turn_id is None
        and not message.tries
        and not (message.recurred and message.recurrence is None)  # somebody asked for it besides the dates
        and is_missed(message.process_after, message.created_at, message.status_changed_at, session.activity_since)
    }
    if not late:
        return due
    series = await find_series(conn, list(set(late.values())))
    missed = {row_id for row_id, of in late.items() if terms_of(series.get(of)).catch_up == "skip"}
    return [message for message in due if message.id not in missed]


def is_lost(turn: AnyRow, messages: list[AnyRow], settings: Settings) -> bool:
    """Whether an unfinished turn has lost its workers too often to be tried again."""
    return bool(turn.status == "running" and max(message.tries for message in messages) >= settings.max_tries)


async def _may_split(conn: AsyncConnection, turn: AnyRow, messages: list[AnyRow]) -> bool:
    """A batch that failed twice is taken apart, unless it has had effects: its journal knows of them, a new turn's
    would not; or its program can go on where it was interrupted."""
    if sum(message.wakes for message in messages) < 2 or messages[0].tries < TRAVELS_ALONE_AFTER:
        return False
    if await has_effects(conn, turn.id) or await has_left(conn, turn.id):
        return False
    return await interrupted_at(conn, turn.session_id, turn.provider, turn.id) is None


async def _split(conn: AsyncConnection, turn_id: str) -> None:
    why = "failed as a batch; its messages go on one by one"
    await set_turn(conn, turn_id, status="cancelled", error=why, ended_at=now())
    await release_reservations(conn, turn_id)
    await settle(conn, turn_id, "pending", turn_id=None)
