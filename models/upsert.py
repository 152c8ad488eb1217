"""INSERT that gives way to an existing row: the same statement for both databases."""

from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import Base


def insert_ignoring(conn: AsyncConnection, table: type[Base], **values: Any) -> postgresql.Insert | sqlite.Insert:
    """INSERT … ON CONFLICT DO NOTHING: whoever comes second inserts nothing and gets no error."""
    make = postgresql.insert if conn.dialect.name == "postgresql" else sqlite.insert
    return make(table).values(**values).on_conflict_do_nothing()


def insert_or_update(
    conn: AsyncConnection, table: type[Base], key: list[str], **values: Any
) -> postgresql.Insert | sqlite.Insert:
    """INSERT, or on the same key UPDATE everything else."""
    make = postgresql.insert if conn.dialect.name == "postgresql" else sqlite.insert
    changes = {name: value for name, value in values.items() if name not in key}
    return make(table).values(**values).on_conflict_do_update(index_elements=key, set_=changes)
