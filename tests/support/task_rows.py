"""Tasks with dates, written straight into PostgreSQL by the hundred or the hundred thousand, and what must be true of
them when they were run: each once for its date, none before it, each series with one next row of the right date."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import psycopg

EVERY_MINUTE: Final = "* * * * *"
EVERY_HOUR: Final = "0 * * * *"

_SESSIONS: Final = """
INSERT INTO sessions (id, agent_group_id, messaging_group_id, thread_id, status, message_seq, turn_seq, event_seq,
                      lease_token, last_active, created_at)
SELECT %(name)s || '-' || n, g.id, p.id, %(name)s || '-' || n, 'active', 1, 0, 0, 0, now(), now() - interval '1 day'
FROM agent_groups g, messaging_groups p, generate_series(0, %(count)s - 1) AS s(n)
WHERE g.folder = 'demo' AND p.channel_type = 'local' AND p.platform_id = %(name)s
"""
_TASKS: Final = """
INSERT INTO messages_in (id, session_id, agent_group_id, seq, kind, status, status_changed_at, wakes, process_after,
                         scheduled_for, recurrence, timezone, series_id, recurred, tries, channel_type, platform_id,
                         thread_id, content, created_at)
SELECT s.id || '-1', s.id, s.agent_group_id, 1, 'task', 'pending', s.created_at, true, date, date, cron, 'UTC',
       CASE WHEN cron IS NOT NULL THEN s.id || '-1' END, false, 0, 'local', %(name)s, s.thread_id,
       jsonb_build_object('prompt', s.id), s.created_at
FROM (SELECT sessions.*, split_part(id, '-', 2)::int AS n FROM sessions WHERE id LIKE %(name)s || '-%%') AS s,
     LATERAL (SELECT statement_timestamp() + make_interval(secs => %(first)s + %(step)s * s.n) AS date,
                     (%(crons)s::text[])[s.n %% %(kinds)s + 1] AS cron) AS planned
"""


def write_tasks(
    url: str, name: str, count: int, first: float, last: float, recurrences: Sequence[str | None] = (None,)
) -> None:
    """So many conversations of the agent `demo`, each with one task. Their dates are spread evenly from `first` to
    `last` seconds from now by the database's clock; the recurrences take turns. They were written a day ago."""
    given = {
        "name": name,
        "count": count,
        "first": first,
        "step": (last - first) / max(count - 1, 1),
        "crons": list(recurrences),
        "kinds": len(recurrences),
    }
    with psycopg.connect(url) as conn:
        conn.execute(
            "INSERT INTO messaging_groups (id, channel_type, platform_id, is_group, unknown_sender_policy, created_at)"
            " VALUES (%(name)s, 'local', %(name)s, false, 'strict', now())",
            given,
        )
        conn.execute(_SESSIONS.encode(), given)
        conn.execute(_TASKS.encode(), given)
        conn.execute("ANALYZE")


@dataclass(frozen=True)
class Run:
    """A row of a task, with what became of it."""

    session: str
    series: str
    recurrence: str | None
    date: datetime
    not_before: datetime
    status: str
    ended: datetime
    began: datetime | None
    answers: int


_RUNS: Final = """
SELECT m.session_id, coalesce(m.series_id, m.id), m.recurrence, coalesce(m.scheduled_for, m.process_after),
       m.process_after, m.status, m.status_changed_at, t.started_at,
       (SELECT count(*) FROM messages_out o WHERE o.turn_id = m.turn_id)
FROM messages_in m LEFT JOIN turns t ON t.id = m.turn_id
WHERE m.kind = 'task' AND m.platform_id = %s ORDER BY 2, 4
"""
_TURNS: Final = """
SELECT s.id, count(t.id) FROM sessions s JOIN turns t ON t.session_id = s.id WHERE s.id LIKE %s || '-%%' GROUP BY s.id
"""


def series_of(url: str, name: str) -> dict[str, list[Run]]:
    """The rows of each task, in the order of their dates."""
    with psycopg.connect(url, autocommit=True) as conn:
        found: dict[str, list[Run]] = {}
        for row in conn.execute(_RUNS.encode(), (name,)).fetchall():
            run = Run(*row)
            found.setdefault(run.series, []).append(run)
        return found


_UNSETTLED: Final = """
SELECT count(*) FROM messages_in WHERE kind = 'task' AND platform_id = %s AND (
    status = 'processing' OR (status = 'pending' AND process_after < statement_timestamp() + interval '3 seconds')
    OR (recurrence IS NOT NULL AND NOT recurred AND status IN ('completed', 'failed', 'discarded')))
"""


def count_unsettled(url: str, name: str) -> int:
    """How many rows are under way, or due now or in a moment, or finished without a next. None: there is time to look,
    though the fleet goes on."""
    with psycopg.connect(url, autocommit=True) as conn:
        row = conn.execute(_UNSETTLED.encode(), (name,)).fetchone()
        assert row is not None
        return int(row[0])


def check_runs(url: str, name: str) -> None:
    """Each date was run once and not before it came, and each series goes on with exactly one row."""
    with psycopg.connect(url, autocommit=True) as conn:
        turns: dict[str, int] = dict(conn.execute(_TURNS.encode(), (name,)).fetchall())
    for series, runs in series_of(url, name).items():
        *done, last = runs
        if last.recurrence is None:
            done.append(last)
        else:
            assert last.status == "pending", f"{series} does not go on: {last}"
        assert [run.status for run in done] == ["completed"] * len(done), f"{series}: {runs}"
        assert [run.answers for run in done] == [1] * len(done), f"{series} has answered otherwise than once: {runs}"
        assert turns[done[0].session] == len(done), f"{series} had {turns[done[0].session]} turns for {len(done)} dates"
        for run in done:
            assert run.began is not None
            assert run.began >= run.not_before, f"{series} ran before its date: {run}"
        assert [run.date for run in runs[1:]] == [_next_date(run) for run in _recurring(done)], f"{series}: {runs}"


def _recurring(runs: Iterable[Run]) -> Iterable[Run]:
    return (run for run in runs if run.recurrence is not None)


def _next_date(run: Run) -> datetime:
    """The first date after its end: what came due before it began or while it ran is passed over."""
    after = max(run.date, run.ended).replace(second=0, microsecond=0)
    if run.recurrence == EVERY_HOUR:
        return after.replace(minute=0) + timedelta(hours=1)
    assert run.recurrence == EVERY_MINUTE
    return after + timedelta(minutes=1)
