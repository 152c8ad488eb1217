"""The sweep as a whole: it reads no table from end to end, and however many ring for it, it begins once in a while."""

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, event, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection
from structlog.testing import capture_logs

from models import AgentGroup, MessageIn, Process, Round, Session
from models.base import new_id, now
from models.errors import DatabaseDownError
from scheduler.sweep import Found
from tasks import upkeep
from tests.support.fleet import Fleet
from tests.support.task_runs import add_run, add_session, clock
from workers.app import Call

pytestmark = pytest.mark.both_databases

# Small whatever exists, or with few rows.
SMALL = (
    "agent_groups",
    "processes",
    "rounds",
    "users",
    "user_roles",
    "user_dms",
    "messaging_groups",
    "anon_",
    "CONSTANT",
)
# These hold all that ever was.
ENDLESS = r"ix_messages_in_turn_id|uq_messages_in_series_id|\b(turn_id|series_id)=\?"


async def statements_of(fleet: Fleet) -> list[tuple[str, Any]]:
    """What one sweep asks the database, with something of each kind to find."""
    await fleet.add_group()
    at = await clock(fleet)
    await fleet.execute(insert(Process).values(name="w", kind="worker", pid=1, queues=["agent.scripted"]))
    over: dict[str, Any] = {"ended": at, "recurrence": "@yearly"}  # what follows is not due, whatever the time is
    await add_run(fleet, at, **over, terms={"failures": 1})
    await add_run(fleet, at, **over, status="failed", error_class="auth", error="no key", terms={"pause_after": 1})
    await add_run(fleet, at - timedelta(hours=2), terms={"catch_up": "skip"})
    for _ in range(2):
        await add_run(fleet, at)
    await fleet.send("hello")
    await add_session(fleet, lease_owner="gone", lease_expires_at=now(-1))
    await fleet.execute(update(Session).values(woken_at=None))
    seen: list[tuple[str, Any]] = []

    def note(*call: Any) -> None:
        seen.append((call[2], call[3]))

    event.listen(fleet.db.engine.sync_engine, "before_cursor_execute", note)
    found = await fleet.sweep()
    event.remove(fleet.db.engine.sync_engine, "before_cursor_execute", note)
    assert len(found.wakes) == 4
    assert found.deliveries
    return [(sql, given) for sql, given in seen if re.match(r"\s*(SELECT|UPDATE|DELETE)", sql)]


async def add_past(fleet: Fleet) -> None:
    """So many finished messages that it makes a difference to the planner which index is used."""
    session = {"session_id": await add_session(fleet), "channel_type": "local", "platform_id": "x", "kind": "chat"}
    [group] = await fleet.rows(AgentGroup)
    row = session | {"agent_group_id": group.id, "status": "completed", "content": {"text": "hello"}}
    await fleet.insert(MessageIn, *(row | {"id": new_id(), "seq": seq} for seq in range(1, 1001)))


