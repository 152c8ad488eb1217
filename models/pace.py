"""How busy the fleet was lately: turns that began, by the hour. Hours are UTC's and the database's."""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import now
from models.overview import first_id_of
from models.sessions import Session
from models.spending import Mine
from models.turns import Turn
from models.utc_parts import utc_hour

HOURS: Final = 24
_FORMAT: Final = "%Y-%m-%d %H"


async def turns_per_hour(conn: AsyncConnection, mine: Mine, hours: int = HOURS) -> list[tuple[datetime, int]]:
    """Each of the last hours with the turns that began in it, the running one last. Quiet ones are there too."""
    at: datetime = (await conn.execute(select(now()))).scalar_one()
    last = at.replace(minute=0, second=0, microsecond=0)
    shown = [last - timedelta(hours=back) for back in reversed(range(hours))]
    hour = utc_hour(Turn.started_at)
    query = (
        select(hour.label("hour"), func.count())
        .join(Session, Session.id == Turn.session_id)
        # An id is made just before its turn begins: by it, the rest of the table is not read.
        .where(Turn.id >= first_id_of(shown[0] - timedelta(minutes=10)), mine(Session.agent_group_id))
        .group_by(hour)
    )
    counted = {name: int(number) for name, number in (await conn.execute(query)).all()}
    return [(one, counted.get(one.strftime(_FORMAT), 0)) for one in shown]
