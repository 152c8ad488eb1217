"""The fleet about itself: processes that live, providers that answer, and input that was refused."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Integer, String, case, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, Words, new_id, now
from models.upsert import insert_ignoring, insert_or_update

FORGET_AFTER_SECONDS = 24 * 3600


class Process(Base):
    """A worker or beat process. It says that it lives; one that stops saying so is dead or cut off."""

    __tablename__ = "processes"

    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    queues: Mapped[list[str]] = mapped_column(Json, default=list)
    pid: Mapped[int] = mapped_column(Integer)
    running: Mapped[int] = mapped_column(Integer, default=0)
    slots: Mapped[int | None] = mapped_column(Integer)  # how many tasks it runs at a time
    seen_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class ProviderHealth(Base):
    __tablename__ = "provider_health"
    __table_args__ = (CheckConstraint("state IN ('ok', 'limited', 'down')", name="state"),)

    provider: Mapped[str] = mapped_column(String(100), primary_key=True)
    account: Mapped[str] = mapped_column(String(100), primary_key=True, default="")
    state: Mapped[str] = mapped_column(String(10))
    detail: Mapped[str | None] = mapped_column(Words)
    failures: Mapped[int] = mapped_column(Integer, default=0)  # in a row
    until: Mapped[datetime | None] = mapped_column(Timestamp)
    checked_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class Rejected(Base):
    """Input that could not become a message, with the reason, so that its sender can be told."""

    __tablename__ = "rejected"

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    source: Mapped[str] = mapped_column(String(100))
    reason: Mapped[str] = mapped_column(Words)
    payload: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now(), index=True)


async def report_alive(
    conn: AsyncConnection,
    name: str,
    kind: str,
    *,
    pid: int,
    queues: list[str] | None = None,
    running: int = 0,
    slots: int | None = None,
) -> None:
    values = {"kind": kind, "pid": pid, "queues": queues or [], "running": running, "slots": slots, "seen_at": now()}
    await insert_or_update(conn, Process, ["name"], name=name, **values)


async def report_gone(conn: AsyncConnection, name: str) -> None:
    await conn.execute(delete(Process).where(Process.name == name))


async def forget_dead_processes(conn: AsyncConnection) -> None:
    await conn.execute(delete(Process).where(Process.seen_at < now(-FORGET_AFTER_SECONDS)))


async def living_processes(conn: AsyncConnection, within_seconds: float) -> list[AnyRow]:
    query = select(Process.__table__).where(Process.seen_at > now(-within_seconds)).order_by(Process.name)
    return list((await conn.execute(query)).all())


async def health_of(conn: AsyncConnection, provider: str, account: str) -> AnyRow | None:
    """With `at`, the database's time, to which its other times relate."""
    query = select(ProviderHealth.__table__, now().label("at")).where(
        ProviderHealth.provider == provider, ProviderHealth.account == account
    )
    return (await conn.execute(query)).one_or_none()


async def providers_down(conn: AsyncConnection) -> set[str]:
    """Those that are left alone for now."""
    query = select(ProviderHealth.provider).where(ProviderHealth.state == "down", ProviderHealth.until > now())
    return set((await conn.execute(query)).scalars())


async def all_health(conn: AsyncConnection) -> list[AnyRow]:
    query = select(ProviderHealth.__table__).order_by(ProviderHealth.provider, ProviderHealth.account)
    return list((await conn.execute(query)).all())


async def note_failure(
    conn: AsyncConnection, provider: str, account: str, detail: str, *, threshold: int, pause: float, longest: float
) -> None:
    """A call failed as calls to a dead service do. After `threshold` in a row the provider is `down` for `pause`
    seconds, doubling with each probe that fails up to `longest`. Calls that were under way when it went down break
    with it, by the hundred on a busy fleet: they say nothing new and are not counted."""
    await insert_ignoring(conn, ProviderHealth, provider=provider, account=account, state="ok")
    mine = (ProviderHealth.provider == provider, ProviderHealth.account == account)
    is_up = case((ProviderHealth.state == "down", 0), else_=1)
    counted = update(ProviderHealth).where(*mine).values(failures=ProviderHealth.failures + is_up, checked_at=now())
    failures = (await conn.execute(counted.returning(ProviderHealth.failures))).scalar_one()
    if failures < threshold:
        return
    seconds = min(pause * 2.0 ** min(failures - threshold, 30), longest)
    opened = update(ProviderHealth).where(*mine).values(state="down", detail=detail, until=now(seconds))
    await conn.execute(opened)


async def note_limited(conn: AsyncConnection, provider: str, account: str, detail: str, seconds: float) -> None:
    """It lives, but asks for patience. Shown to people; the waiting itself is the governor's."""
    limited = {"state": "limited", "detail": detail, "until": now(seconds), "failures": 0, "checked_at": now()}
    await insert_or_update(conn, ProviderHealth, ["provider", "account"], provider=provider, account=account, **limited)


async def note_success(conn: AsyncConnection, provider: str, account: str) -> None:
    well = {"state": "ok", "detail": None, "until": None, "failures": 0, "checked_at": now()}
    await insert_or_update(conn, ProviderHealth, ["provider", "account"], provider=provider, account=account, **well)


async def may_probe(conn: AsyncConnection, provider: str, account: str, seconds: float) -> bool:
    """Whether this caller is the one who tries a provider again whose pause is over; the others wait `seconds` more.
    Its attempt counts as a failure until it succeeds."""
    statement = (
        update(ProviderHealth)
        .where(
            ProviderHealth.provider == provider,
            ProviderHealth.account == account,
            ProviderHealth.state == "down",
            ProviderHealth.until <= now(),
        )
        .values(until=now(seconds), checked_at=now(), failures=ProviderHealth.failures + 1)
        .returning(ProviderHealth.provider)
    )
    return (await conn.execute(statement)).one_or_none() is not None


async def reject(conn: AsyncConnection, rejection_id: str, source: str, reason: str, payload: dict[str, Any]) -> None:
    """Keep what was refused. The id makes a redelivered message one row."""
    await insert_ignoring(conn, Rejected, id=rejection_id, source=source, reason=reason, payload=payload)