@pytest.mark.spec("S1", "S6")
async def test_no_table_is_read_from_end_to_end(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.ringing.NEAR", 0)  # so that it also looks at all that is due
    await fleet.execute(delete(Process))
    statements = await statements_of(fleet)
    await add_past(fleet)

    async def plans(conn: AsyncConnection) -> list[tuple[str, str]]:
        is_sqlite = fleet.db.is_sqlite
        if not is_sqlite:
            await conn.exec_driver_sql("ANALYZE")
            await conn.exec_driver_sql("SET LOCAL enable_seqscan = off")  # used then only where there is no other way
        found = []
        for sql, given in statements:
            explain = f"EXPLAIN {'QUERY PLAN ' if is_sqlite else ''}{sql}"
            rows = (await conn.exec_driver_sql(explain, given)).all()
            found += [(str(row[-1]), sql) for row in rows]
        return found

    pattern = r"SCAN (?!.* USING )(\w+)" if fleet.db.is_sqlite else r"Seq Scan on (\w+)"
    lines = await fleet.db.read(plans)
    read = {
        (match[1], sql) for line, sql in lines if (match := re.search(pattern, line)) and not match[1].startswith(SMALL)
    }
    assert read == set()
    assert [(line, sql) for line, sql in lines if re.search(ENDLESS, line)] == []
    assert len(statements) > 15


@pytest.mark.spec("S6")
async def test_what_one_part_cannot_do_keeps_no_other_from_being_rung_for(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.add_group()
    at = await clock(fleet)
    chat = (await fleet.send("hello")).session_id
    task = await add_session(fleet)
    await add_run(fleet, at, session_id=task)
    await fleet.execute(update(Session).values(woken_at=None))

    async def broken(*_: Any) -> Any:
        raise ValueError("a row that nobody can read")

    for part in ("discard_missed", "follow_finished", "repeat_reminders", "_expire", "_stale_leases"):
        monkeypatch.setattr(f"scheduler.sweep.{part}", broken)
    with capture_logs() as logs:
        found = await fleet.sweep()
    assert [wake.session_id for wake in found.wakes] == [chat, task]
    assert [(log["event"], log["part"]) for log in logs] == [
        ("sweep.part_failed", part) for part in ("missed", "followed", "reminders", "expired", "stale")
    ]


@pytest.mark.spec("S6")
async def test_a_sweep_ends_when_the_database_is_down(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    async def down(*_: Any) -> Any:
        raise DatabaseDownError("it does not answer")

    monkeypatch.setattr("scheduler.sweep.follow_finished", down)
    with pytest.raises(DatabaseDownError):
        await fleet.sweep()


def rings(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, found: Any = None) -> list[int]:
    """Counts the sweeps that begin. `found`: awaited for what each finds."""
    begun: list[int] = []

    async def find_due(*_: Any) -> Found:
        begun.append(len(begun))
        return await found() if found is not None else Found()

    monkeypatch.setattr(upkeep, "find_due", find_due)
    return begun


async def ring(fleet: Fleet, by: str | None = None) -> dict[str, int]:
    """As Celery does it, in this loop."""
    body = upkeep.sweep.__wrapped__.__wrapped__
    done: dict[str, int] = await body(Call(fleet.runtime, "task", "upkeep"), by)
    return done


@pytest.mark.spec("S5", "S6")
async def test_a_pile_of_rings_begins_one_sweep_and_every_beat_is_seen(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet.runtime, "settings", fleet.runtime.settings.model_copy(update={"sweep_seconds": 600}))
    begun = rings(fleet, monkeypatch)
    await asyncio.gather(*(ring(fleet, f"beat@{number % 2}") for number in range(20)))
    assert len(begun) == 1
    assert sorted(process.name for process in await fleet.rows(Process)) == ["beat@0", "beat@1"]
    await fleet.execute(update(Round).values(began_at=now(-301)))
    await ring(fleet)
    assert len(begun) == 2
    await fleet.execute(update(Round).values(began_at=now(3600)))  # the database's clock was set back by an hour
    await ring(fleet)
    await ring(fleet)
    assert len(begun) == 3


@pytest.mark.spec("S5", "S6")
async def test_a_long_sweep_keeps_nobody_from_another(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    over, under_way = asyncio.Event(), asyncio.Event()

    async def long() -> Found:
        under_way.set()
        await over.wait()
        return Found()

    begun = rings(fleet, monkeypatch, long)
    first = asyncio.create_task(ring(fleet))
    await asyncio.wait_for(under_way.wait(), 30)
    await fleet.execute(update(Round).values(began_at=now(-60)))
    under_way.clear()
    second = asyncio.create_task(ring(fleet))
    await asyncio.wait_for(under_way.wait(), 30)
    over.set()
    await asyncio.gather(first, second)
    assert len(begun) == 2


@pytest.mark.spec("S6")
async def test_a_sweep_that_finds_no_end_stops_after_a_while(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full() -> Found:
        return Found(doubtful=["one"], full=True)

    begun = rings(fleet, monkeypatch, full)
    assert await ring(fleet) == {"rung": upkeep.MAX_LOOKS}
    assert len(begun) == len(fleet.bells.doubtful) == upkeep.MAX_LOOKS


@pytest.mark.spec("S1", "S5")
async def test_a_session_whose_row_somebody_holds_is_left_to_them(fleet: Fleet) -> None:
    """A sweep waits for nobody: it serves the others, of each kind, and comes back."""
    if fleet.db.is_sqlite:
        return  # one writer at a time
    await fleet.add_group()
    at = await clock(fleet)
    kinds: dict[str, dict[str, Any]] = {
        "due": {},
        "missed": {"terms": {"catch_up": "skip"}},
        "over": {"ended": at, "recurrence": "@yearly"},
    }
    chats = [await add_session(fleet) for _ in range(2)]
    for session_id in chats:
        chat: dict[str, Any] = {"kind": "chat", "recurrence": None, "series_id": None, "content": {"text": "hello"}}
        await add_run(fleet, at, session_id=session_id, **chat)
    tasks = {kind: [await add_session(fleet) for _ in range(2)] for kind in kinds}
    for kind, sessions in tasks.items():
        for session_id in sessions:
            await add_run(fleet, at - timedelta(hours=2 * (kind == "missed")), session_id=session_id, **kinds[kind])
    held = [chats[0], *(sessions[0] for sessions in tasks.values())]
    await fleet.execute(update(Session).where(Session.id.in_(held)).values(woken_at=None))

    async def in_the_middle(conn: AsyncConnection) -> Found:
        await conn.execute(update(Session).where(Session.id.in_(held)).values(activity="at it"))
        async with asyncio.timeout(20):
            return await fleet.sweep()

    found = await fleet.db.transact(in_the_middle)
    assert {wake.session_id for wake in found.wakes} == {chats[1], tasks["due"][1]}
    rows = {row.session_id: row for row in await fleet.rows(MessageIn, MessageIn.recurred)}
    assert [rows[session_id].status for session_id in tasks["missed"]] == ["pending", "discarded"]
    followed = {row.session_id for row in await fleet.rows(MessageIn) if row.recurred}
    assert followed == {tasks["over"][1]} | ({tasks["missed"][1]} & followed)
