"""Dead letters: to try one again (also on another provider), to put it away, to send a lost answer again."""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from models.audit import note
from models.base import AnyRow
from models.browsing import find_answer, find_message
from models.dead_letters import discard as discard_dead
from models.dead_letters import resend as resend_answer
from models.dead_letters import revive
from models.lookup import short
from models.series import terms_of_series
from models.workflows import find_stage
from workers.failover import check_choice
from workers.house import Done, House, due_wakes, ring
from workers.refusals import RefusedError

# What is said of a message that is not dead.
_STATES: Final = {
    "pending": "it waits to be answered",
    "processing": "it is being answered",
    "completed": "it was answered",
    "paused": "it is paused",
    "discarded": "it was put away",
}


async def retry(
    house: House, by: str, message_id: str, *, provider: str | None = None, model: str | None = None
) -> Done:
    """A dead message is pending again, with all its tries; where its session was closed, in the one that follows.
    `provider`, `model`: it is run by these, whatever its session and agent say. RefusedError: it is not dead, or there
    is no such provider; nothing was changed then."""
    check_choice(house.registry, provider, model)

    async def work(conn: AsyncConnection) -> Done:
        row = await _dead(conn, message_id)
        if row.session_replay_of is not None and row.session_status != "active":
            raise RefusedError(f"message {short(row.id)} is of a replay that was closed: replay it again instead")
        if (stage := await find_stage(conn, row.id)) is not None and stage.status != "running":
            again = f"longshore foreman restart {short(stage.workflow_id)}"
            raise RefusedError(f"message {short(row.id)} is a stage of a workflow, and that stage is over: {again}")
        own = provider or await _own_provider(conn, house, row)
        check_choice(house.registry, own, None)
        named = {} if provider is None and model is None else {"provider": own, "model": model}
        session_id = await revive(conn, row.id, **named)
        if session_id is None:
            raise RefusedError(await _why_not(conn, row.id))
        await note(conn, by, "dead.retry", row.id, agent_group_id=row.owner_id, provider=provider, model=model)
        wakes = await due_wakes(conn, house.settings, session_id)
        where = f" on {own}" + (f" ({model})" if model is not None else "") if named else ""
        return Done(f"message {short(row.id)} is back in the queue of {row.folder}{where}", wakes)

    return ring(house, await house.db.transact(work))


async def _own_provider(conn: AsyncConnection, house: House, row: AnyRow) -> str:
    """Who runs it if nobody else is chosen now."""
    of_task = None
    if row.series_id is not None:
        of_task = (await terms_of_series(conn, row.series_id, row.owner_id)).provider
    return row.provider or of_task or row.own_provider or house.settings.default_provider


async def discard(house: House, by: str, message_id: str) -> Done:
    """Put a dead message away for good; the row stays. RefusedError: it is not dead."""

    async def work(conn: AsyncConnection) -> Done:
        row = await _dead(conn, message_id)
        if not await discard_dead(conn, row.id):
            raise RefusedError(await _why_not(conn, row.id))
        await note(conn, by, "dead.discard", row.id, agent_group_id=row.owner_id)
        return Done(f"message {short(row.id)} was put away")

    return await house.db.transact(work)


async def resend(house: House, by: str, message_out_id: str) -> Done:
    """Send an undelivered answer again, under its old key. RefusedError: it is not undelivered."""

    async def work(conn: AsyncConnection) -> Done:
        row = await find_answer(conn, message_out_id)
        if row is None:
            raise RefusedError(f"there is no answer {message_out_id!r}; see: longshore dead --undelivered")
        if not await resend_answer(conn, row.id):
            raise RefusedError(f"answer {short(row.id)} is not undelivered: it is {row.status}")
        await note(conn, by, "dead.resend", row.id, agent_group_id=row.owner_id)
        return Done(f"answer {short(row.id)} is back in the queue", deliveries=[row.id])

    return ring(house, await house.db.transact(work))


async def _dead(conn: AsyncConnection, message_id: str) -> AnyRow:
    row = await find_message(conn, message_id)
    if row is None:
        raise RefusedError(f"there is no message {message_id!r}; see: longshore dead")
    if row.status != "failed":
        raise RefusedError(_is_not_dead(row))
    return row


async def _why_not(conn: AsyncConnection, message_id: str) -> str:
    """Somebody else was quicker."""
    row = await find_message(conn, message_id)
    return f"message {short(message_id)} is gone" if row is None else _is_not_dead(row)


def _is_not_dead(row: AnyRow) -> str:
    return f"message {short(row.id)} is not dead: {_STATES.get(row.status, row.status)}"
