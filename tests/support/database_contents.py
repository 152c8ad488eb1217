"""Time that has passed: everything in a database becomes older. And what is in it, table by table, to compare."""

import gzip
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import Base, Timestamp
from models.database import Database

Rows = dict[tuple[Any, ...], dict[str, Any]]  # by table and key


async def grow_older(db: Database, days: int) -> None:
    """Every instant, and every day, lies so many days further back."""

    async def work(conn: AsyncConnection) -> None:
        postgres = conn.dialect.name == "postgresql"
        for table in Base.metadata.sorted_tables:
            columns = [column.name for column in table.c if isinstance(column.type, Timestamp)]
            moved = [
                f"{name} = {name} - interval '{days} days'"
                if postgres
                else f"{name} = strftime('%Y-%m-%d %H:%M:%f000', {name}, '-{days} days')"
                for name in columns
            ]
            if table.name == "budget_days":
                moved.append(f"day = (day::date - {days})::text" if postgres else f"day = date(day, '-{days} days')")
            if moved:
                await conn.execute(text(f"UPDATE {table.name} SET {', '.join(moved)}".replace(":", r"\:")))

    await db.transact(work)


async def everything(db: Database) -> Rows:
    """All rows there are."""

    async def work(conn: AsyncConnection) -> Rows:
        found: Rows = {}
        for table in Base.metadata.sorted_tables:
            for row in (await conn.execute(select(table))).all():
                found[(table.name, *(getattr(row, column.name) for column in table.primary_key))] = row._asdict()
        return found

    return await db.read(work)


def archived(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row that files of an archive hold, with its table."""
    for path in sorted(folder.rglob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                kept = json.loads(line)
                yield kept["table"], kept["row"]


def as_archived(row: dict[str, Any]) -> dict[str, Any]:
    """A row as its line must say it."""

    def plain(value: Any) -> Any:
        match value:
            case datetime():
                return value.isoformat()
            case bytes():
                return "\\x" + value.hex()
            case _:
                return value

    return {name: plain(value) for name, value in row.items()}
