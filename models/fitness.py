"""How providers have done lately: their latest turns, for whoever chooses among them.

The table of turns has no index by provider, and none is wanted: every message would pay for it. So only the latest
turns of the whole fleet are looked at, by the time that is in their ids."""

from datetime import timedelta
from typing import Final

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.overview import first_id_of
from models.turns import Turn

WITHIN: Final = timedelta(days=7)
TURNS: Final = 50  # of each provider
# Of all providers. One whose turns all lie behind so many of others counts as one that was not used.
LOOKED_AT: Final = 10_000


async def recent_turns(conn: AsyncConnection) -> list[AnyRow]:
    """Turns that came to an end by themselves, the latest first: the last `TURNS` of each provider, and besides those
    that a provider handed over to another (`tried`)."""
    earliest = (await conn.execute(select(now()))).scalar_one() - WITHIN
    latest = (
        select(Turn.id, Turn.provider, Turn.status, Turn.error_class, Turn.tried, Turn.started_at, Turn.ended_at)
        .where(Turn.id >= first_id_of(earliest), Turn.status.in_(["completed", "failed"]))
        .order_by(Turn.id.desc())
        .limit(LOOKED_AT)
        .subquery()
    )
    place = func.row_number().over(partition_by=latest.c.provider, order_by=latest.c.id.desc())
    placed = select(latest, place.label("place")).subquery()
    query = select(placed).where(or_(placed.c.place <= TURNS, placed.c.tried.is_not(None)))
    return list((await conn.execute(query.order_by(placed.c.id.desc()))).all())
