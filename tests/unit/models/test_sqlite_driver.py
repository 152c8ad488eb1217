"""The way to SQLite's thread: one visit per statement, and the same outcome as by the driver that needs four."""

from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from models.database import Database


@pytest.mark.spec("D2")
async def test_a_statement_is_one_visit_and_a_transaction_two_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = Database(f"sqlite:///{tmp_path}/x.db")
    await db.transact(lambda conn: conn.execute(text("CREATE TABLE t (a INTEGER PRIMARY KEY)")))
    visits: list[str] = []
    execute = aiosqlite.Connection._execute

    async def counted(self: Any, fn: Any, *args: Any) -> Any:
        visits.append(args[0].split()[0] if args else fn.__name__)
        return await execute(self, fn, *args)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(aiosqlite.Connection, "_execute", counted)
    added = await db.transact(lambda conn: conn.execute(text("INSERT INTO t VALUES (1), (2) RETURNING a")))
    assert (sorted(added.scalars()), visits) == ([1, 2], ["BEGIN", "INSERT", "commit"])
    monkeypatch.undo()

    with pytest.raises(IntegrityError):
        await db.transact(lambda conn: conn.execute(text("INSERT INTO t VALUES (3), (1)")))
    changed = await db.transact(lambda conn: conn.execute(text("UPDATE t SET a = a + 10")))
    kept = await db.read(lambda conn: conn.execute(text("SELECT a FROM t ORDER BY a")))
    assert (changed.rowcount, list(kept.scalars())) == (2, [11, 12])
    await db.close()
