"""A past: finished conversations in bulk, made by the database itself, in the shape the runtime leaves them."""

from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from bench.rows import GROUP, PLACE, in_database

ROWS_PER_SESSION: Final = 10

SERIES: Final = {
    "postgresql": "generate_series(0, {last}) AS s(n)",
    "sqlite": "(WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {last}) SELECT n FROM s) AS s",
}
# Stored as the models store an instant.
_PAST: Final = {"postgresql": "now() - interval '1 day'", "sqlite": "'2026-01-01 00:00:00.000000'"}

_SESSIONS: Final = """
INSERT INTO sessions (id, agent_group_id, messaging_group_id, thread_id, status, message_seq, turn_seq, event_seq,
                      lease_token, last_active, created_at)
SELECT 's' || n, '{group}', '{place}', 's' || n, 'active', 20, 10, 10, 10, {past}, {past} FROM {sessions}
"""
_TURNS: Final = """
INSERT INTO turns (id, session_id, number, status, attempt, provider, lease_token, started_at, ended_at)
SELECT 't' || n, 's' || (n / {each}), {nth} + 1, 'completed', 1, 'scripted', 1, {past}, {past} FROM {rows}
"""
_MESSAGES_IN: Final = """
INSERT INTO messages_in (id, session_id, seq, kind, status, status_changed_at, wakes, process_after, timezone, recurred,
                         tries, turn_id, channel_type, platform_id, thread_id, content, created_at)
SELECT 'i' || n, 's' || (n / {each}), {nth} * 2 + 1, 'chat', 'completed', {past}, true, {past}, 'UTC', false,
       1, 't' || n, 'local', '{place}', 's' || (n / {each}), '{{"text": "hello"}}', {past} FROM {rows}
"""
_MESSAGES_OUT: Final = """
INSERT INTO messages_out (id, session_id, turn_id, seq, in_reply_to, kind, status, idempotency_key, deliver_after,
                          rung_at, timezone, channel_type, platform_id, thread_id, content, attempts, claim_token,
                          delivered_at, created_at)
SELECT 'o' || n, 's' || (n / {each}), 't' || n, {nth} * 2 + 2, 'i' || n, 'chat', 'delivered', 't' || n || ':1',
       {past}, {past}, 'UTC', 'local', '{place}', 's' || (n / {each}), '{{"text": "ok"}}', 1, 1, {past}, {past}
FROM {rows}
"""


def write_history(url: str, rows: int) -> None:
    """So many finished messages, turns and answers (each), in a tenth as many sessions; statistics up to date."""
    kind = "sqlite" if url.startswith("sqlite") else "postgresql"
    values = {
        "group": GROUP,
        "place": PLACE,
        "past": _PAST[kind],
        "each": ROWS_PER_SESSION,
        "nth": f"(n - n / {ROWS_PER_SESSION} * {ROWS_PER_SESSION})",  # a per cent sign is the driver's
        "sessions": SERIES[kind].format(last=rows // ROWS_PER_SESSION - 1),
        "rows": SERIES[kind].format(last=rows - 1),
    }

    async def work(conn: AsyncConnection) -> None:
        if kind == "postgresql":
            # Spares the check of four million foreign keys that are right by construction.
            await conn.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in (_SESSIONS, _TURNS, _MESSAGES_IN, _MESSAGES_OUT):
            # Past SQLAlchemy, whose `text` takes colons for parameters.
            await conn.exec_driver_sql(statement.format(**values))
        await conn.execute(text("ANALYZE"))

    in_database(url, work)
