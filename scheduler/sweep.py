"""Finds what nobody rang for: due messages and retries, stale leases, unsent rows, finished recurring rows, and what
nobody answered or decided in time.

Every query runs over a partial index that holds only unfinished rows, so its cost grows with what is due, not with
what exists. Several sweeps at once share the work: PostgreSQL skips rows another one has locked, SQLite has one
writer, and each row that is rung for is marked, so that the next sweep leaves it alone for a while."""

from dataclasses import dataclass, field

from sqlalchemy import Select, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.database import Database
from models.expiry import expire_waits
from models.fleet import forget_dead_processes
from models.groups import AgentGroup
from models.inbox import RECURRING, MessageIn
from models.outbox import HELD_UP, MessageOut
from models.sessions import Session, not_leased, not_resting, not_rung
from models.tasks import write_next
from scheduler.recurrence import RecurrenceError, next_after

BATCH = 500
EXPIRIES = 100  # each closes its cards one by one


@dataclass(frozen=True)
class Wake:
    session_id: str
    provider: str | None


@dataclass
class Found:
    """What to ring for. `full`: there was more than one batch, look again at once."""

    wakes: list[Wake] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    full: bool = False


async def sweep(db: Database, *, repeat_seconds: float) -> Found:
    """One look at everything. `repeat_seconds`: how old a wake must be before it counts as lost."""
    found = Found()
    await db.transact(_recur)
    expired, deliveries = await db.transact(_expire)
    wakes = await db.transact(lambda conn: _due_sessions(conn, repeat_seconds))
    stale = await db.transact(lambda conn: _stale_leases(conn, repeat_seconds))
    found.wakes = list({wake.session_id: wake for wake in [*expired, *wakes, *stale]}.values())
    found.deliveries = [*deliveries, *await db.transact(lambda conn: _due_deliveries(conn, repeat_seconds))]
    found.doubtful = await db.transact(lambda conn: _doubtful_deliveries(conn, repeat_seconds))
    found.full = max(len(wakes), len(stale), len(found.deliveries), len(found.doubtful)) >= BATCH
    found.full |= len(expired) >= EXPIRIES
    await db.transact(forget_dead_processes)
    return found


async def _expire(conn: AsyncConnection) -> tuple[list[Wake], list[str]]:
    expired = await expire_waits(conn, EXPIRIES)
    return await _wakes(conn, expired.sessions), expired.deliveries


async def _due_sessions(conn: AsyncConnection, repeat_seconds: float) -> list[Wake]:
    # No DISTINCT: IN needs none, and SQLite would read the whole table for it.
    due = select(MessageIn.session_id).where(
        MessageIn.status == "pending", MessageIn.wakes, MessageIn.process_after <= now()
    )
    where = (Session.id.in_(due), Session.status == "active", not_leased(), not_resting(), not_rung(-repeat_seconds))
    return await _ring(conn, select(Session.id).where(*where))


async def _stale_leases(conn: AsyncConnection, repeat_seconds: float) -> list[Wake]:
    """Sessions whose worker died. They keep their lease columns: the next claim takes over from them."""
    return await _ring(conn, select(Session.id).where(Session.lease_expires_at < now(), not_rung(-repeat_seconds)))


async def _ring(conn: AsyncConnection, sessions: Select[str]) -> list[Wake]:
    chosen = sessions.limit(BATCH).with_for_update(skip_locked=True)
    marked = (
        update(Session).where(Session.id.in_(chosen.scalar_subquery())).values(woken_at=now()).returning(Session.id)
    )
    return await _wakes(conn, list((await conn.execute(marked)).scalars()))


async def _wakes(conn: AsyncConnection, ids: list[str]) -> list[Wake]:
    if not ids:
        return []
    query = (
        select(Session.id, func.coalesce(Session.provider, AgentGroup.provider).label("provider"))
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(Session.id.in_(ids))
    )
    return [Wake(row.id, row.provider) for row in (await conn.execute(query)).all()]


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


async def _recur(conn: AsyncConnection) -> None:
    """Write the next row of each finished recurring one, in the transaction that marks the old one as followed."""
    query = select(MessageIn.__table__).where(RECURRING).order_by(MessageIn.session_id).limit(BATCH)
    query = query.with_for_update(skip_locked=True)
    for row in (await conn.execute(query)).all():
        await _follow(conn, row)
        await conn.execute(update(MessageIn).where(MessageIn.id == row.id).values(recurred=True))


async def _follow(conn: AsyncConnection, row: AnyRow) -> None:
    try:
        due = next_after(row.recurrence, row.process_after, row.timezone)
    except RecurrenceError:
        return  # refused when it is scheduled; a row that got in otherwise ends its series here
    await write_next(conn, row, row.session_id, due)
