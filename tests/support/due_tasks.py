"""Runs of a task on given terms, written as the scheduler writes them, and what became of its script."""

from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models import AgentGroup, MessageIn, Session, Step
from models.base import now
from models.series import change_series
from tests.support.fleet import Fleet
from workers.intake.ingest import Accepted


async def due_task(
    fleet: Fleet,
    prompt: str = "look around",
    *,
    series: str | None = None,
    late: float = 0.0,
    row: dict[str, Any] | None = None,
    agent_group: str = "demo",
    place: str | None = None,
    **terms: Any,
) -> Accepted:
    """A run that has come due, `late` seconds ago, and nobody has rung for. `series`: of that task, not of a new one;
    `row`: what else its row has."""
    accepted = await fleet.send(prompt, kind="task", agent_group=agent_group, platform_id=place)
    series_id = series or accepted.message_id
    date = now(-late)
    values = {"series_id": series_id, "process_after": date, "scheduled_for": date, "created_at": date}
    values |= {"status_changed_at": date} | (row or {})

    async def work(conn: AsyncConnection) -> None:
        await conn.execute(update(MessageIn).where(MessageIn.id == accepted.message_id).values(**values))
        await conn.execute(update(Session).where(Session.id == accepted.session_id).values(woken_at=None))
        if terms:
            group = await conn.scalar(select(AgentGroup.id).where(AgentGroup.folder == agent_group))
            await change_series(conn, series_id, str(group), **terms)

    await fleet.db.transact(work)
    fleet.bells.wakes.clear()
    return accepted


async def lose_worker(fleet: Fleet) -> None:
    """Whoever had a session is gone, and so is its lease."""
    await fleet.execute(update(Session).values(lease_expires_at=now(-1)))


async def script_steps(fleet: Fleet) -> list[Any]:
    return [step for step in await fleet.rows(Step, Step.started_at) if step.name == "script"]
