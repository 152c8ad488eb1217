"""(e) The time of a sweep beside few and beside many finished rows: it must see only what is due.

Run in this process on our own `sweep`, with the bells left out: they cost the same on both sides. The sweeps over the
two databases take turns."""

import asyncio
import time
from statistics import median

from sqlalchemy import update

from bench.figures import Aim, Figure
from bench.history import write_history
from bench.rows import add_group, add_sessions
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage
from models import Database, Session
from scheduler.ringing import Pace
from scheduler.sweep import sweep

DUE = 100
PACE = Pace(repeat_seconds=5.0, default_provider="scripted")
AIM = Aim("at most", 1.3)  # the same, within the noise of a shared machine


def measure(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    urls = [_prepare(stage, kind, rows, say) for rows in (scale.many_rows, scale.few_rows)]
    many, few, idle_many, idle_few = asyncio.run(_alternate(urls, scale))
    say(f"(e) {kind}: {median(many):.1f} ms and {median(few):.1f} ms; idle {median(idle_many):.1f} and "
        f"{median(idle_few):.1f} ms")  # fmt: skip
    sizes = f"{scale.many_rows:,} / {scale.few_rows:,} finished rows ({kind})"
    return [
        Figure("e", f"sweep, {DUE} due, {sizes}", many, few, "ms", AIM, note="both Longshore"),
        Figure("e", f"sweep, none due, {sizes}", idle_many, idle_few, "ms", AIM, note="both Longshore"),
    ]


def _prepare(stage: Stage, kind: DatabaseKind, rows: int, say: Say) -> str:
    started = time.monotonic()
    url = stage.make_database(kind)
    add_group(url, "ok")
    write_history(url, rows)
    add_sessions(url, DUE, text="hello")
    say(f"(e) {kind}: {rows:,} finished messages, turns and answers written in {time.monotonic() - started:.0f} s")
    return url


async def _alternate(urls: list[str], scale: Scale) -> tuple[list[float], list[float], list[float], list[float]]:
    """Medians per repeat: many rows, few rows, and the same with nothing due."""
    databases = [Database(url) for url in urls]
    due: list[list[float]] = [[], []]
    idle: list[list[float]] = [[], []]
    for repeat in range(scale.repeats + 1):
        times: list[list[float]] = [[], []]
        idle_times: list[list[float]] = [[], []]
        for _ in range(scale.sweeps):
            for which, db in enumerate(databases):
                await db.transact(lambda conn: conn.execute(update(Session).values(woken_at=None).where(_RUNG)))
                times[which].append(await _timed(db, expected=DUE))
                idle_times[which].append(await _timed(db, expected=0))
        for which in (0, 1) if repeat else ():  # the first repeat warms up
            due[which].append(median(times[which]))
            idle[which].append(median(idle_times[which]))
    for db in databases:
        await db.close()
    return due[0], due[1], idle[0], idle[1]


_RUNG = Session.woken_at.is_not(None)


async def _timed(db: Database, expected: int) -> float:
    started = time.perf_counter()
    found = await sweep(db, PACE)
    taken = (time.perf_counter() - started) * 1000
    assert len(found.wakes) == expected, f"{len(found.wakes)} sessions found, {expected} were due"
    return taken
