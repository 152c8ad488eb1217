"""Rows that are kept in files before they are removed: whole, readable by nobody else, and never in neither place."""

import asyncio
import errno
import gzip
import os
import stat
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from models import MessageIn, ProgramState, Rejected, Session, pruning
from models.base import new_id, now
from models.database import Database
from tests.support.database_contents import Rows, archived, as_archived, everything, grow_older
from tests.support.fleet import Fleet
from workers.archive import Archive, ArchiveError
from workers.retention import Pruned, Pruning, Terms

pytestmark = pytest.mark.both_databases

SCRIPT = """
- play:
    - tool: clock
    - usage: {model: big, input_tokens: 9, output_tokens: 5, cost_usd: 0.12345678}
    - answer: "it is {result}"
"""


@pytest.fixture
async def old_fleet(fleet: Fleet) -> Fleet:
    """With a past: several conversations, one of them closed, all long ago; in words of all kinds."""
    await fleet.add_group(script=SCRIPT)
    for text in ("hello", '\u2028 \U0001f6a2 \\ " \t\n ünï', "x" * 5000):
        await fleet.send(text, thread_id=new_id())
    await fleet.settle_down()
    session = (await fleet.sessions())[0].id
    await fleet.insert(ProgramState, {"session_id": session, "provider": "codex", "state": bytes(range(256))})
    await fleet.execute(update(Session).where(Session.id == session).values(status="closed"))
    await fleet.insert(Rejected, {"source": "x", "reason": "no", "payload": {"nested": [1, None, 2.5, {"a": "b"}]}})
    await grow_older(fleet.db, 40)
    return fleet


def pruning_of(fleet: Fleet, folder: Path) -> Pruning:
    return Pruning(fleet.db, Terms(30, 30), Archive(folder))


def missing(before: Rows, after: Rows) -> list[tuple[str, dict[str, Any]]]:
    return [(name[0], as_archived(before[name])) for name in before.keys() - after.keys()]


def in_any_order(rows: Any) -> list[Any]:
    return sorted(rows, key=repr)


@pytest.mark.spec("D6")
async def test_every_row_that_goes_is_kept_as_it_was(old_fleet: Fleet, tmp_path: Path) -> None:
    before = await everything(old_fleet.db)
    folder = tmp_path / "kept" / "here"
    pruned = await pruning_of(old_fleet, folder).run()
    gone = missing(before, await everything(old_fleet.db))
    assert pruned.total == len(gone) > 20
    assert {"messages_in", "messages_out", "events", "steps", "transcript_items", "rejected", "program_states"} <= {
        table for table, _ in gone
    }
    assert in_any_order(archived(folder)) == in_any_order(gone)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.suffixes[-2:] == [".jsonl", ".gz"] for path in files} == {True}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.iterdir()]} == {0o700}


@pytest.mark.spec("D6")
@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
async def test_what_was_kept_can_be_put_back(old_fleet: Fleet, tmp_path: Path) -> None:
    """As docs/scheduling.md says it is done."""
    before = await everything(old_fleet.db)
    await pruning_of(old_fleet, tmp_path / "kept").run()
    url = old_fleet.db.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url) as conn:
        conn.execute("CREATE TEMP TABLE archived (line jsonb)")
        with conn.cursor().copy(r"COPY archived FROM STDIN (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')") as copy:
            for path in (tmp_path / "kept").rglob("*.jsonl.gz"):
                copy.write(gzip.decompress(path.read_bytes()))
        tables = "turns", "messages_in", "messages_out", "steps", "events", "transcript_items", "program_states"
        for table in (*tables, "rejected"):
            rows = f"archived, jsonb_populate_record(NULL::{table}, line->'row') kept WHERE line->>'table' = '{table}'"
            conn.execute(f"INSERT INTO {table} SELECT kept.* FROM {rows} ON CONFLICT DO NOTHING".encode())
    assert await everything(old_fleet.db) == before


