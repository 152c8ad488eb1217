"""How busy the fleet was lately: turns that began, by the hour. Hours are UTC's and the database's."""

from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import String, func, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from models.base import now
from models.overview import first_id_of
from models.sessions import Session
from models.spending import Mine
from models.turns import Turn

HOURS: Final = 24
_FORMAT: Final = "%Y-%m-%d %H"


class utc_hour(FunctionElement[str]):  # noqa: N801 - reads as the SQL function it is
    """The date and hour of an instant, as YYYY-MM-DD HH."""

    type = String()
    inherit_cache = True
    name = "utc_hour"


@compiles(utc_hour, "postgresql")
def _utc_hour_postgresql(element: utc_hour, compiler: SQLCompiler, **kw: Any) -> str:
    return f"to_char({compiler.process(element.clauses, **kw)} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24')"


@compiles(utc_hour, "sqlite")
def _utc_hour_sqlite(element: utc_hour, compiler: SQLCompiler, **kw: Any) -> str:
    # Instants are stored as text, in UTC, the date first.
    return f"substr({compiler.process(element.clauses, **kw)}, 1, 13)"


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
