"""The schedule: one sweep beside few and beside a million waiting tasks, and how fast it works off what is due.

Our own `sweep` in this process, with the real bells behind it and a stand-in for the workers, so that their room never
limits it. The peer is Celery's beat with a static entry for each task (`plain_beat.py`), which is how Celery itself
schedules: on the same Redis, in turns with ours."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from bench.figures import Aim, Figure
from bench.plain_beat import PlainBeat
from bench.ringing import Bells, hang_bells
from bench.rows import add_group
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage
from bench.timetable import (
    DAY,
    HOUR,
    count_tasks,
    let_follow,
    make_due,
    open_slots,
    stored_bytes,
    take,
    write_timetable,
)
from models import Database, Session
from models.tasks import database_now
from scheduler.ringing import Pace
from scheduler.sweep import Found, sweep

DUE = 100
EACH = 5  # tasks in a conversation
SLOTS = 1000
PACE = Pace(repeat_seconds=5.0, default_provider="scripted")
FLAT = Aim("at most", 1.3)  # the same, within the noise of a shared machine
MOST_ENTRIES = 100_000  # of plain beat: more take too long, see README


def measure(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    sizes = scale.timetables if kind == "postgresql" else scale.timetables[:2]
    many = scale.many_due if kind == "postgresql" else scale.many_due // 10
    with ExitStack() as stack:
        beats = {}
        for entries in sorted({*(size for size in sizes if size <= MOST_ENTRIES), min(many, MOST_ENTRIES)}):
            beats[entries] = stack.enter_context(_plain_beat(stage, entries, say))
        urls = {size: _prepare(stage, kind, size, EACH, HOUR, 30 * DAY, say) for size in sizes}
        for size, url in urls.items():
            make_due(url, DUE, size, EACH)
        late = _prepare(stage, kind, many, 1, -HOUR, -1, say)
        with hang_bells(stage.broker) as bells:
            looks = asyncio.run(_look(urls, beats, bells, scale, say))
            pace = asyncio.run(_work_off(late, many, beats[min(many, MOST_ENTRIES)], bells, scale, say))
        figures = [*_flat(looks, kind), *_beside_beat(looks, kind), *_rates(pace, many, kind)]
        if kind == "postgresql":
            most = max(beats)
            kept = Figure(
                "schedules", f"kept per task, {most:,}", [stored_bytes(urls[most], most) / 1000],
                [beats[most].bytes_each / 1000], "kB", note="ours on disk, with indexes; the peer's in memory",
            )  # fmt: skip
            figures.append(kept)
    return figures


@contextmanager
def _plain_beat(stage: Stage, entries: int, say: Say) -> Iterator[PlainBeat]:
    started = time.monotonic()
    beat = PlainBeat(stage.broker, entries)
    say(f"(schedules) plain beat has {entries:,} entries after {time.monotonic() - started:.0f} s")
    try:
        yield beat
    finally:
        beat.close()


def _prepare(stage: Stage, kind: DatabaseKind, tasks: int, each: int, first: float, last: float, say: Say) -> str:
    started = time.monotonic()
    url = stage.make_database(kind)
    add_group(url, "ok")
    write_timetable(url, tasks, each, first, last)
    say(f"(schedules) {kind}: {tasks:,} recurring tasks written in {time.monotonic() - started:.0f} s")
    return url


@dataclass
class _Looks:
    """Per size and repeat, in milliseconds: a sweep, and with its ringing; none due; and plain beat for the same."""

    swept: dict[int, list[float]] = field(default_factory=dict)
    rung: dict[int, list[float]] = field(default_factory=dict)
    idle: dict[int, list[float]] = field(default_factory=dict)
    peer: dict[int, list[float]] = field(default_factory=dict)


async def _look(urls: dict[int, str], beats: dict[int, PlainBeat], bells: Bells, scale: Scale, say: Say) -> _Looks:
    databases = {size: Database(url) for size, url in urls.items()}
    looks = _Looks(*({size: list[float]() for size in urls} for _ in range(4)))
    for repeat in range(scale.repeats + 1):
        swept, rung, idle = ({size: list[float]() for size in urls} for _ in range(3))
        for _ in range(scale.sweeps):
            for size, db in databases.items():
                await db.transact(_begin_anew)
                found, seconds = await _timed(db)
                assert len(found.wakes) == DUE, f"{len(found.wakes)} sessions found, {DUE} were due"
                swept[size].append(seconds * 1000)
                rung[size].append((seconds + bells.ring(found.wakes)) * 1000)
                found, seconds = await _timed(db)
                assert not found.wakes, "what was rung for was rung for again"
                idle[size].append(seconds * 1000)
        sent = {size: beats[size].send(DUE, scale.peer_seconds) for size in urls if size in beats}
        told = ", ".join(f"{median(swept[size]):.1f} ms beside {size:,}" for size in urls)
        beside = ", ".join(f"{one.count} in {one.seconds:.1f} s of {size:,}" for size, one in sent.items())
        say(f"(schedules) sweep, {DUE} due: {told}; plain beat sent {beside or 'nothing'}")
        for size in urls if repeat else ():  # the first repeat warms up
            looks.swept[size].append(median(swept[size]))
            looks.rung[size].append(median(rung[size]))
            looks.idle[size].append(median(idle[size]))
            if size in sent:
                looks.peer[size].append(sent[size].seconds / sent[size].count * DUE * 1000)
    for db in databases.values():
        await db.close()
    return looks


async def _begin_anew(conn: AsyncConnection) -> None:
    await conn.execute(update(Session).values(woken_at=None).where(Session.woken_at.is_not(None)))
    await open_slots(conn, SLOTS)


async def _timed(db: Database) -> tuple[Found, float]:
    started = time.perf_counter()
    found = await sweep(db, PACE)
    return found, time.perf_counter() - started


@dataclass
class _Rates:
    """Tasks per second, per repeat."""

    found: list[float] = field(default_factory=list)
    rung: list[float] = field(default_factory=list)
    followed: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)


async def _work_off(late: str, many: int, beat: PlainBeat, bells: Bells, scale: Scale, say: Say) -> _Rates:
    """Each repeat takes its share of what is due: the first beside all the others, the last alone. Then they are
    followed, in the same shares."""
    db, rates = Database(late), _Rates()
    times, done = [await db.read(database_now)], 0
    for repeat in range(scale.repeats + 1):
        finding, ringing, taken = 0.0, 0.0, 0
        while done + taken < many * (repeat + 1) // (scale.repeats + 1):
            await db.transact(_begin_anew)
            found, seconds = await _timed(db)
            finding += seconds
            ringing += bells.ring(found.wakes)
            ids = [wake.session_id for wake in found.wakes]
            ran = await db.transact(lambda conn: take(conn, ids))  # noqa: B023
            assert ran == len(ids) > 0, f"{len(ids)} found, {ran} run"
            taken += ran
        done += taken
        times.append(await db.read(database_now))
        sent = beat.send(beat.entries, scale.peer_seconds)
        say(
            f"(schedules) {many:,} due: {taken:,} found in {finding:.1f} s, rung for in {ringing:.1f} s; plain beat "
            f"sent {sent.count:,} in {sent.seconds:.1f} s"
        )
        if repeat:  # the first warms up
            rates.found.append(taken / finding)
            rates.rung.append(taken / (finding + ringing))
            rates.peer.append(sent.count / sent.seconds)
    for since, until in pairwise(times):
        left = await db.transact(lambda conn: let_follow(conn, since, until))  # noqa: B023
        rates.followed.append(await _follow(db, left))
    say(f"(schedules) followed: {', '.join(f'{rate:,.0f}' for rate in rates.followed)} per second")
    rates.followed = rates.followed[1:]
    await db.close()
    return rates


async def _follow(db: Database, count: int) -> float:
    before, seconds = await db.read(count_tasks), 0.0
    while await db.read(count_tasks) < before + count:
        found, taken = await _timed(db)
        seconds += taken
        assert found.full or await db.read(count_tasks) == before + count, "not all of them were followed"
    return count / seconds


def _flat(looks: _Looks, kind: DatabaseKind) -> list[Figure]:
    few, *more = looks.swept
    rows = [
        Figure(
            "schedules", f"sweep, {DUE} due, {size:,} / {few:,} waiting tasks ({kind})", looks.swept[size],
            looks.swept[few], "ms", FLAT, note="both Longshore",
        )
        for size in more
    ]  # fmt: skip
    most = more[-1]
    idle = (looks.idle[most], looks.idle[few])
    what = f"sweep, none due, {most:,} / {few:,} waiting tasks ({kind})"
    return [*rows, Figure("schedules", what, *idle, "ms", FLAT, note="both Longshore")]


def _beside_beat(looks: _Looks, kind: DatabaseKind) -> list[Figure]:
    return [
        Figure("schedules", f"{DUE} due of {size:,}: found and rung for ({kind})", looks.rung[size], peer, "ms")
        for size, peer in looks.peer.items()
        if peer
    ]


def _rates(rates: _Rates, many: int, kind: DatabaseKind) -> list[Figure]:
    return [
        Figure("schedules", f"{many:,} due: found and marked ({kind})", rates.found, rates.peer, "/s"),
        Figure("schedules", "  and rung for", rates.rung, rates.peer, "/s"),
        Figure("schedules", "  finished ones followed by their next", rates.followed, rates.peer, "/s"),
    ]