@pytest.mark.spec("D6")
async def test_a_crash_between_keeping_and_removing_leaves_rows_in_both_places(
    old_fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await everything(old_fleet.db)

    async def die(conn: AsyncConnection, *_: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr("workers.retention.remove", die)
    with pytest.raises(asyncio.CancelledError):
        await pruning_of(old_fleet, tmp_path / "kept").run()
    assert await everything(old_fleet.db) == before
    assert list(archived(tmp_path / "kept")), "kept, and still there"
    monkeypatch.undo()
    await pruning_of(old_fleet, tmp_path / "kept").run()
    kept = Counter(map(repr, archived(tmp_path / "kept")))
    gone = missing(before, await everything(old_fleet.db))
    assert len(gone) > 20
    assert {repr(row) for row in gone} == set(kept)


@pytest.mark.spec("D6")
@pytest.mark.parametrize("at", ["open", "fsync", "rename"])
async def test_what_cannot_be_kept_is_not_removed(
    old_fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    before = await everything(old_fleet.db)
    pruning = pruning_of(old_fleet, tmp_path / "kept")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse(*_: Any, **__: Any) -> None:
        raise full

    if at == "rename":
        monkeypatch.setattr(Path, "rename", refuse)
    elif at == "fsync":
        monkeypatch.setattr("workers.archive.os.fsync", refuse)
    else:
        monkeypatch.setattr("workers.archive._write", refuse)
    with pytest.raises(ArchiveError, match=r"kept cannot be written to \(No space left on device\)$"):
        await pruning.run()
    assert await everything(old_fleet.db) == before
    assert pruning.pruned.total == 0
    assert [path for path in (tmp_path / "kept").rglob("*") if path.is_file()] == [], "nothing half done is left"


@pytest.mark.spec("D6")
async def test_a_folder_that_is_none_is_refused_before_anything_is_looked_for(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(ArchiveError, match=r"the archive .*file.* cannot be written to"):
            await pruning_of(fleet, folder).run()


@pytest.mark.spec("D6")
async def test_a_row_that_changes_after_it_was_kept_is_not_removed(
    old_fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = pruning.read

    async def and_then_it_changes(conn: AsyncConnection, *rest: Any) -> Any:
        rows = await read(conn, *rest)
        await changed(old_fleet.db, lambda other: other.execute(update(MessageIn).values(error=new_id())))
        return rows

    monkeypatch.setattr("workers.retention.read", and_then_it_changes)
    pruned: Pruned = await pruning_of(old_fleet, tmp_path / "kept").run()
    assert pruned.left > 0
    assert (pruned.rows["messages_in"], len(await old_fleet.inbox())) == (0, 3)
    last = {("messages_in", row.error) for row in await old_fleet.inbox()}
    monkeypatch.undo()
    assert (await pruning_of(old_fleet, tmp_path / "kept").run()).left == 0
    assert await old_fleet.inbox() == []
    assert last < {(table, row.get("error")) for table, row in archived(tmp_path / "kept")}


async def changed(db: Database, work: Callable[[AsyncConnection], Awaitable[Any]]) -> None:
    """By somebody else, on another connection."""
    other = Database(db.url.render_as_string(hide_password=False))
    await other.transact(work)
    await other.close()


@pytest.mark.spec("D6")
async def test_two_at_once_lose_nothing(old_fleet: Fleet, tmp_path: Path) -> None:
    before = await everything(old_fleet.db)
    both = [pruning_of(old_fleet, tmp_path / "kept") for _ in range(2)]
    done = await asyncio.gather(*(pruning.run() for pruning in both))
    await pruning_of(old_fleet, tmp_path / "kept").run()  # what one had just in hand when the other looked
    gone = missing(before, await everything(old_fleet.db))
    assert sum(pruned.total for pruned in done) <= len(gone)
    assert {repr(row) for row in gone} <= {repr(row) for row in archived(tmp_path / "kept")}


async def test_nothing_is_written_where_nothing_is_old(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.add_group(script="ok")
    await fleet.send("hello")
    await fleet.settle_down()
    await fleet.execute(update(MessageIn).values(status_changed_at=now()))
    await pruning_of(fleet, tmp_path / "kept").run()
    assert list((tmp_path / "kept").rglob("*")) == []
