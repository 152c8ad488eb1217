"""What is asked for under a key of the asker's own is done once, and the same key for something else is refused.

The row that comes of it has an id made of the key: so there is one, whoever else asks at the same moment."""

import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, storable_json
from models.browsing import find_message
from models.series import terms_of_series
from workers.house import House
from workers.intake.incoming import Incoming
from workers.intake.ingest import Accepted
from workers.refusals import RefusedError

_KEYS: Final = uuid.UUID("5b9d1c4e-6f0a-4d6c-9d57-0f7e1a2c8b31")
OTHER_CONTENT: Final = "this key was used before, for something else: give every request its own"


def row_id_for(what: str, by: str, key: str) -> str:
    """`what`: the kind of thing that is asked for. The same key of one person may stand for one of each."""
    return str(uuid.uuid5(_KEYS, json.dumps([what, by, key])))


async def taken_once(
    house: House, row_id: str | None, incoming: Incoming, take: Callable[[], Awaitable[Accepted]]
) -> Accepted:
    """What came of a message: now, by `take`, or before under the same key. None: without a key, so now.
    RefusedError: under its key something else was taken, or what was taken has been changed since."""
    if row_id is None:
        return await take()
    if (known := await _taken_before(house, row_id, incoming)) is not None:
        return known
    accepted = await take()
    if accepted.duplicate:  # somebody was quicker
        await _taken_before(house, accepted.message_id, incoming)
    return accepted


async def _taken_before(house: House, row_id: str, incoming: Incoming) -> Accepted | None:
    async def look(conn: AsyncConnection) -> Accepted | None:
        row = await find_message(conn, row_id)
        if row is None:
            return None
        if not await _is_same(conn, incoming, row):
            raise RefusedError(OTHER_CONTENT, kind="busy")
        return Accepted(message_id=row.id, session_id=row.session_id, seq=row.seq, duplicate=True)

    return await house.db.read(look)


async def _is_same(conn: AsyncConnection, incoming: Incoming, row: AnyRow) -> bool:
    return (
        json.loads(storable_json(incoming.stored_content())) == row.content
        and incoming.agent_group in (None, row.folder, row.owner_id)
        and (incoming.channel_type, incoming.platform_id) == (row.channel_type, row.platform_id)
        and (incoming.thread_id, incoming.sender_id) == (row.thread_id, row.sender_id)
        and (incoming.kind, incoming.recurrence) == (row.kind, row.recurrence)
        # Without a date of its own, it was given one by the clock.
        and incoming.process_after in (None, row.scheduled_for)
        and (incoming.recurrence is None or incoming.timezone == row.timezone)
        and (incoming.kind != "task" or incoming.run_on() == await terms_of_series(conn, row.id, row.owner_id))
    )
