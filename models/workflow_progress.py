"""How far workflows are, for lists of them: a few statements however many there are, and none of the long texts that
stages have handed in."""

from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow
from models.consent import Approval, PendingQuestion
from models.inbox import MessageIn
from models.sessions import Session
from models.spending import usage_of_turns
from models.workflows import Stage


@dataclass
class Progress:
    """`kind`: the stage it has come to. `done`: of so many `tasks`, those whose last review approved of them. `waits`:
    for a person. `cost_usd`: None if no call of a model has a known price."""

    kind: str | None = None
    waits: bool = False
    cost_usd: float | None = None
    last_of_task: dict[str, AnyRow] = field(default_factory=dict)

    @property
    def tasks(self) -> int:
        return len(self.last_of_task)

    @property
    def done(self) -> int:
        return sum(row.status == "completed" and row.verdict == "approve" for row in self.last_of_task.values())


async def progress_of(conn: AsyncConnection, workflow_ids: Collection[str]) -> dict[str, Progress]:
    found = {workflow_id: Progress() for workflow_id in workflow_ids}
    if not found:
        return found
    owners: dict[str, str] = {}
    for row in await _stages(conn, workflow_ids):
        progress = found[row.workflow_id]
        progress.kind = row.kind
        if row.task:
            progress.last_of_task[row.task] = row
        if row.turn is not None:
            owners[row.turn] = row.workflow_id
    for turn_id, spent in (await usage_of_turns(conn, owners)).items():
        progress = found[owners[turn_id]]
        if spent.cost_usd is not None:
            progress.cost_usd = (progress.cost_usd or 0.0) + spent.cost_usd
    for workflow_id in await _waiting(conn, workflow_ids):
        found[workflow_id].waits = True
    return found


async def _stages(conn: AsyncConnection, workflow_ids: Collection[str]) -> list[AnyRow]:
    query = (
        select(
            Stage.workflow_id,
            Stage.kind,
            Stage.task,
            Stage.status,
            Stage.output["verdict"].as_string().label("verdict"),
            func.coalesce(Stage.turn_id, MessageIn.turn_id).label("turn"),
        )
        .outerjoin(MessageIn, MessageIn.id == Stage.id)
        .where(Stage.workflow_id.in_(workflow_ids))
        .order_by(Stage.number)
    )
    return list((await conn.execute(query)).all())


async def _waiting(conn: AsyncConnection, workflow_ids: Collection[str]) -> set[str]:
    """Those in which somebody has to decide or answer something."""
    found: set[str] = set()
    for table in (Approval, PendingQuestion):
        asked = select(Session.workflow_id).join(table, table.session_id == Session.id)
        waits = asked.where(Session.workflow_id.in_(workflow_ids), table.status == "pending").distinct()
        found |= {workflow_id for workflow_id in (await conn.execute(waits)).scalars() if workflow_id is not None}
    return found
