"""Waiting for locks of the database."""

from sqlalchemy.ext.asyncio import AsyncConnection

from tests.support.conditions import wait_for_condition
from tests.support.fleet import Fleet


async def wait_for_blocked_query(fleet: Fleet) -> None:
    """Until somebody waits for a lock of this database."""
    await wait_for_condition(lambda: fleet.db.read(_count_blocked))


async def _count_blocked(conn: AsyncConnection) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return int((await conn.exec_driver_sql(query)).scalar_one())
