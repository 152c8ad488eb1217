"""How a scheduled task is run, whichever of its runs is meant: when one was missed, when one is still under way, after
failures, at whose cost. The dates themselves are on its rows in messages_in, which name it by `series_id`.

A task without a row here is run on the terms that `Terms` says."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Literal

from sqlalchemy import CheckConstraint, Float, ForeignKey, Index, Integer, String, Text, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Timestamp, now
from models.upsert import insert_ignoring, insert_or_update_many

CatchUp = Literal["skip", "one", "all"]
Overlap = Literal["skip", "queue"]
CATCH_UPS: Final = ("skip", "one", "all")
OVERLAPS: Final = ("skip", "queue")
_SKIPS: Final = text("catch_up = 'skip'")


@dataclass(frozen=True)
class Terms:
    """`catch_up`: dates that came while nobody could run it. `overlap`: dates that came while it was running.
    `jitter_seconds`: each run begins up to so much later than its date. `pause_after`: so many failures in a row
    (0: never). `daily_usd`: what its runs may cost in a day. `provider` and `model`: instead of the agent's own.
    `script`: bash that is run first and may spare the agent."""

    catch_up: CatchUp = "one"
    overlap: Overlap = "skip"
    jitter_seconds: int = 0
    pause_after: int = 5
    daily_usd: float | None = None
    provider: str | None = None
    model: str | None = None
    script: str | None = None


DEFAULT_TERMS: Final = Terms()


class Series(Base):
    __tablename__ = "task_series"
    __table_args__ = (
        CheckConstraint(f"catch_up IN {CATCH_UPS}", name="catch_up"),
        CheckConstraint(f"overlap IN {OVERLAPS}", name="overlap"),
        CheckConstraint("jitter_seconds >= 0", name="jitter_seconds"),
        CheckConstraint("pause_after >= 0", name="pause_after"),
        CheckConstraint("daily_usd > 0", name="daily_usd"),
        Index("ix_task_series_skip", "id", postgresql_where=_SKIPS, sqlite_where=_SKIPS),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    agent_group_id: Mapped[str] = mapped_column(ForeignKey("agent_groups.id"))
    catch_up: Mapped[str] = mapped_column(String(10), default=DEFAULT_TERMS.catch_up)
    overlap: Mapped[str] = mapped_column(String(10), default=DEFAULT_TERMS.overlap)
    jitter_seconds: Mapped[int] = mapped_column(Integer, default=DEFAULT_TERMS.jitter_seconds)
    pause_after: Mapped[int] = mapped_column(Integer, default=DEFAULT_TERMS.pause_after)
    daily_usd: Mapped[float | None] = mapped_column(Float)
    provider: Mapped[str | None] = mapped_column(String(100))
    model: Mapped[str | None] = mapped_column(String(200))
    script: Mapped[str | None] = mapped_column(Text)
    failures: Mapped[int] = mapped_column(Integer, default=0)  # in a row
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


async def find_series(conn: AsyncConnection, series_ids: list[str]) -> dict[str, AnyRow]:
    """Those that have a row, by id."""
    query = select(Series.__table__).where(Series.id.in_(series_ids))
    return {row.id: row for row in (await conn.execute(query)).all()}


def terms_of(row: AnyRow | None) -> Terms:
    """On what terms a task is run; None: it has no row."""
    if row is None:
        return DEFAULT_TERMS
    return Terms(**{field.name: getattr(row, field.name) for field in fields(Terms)})


async def change_series(conn: AsyncConnection, series_id: str, agent_group_id: str, **changes: Any) -> None:
    """Change terms or the count of failures; its row is made if it has none."""
    if not await insert_ignoring(conn, Series, id=series_id, agent_group_id=agent_group_id, **changes):
        await conn.execute(update(Series).where(Series.id == series_id).values(**changes))


async def set_failures(conn: AsyncConnection, counted: Mapping[str, tuple[str, int]]) -> None:
    """How often each series has failed in a row, each with its agent: its row is made if it has none."""
    rows = [
        {"id": series_id, "agent_group_id": agent, "failures": count} for series_id, (agent, count) in counted.items()
    ]
    await insert_or_update_many(conn, Series, ["id"], ["failures"], rows)


async def terms_of_series(conn: AsyncConnection, series_id: str, agent_group_id: str) -> Terms:
    """As far as it is that agent's: what one was told to run is never run for another."""
    series = (await find_series(conn, [series_id])).get(series_id)
    return terms_of(series if series is not None and series.agent_group_id == agent_group_id else None)
