"""Finds what nobody rang for: due messages, tasks and retries, stale leases, unsent rows, stages that have ended; and
does what has a date and needs nobody: next rows of recurring work, runs that were missed, and what nobody answered or
decided in time.

Every query runs over a partial index that holds only unfinished rows, so its cost grows with what is due, not with
what exists. Several sweeps at once share the work: PostgreSQL skips rows another one has locked, SQLite has one
writer, and each row that is rung for is marked, so that the next sweep leaves it alone for a while."""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import structlog
from sqlalchemy import Select, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import now
from models.database import Database
from models.errors import StoreError
from models.expiry import expire_waits
from models.fleet import forget_dead_processes
from models.inbox import MessageIn
from models.outbox import HELD_UP, MessageOut
from models.sessions import Session, not_rung
from models.workflows import ring_unfollowed
from scheduler.queues import wakes_of
from scheduler.recurring import Followed, discard_missed, follow_finished
from scheduler.reminders import repeat_reminders
from scheduler.ringing import Pace, Rung, Wake, ring_tasks

log = structlog.get_logger()
T = TypeVar("T")

BATCH: Final = 500
EXPIRIES: Final = 100  # each closes its cards one by one

# Written out, as in the index that holds only these.
_CHAT: Final = text("messages_in.status = 'pending' AND messages_in.kind <> 'task'")


@dataclass
class Found:
    """What to ring for. `full`: there was more than one batch, look again at once."""

    wakes: list[Wake] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    workflows: list[str] = field(default_factory=list)
    full: bool = False


async def sweep(db: Database, pace: Pace) -> Found:
    """One look at everything, in parts that do not depend on each other."""
    repeat = pace.repeat_seconds
    missed = await _part("missed", db.transact(lambda conn: discard_missed(conn, BATCH)), 0)
    followed = await _part("followed", db.transact(lambda conn: follow_finished(conn, BATCH)), Followed())
    repeated = await _part("reminders", db.transact(lambda conn: repeat_reminders(conn, BATCH)), 0)
    expired, closed = await _part("expired", db.transact(lambda conn: _expire(conn, pace)), ([], []))
    chats = await _part("chats", db.transact(lambda conn: _due_chats(conn, pace)), [])
    # While some that nobody is to run are yet to be put away, their sessions would be rung for in vain.
    tasks = await _part("tasks", ring_tasks(db, pace), Rung([])) if missed < BATCH else Rung([])
    stale = await _part("stale", db.transact(lambda conn: _stale_leases(conn, pace)), [])
    unsent = await _part("unsent", db.transact(lambda conn: _due_deliveries(conn, repeat)), [])
    doubtful = await _part("doubtful", db.transact(lambda conn: _doubtful_deliveries(conn, repeat)), [])
    workflows = await _part("workflows", db.transact(lambda conn: ring_unfollowed(conn, repeat, BATCH)), [])
    await _part("processes", db.transact(forget_dead_processes), None)
    wakes = {wake.session_id: wake for wake in [*expired, *chats, *tasks.wakes, *stale]}
    deliveries = [*followed.deliveries, *closed, *unsent]
    most = max(missed, followed.rows, repeated, len(chats), len(stale), len(unsent), len(doubtful), len(workflows))
    # Where tasks were taken as soon as they were rung for, there is room for more.
    full = most >= BATCH or len(expired) >= EXPIRIES or (tasks.more and bool(tasks.wakes))
    return Found(list(wakes.values()), deliveries, doubtful, workflows, full)


async def _part(name: str, work: Awaitable[T], nothing: T) -> T:
    """What one part fails over, a row that cannot be read say, must not keep all others from being rung for, sweep
    after sweep. When the database is down there is no use in going on."""
    try:
        return await work
    except StoreError:
        raise
    except Exception:
        log.exception("sweep.part_failed", part=name)
        return nothing


async def _expire(conn: AsyncConnection, pace: Pace) -> tuple[list[Wake], list[str]]:
    expired = await expire_waits(conn, EXPIRIES)
    return await wakes_of(conn, pace, expired.sessions), expired.deliveries


async def _due_chats(conn: AsyncConnection, pace: Pace) -> list[Wake]:
    # No DISTINCT: IN needs none, and SQLite would read the whole table for it.
    due = select(MessageIn.session_id).where(_CHAT, MessageIn.wakes, MessageIn.process_after <= now())
    return await _ring(conn, pace, select(Session.id).where(Session.id.in_(due), pace.ringable))


async def _stale_leases(conn: AsyncConnection, pace: Pace) -> list[Wake]:
    """Sessions whose worker died. They keep their lease columns: the next claim takes over from them."""
    stale = (Session.lease_expires_at < now(), not_rung(-pace.repeat_seconds))
    return await _ring(conn, pace, select(Session.id).where(*stale))


async def _ring(conn: AsyncConnection, pace: Pace, sessions: Select[str]) -> list[Wake]:
    chosen = sessions.limit(BATCH).with_for_update(skip_locked=True)
    marked = (
        update(Session).where(Session.id.in_(chosen.scalar_subquery())).values(woken_at=now()).returning(Session.id)
    )
    return await wakes_of(conn, pace, list((await conn.execute(marked)).scalars()))


async def _due_deliveries(conn: AsyncConnection, repeat_seconds: float) -> list[str]:
    """Unsent rows nobody has rung for lately: due retries and reminders, and those whose ring was lost."""
    chosen = (
        select(MessageOut.id)
        .where(
            MessageOut.status == "pending",
            MessageOut.deliver_after <= now(),
            MessageOut.rung_at < now(-repeat_seconds),
            ~HELD_UP,
        )
        .order_by(MessageOut.deliver_after)
        .limit(BATCH)
        .with_for_update(skip_locked=True)
    )
    statement = (
        update(MessageOut)
        .where(MessageOut.id.in_(chosen.scalar_subquery()))
        .values(rung_at=now())
        .returning(MessageOut.id, MessageOut.session_id, MessageOut.seq)
    )
    rows = (await conn.execute(statement)).all()
    return [row.id for row in sorted(rows, key=lambda row: (row.session_id, row.seq))]


async def _doubtful_deliveries(conn: AsyncConnection, repeat_seconds: float) -> list[str]:
    """Rows whose sender died between sending and writing it down."""
    chosen = (
        select(MessageOut.id)
        .where(
            MessageOut.status == "sending",
            MessageOut.claim_expires_at < now(),
            MessageOut.rung_at < now(-repeat_seconds),
        )
        .limit(BATCH)
        .with_for_update(skip_locked=True)
    )
    statement = (
        update(MessageOut)
        .where(MessageOut.id.in_(chosen.scalar_subquery()))
        .values(rung_at=now())
        .returning(MessageOut.id)
    )
    return list((await conn.execute(statement)).scalars())
