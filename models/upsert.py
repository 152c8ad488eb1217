"""INSERT that gives way to an existing row: the same statement for both databases."""

from functools import cache
from typing import Any, cast

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import Base

Insert = postgresql.Insert | sqlite.Insert


async def insert_ignoring(conn: AsyncConnection, table: type[Base], **row: Any) -> bool:
    """INSERT … ON CONFLICT DO NOTHING: whoever comes second inserts nothing and gets no error, but False."""
    return (await conn.execute(_ignoring(conn.dialect.name, table), row)).one_or_none() is not None


async def insert_many_ignoring(conn: AsyncConnection, table: type[Base], rows: list[dict[str, Any]]) -> set[str]:
    """The same for many rows with the same columns, in one statement; returns the keys of those that were inserted."""
    if not rows:
        return set()
    return set((await conn.execute(_ignoring(conn.dialect.name, table), rows)).scalars())


async def insert_or_update(conn: AsyncConnection, table: type[Base], key: list[str], **row: Any) -> None:
    """INSERT, or on the same key UPDATE everything else."""
    changes = {name: value for name, value in row.items() if name not in key}
    statement = _insert(conn.dialect.name, table).values(**row)
    await conn.execute(statement.on_conflict_do_update(index_elements=key, set_=changes))


async def insert_or_update_many(
    conn: AsyncConnection, table: type[Base], key: list[str], changed: list[str], rows: list[dict[str, Any]]
) -> None:
    """INSERT many rows with the same columns; where there is one of that key, UPDATE the changed columns."""
    if not rows:
        return
    statement = _insert(conn.dialect.name, table)
    changes = {name: statement.excluded[name] for name in changed}
    await conn.execute(statement.on_conflict_do_update(index_elements=key, set_=changes), rows)


@cache
def _ignoring(dialect: str, table: type[Base]) -> Any:
    key = next(iter(cast(Table, table.__table__).primary_key.columns))
    return _insert(dialect, table).on_conflict_do_nothing().returning(key)


def _insert(dialect: str, table: type[Base]) -> Insert:
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return make(cast(Table, table.__table__))
