"""Scheduled tasks in bulk, made by the database itself, in the shape the runtime leaves them: recurring, each with the
terms it is run on, a few in each conversation."""

from datetime import datetime
from typing import Final

from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from bench.history import SERIES
from bench.rows import GROUP, PLACE, in_database
from models import MessageIn, Session
from models.base import now
from models.fleet import report_alive

HOUR: Final = 3600
DAY: Final = 24 * HOUR

# As the models store an instant: so many seconds from now.
_DATE: Final = {
    "postgresql": "now() + interval '1 second' * ({seconds})",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f000', 'now', ({seconds}) || ' seconds')",
}
_SESSIONS: Final = """
INSERT INTO sessions (id, agent_group_id, messaging_group_id, thread_id, status, message_seq, turn_seq, event_seq,
                      lease_token, last_active, created_at)
SELECT 's' || n, '{group}', '{place}', 's' || n, 'active', {each}, 0, 0, 0, {past}, {past} FROM {sessions}
"""
_TASKS: Final = """
INSERT INTO messages_in (id, session_id, agent_group_id, seq, kind, status, status_changed_at, wakes, process_after,
                         scheduled_for, recurrence, timezone, series_id, recurred, tries, channel_type, platform_id,
                         thread_id, content, created_at)
SELECT 'm' || n, 's' || (n / {each}), '{group}', n - n / {each} * {each} + 1, 'task', 'pending', {past}, true, {date},
       {date}, (n - n / 60 * 60) || ' 9 * * *', 'Europe/Vienna', 'm' || n, false, 0, 'local', '{place}',
       's' || (n / {each}), '{{"prompt": "look at the news"}}', {past} FROM {rows}
"""
_TERMS: Final = """
INSERT INTO task_series (id, agent_group_id, catch_up, overlap, jitter_seconds, pause_after, failures, created_at)
SELECT 'm' || n, '{group}', 'one', 'skip', 0, 5, 0, {past} FROM {rows}
"""


def write_timetable(url: str, tasks: int, each: int, first: float, last: float) -> None:
    """So many daily tasks, `each` to a conversation, their dates evenly from `first` to `last` seconds from now;
    statistics up to date."""
    kind = "sqlite" if url.startswith("sqlite") else "postgresql"
    date, step = _DATE[kind], (last - first) / tasks
    values = {
        "group": GROUP,
        "place": PLACE,
        "each": each,
        "past": date.format(seconds=-DAY),
        "date": date.format(seconds=f"{first} + n * {step:.9f}"),
        "sessions": SERIES[kind].format(last=tasks // each - 1),
        "rows": SERIES[kind].format(last=tasks - 1),
    }

    async def work(conn: AsyncConnection) -> None:
        if kind == "postgresql":
            # Spares the check of foreign keys that are right by construction.
            await conn.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in (_SESSIONS, _TASKS, _TERMS):
            # Past SQLAlchemy, whose `text` takes colons for parameters.
            await conn.exec_driver_sql(statement.format(**values))
        await conn.execute(text("ANALYZE"))

    in_database(url, work)


def make_due(url: str, count: int, tasks: int, each: int) -> None:
    """So many of them are due, in as many conversations."""
    step = max(1, tasks // each // count) * each
    ids = [f"m{number * step}" for number in range(count)]
    in_database(
        url,
        lambda conn: conn.execute(update(MessageIn).where(MessageIn.id.in_(ids)).values(process_after=now(-10))),
    )


async def open_slots(conn: AsyncConnection, slots: int) -> None:
    """A stand-in for workers that have as much room as this."""
    await report_alive(conn, "bench@stand-in", "worker", pid=0, queues=["agent.scripted"], slots=slots)


async def take(conn: AsyncConnection, session_ids: list[str]) -> int:
    """A stand-in for workers that run whatever was rung for in no time. Returns how many tasks that were."""
    done = {"status": "completed", "status_changed_at": now(), "recurred": True}
    due = (MessageIn.session_id.in_(session_ids), MessageIn.status == "pending", MessageIn.process_after <= now())
    taken = await conn.execute(update(MessageIn).where(*due).values(**done))
    await conn.execute(update(Session).where(Session.id.in_(session_ids)).values(woken_at=None))
    return taken.rowcount


async def let_follow(conn: AsyncConnection, ran_after: datetime, ran_until: datetime) -> int:
    """Those that were run in that time are yet to be followed by their next rows. Returns how many they are."""
    ran = (MessageIn.status_changed_at > ran_after, MessageIn.status_changed_at <= ran_until)
    waiting = update(MessageIn).where(MessageIn.status == "completed", *ran).values(recurred=False)
    return (await conn.execute(waiting)).rowcount


async def count_tasks(conn: AsyncConnection) -> int:
    return int((await conn.execute(select(func.count()).select_from(MessageIn))).scalar_one())


def stored_bytes(url: str, tasks: int) -> float:
    """What a task takes in the database, with its conversation and the indexes (PostgreSQL)."""
    sizes = [func.pg_total_relation_size(table) for table in ("messages_in", "sessions", "task_series")]

    async def work(conn: AsyncConnection) -> float:
        return float(sum((await conn.execute(select(*sizes))).one())) / tasks

    return in_database(url, work)
