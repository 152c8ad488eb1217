"""Workflows: work of several agents with one result, as rows. A workflow has stages; a stage is one message to one
session, and ends with that message. What follows a stage is decided elsewhere (`workers/workflows`), under the lock of
the workflow's row, so that whoever is rung twice, or late, finds it done."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, cast

from sqlalchemy import (
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    Integer,
    Select,
    String,
    Table,
    UniqueConstraint,
    and_,
    exists,
    insert,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, aliased, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, Words, new_id, now
from models.consent import Approval
from models.groups import AgentGroup
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.programs import forget
from models.sessions import Session, close_session, lock_session
from models.spending import Mine
from models.turns import Step, Turn

_RUNNING: Final = text("status = 'running'")
# Written out, as in the index that holds only these.
_STAGE_RUNS: Final = text("workflow_stages.status = 'running'")
_WORKFLOW_RUNS: Final = text("workflows.status = 'running'")


class Workflow(Base):
    __tablename__ = "workflows"
    __table_args__ = (
        CheckConstraint("status IN ('running', 'completed', 'failed', 'cancelled')", name="status"),
        CheckConstraint("budget_usd > 0", name="budget_usd"),
        Index("ix_workflows_running", "deadline_at", postgresql_where=_RUNNING, sqlite_where=_RUNNING),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    kind: Mapped[str] = mapped_column(String(30))
    agent_group_id: Mapped[str] = mapped_column(ForeignKey("agent_groups.id"), index=True)
    goal: Mapped[str] = mapped_column(Words)
    spec: Mapped[dict[str, Any]] = mapped_column(Json)  # what was asked for, and who does what
    status: Mapped[str] = mapped_column(String(10), default="running")
    outcome: Mapped[str | None] = mapped_column(Words)  # how it ended, in words
    result: Mapped[dict[str, Any] | None] = mapped_column(Json)
    started_by: Mapped[str] = mapped_column(String(255))  # a user, or `cli`
    budget_usd: Mapped[float | None] = mapped_column(Float)
    deadline_at: Mapped[datetime] = mapped_column(Timestamp)
    # When somebody last rang for it because of something that nobody had followed up.
    rung_at: Mapped[datetime | None] = mapped_column(Timestamp)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    ended_at: Mapped[datetime | None] = mapped_column(Timestamp)


class Stage(Base):
    """The message that asks for it has its id."""

    __tablename__ = "workflow_stages"
    __table_args__ = (
        CheckConstraint("status IN ('running', 'completed', 'failed', 'cancelled', 'replaced')", name="status"),
        UniqueConstraint("workflow_id", "number"),
        # Whatever the code believes: no stage is begun twice.
        UniqueConstraint("workflow_id", "kind", "task", "round", "attempt"),
        Index("ix_workflow_stages_running", "workflow_id", postgresql_where=_RUNNING, sqlite_where=_RUNNING),
        Index("ix_workflow_stages_session_id", "session_id"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    workflow_id: Mapped[str] = mapped_column(ForeignKey("workflows.id"))
    number: Mapped[int] = mapped_column(Integer)
    kind: Mapped[str] = mapped_column(String(20))
    task: Mapped[str] = mapped_column(String(40), default="")
    round: Mapped[int] = mapped_column(Integer, default=0)
    attempt: Mapped[int] = mapped_column(Integer, default=1)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    provider: Mapped[str] = mapped_column(String(100))
    model: Mapped[str | None] = mapped_column(String(200))
    # replaced: begun anew, by somebody's wish or because nothing was handed in
    status: Mapped[str] = mapped_column(String(10), default="running")
    input: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    output: Mapped[dict[str, Any] | None] = mapped_column(Json)
    error: Mapped[str | None] = mapped_column(Words)
    # The turn it was run in, by which its usage is found. Nothing refers: the stage stays when that is gone.
    turn_id: Mapped[str | None] = mapped_column(Id)
    started_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    ended_at: Mapped[datetime | None] = mapped_column(Timestamp)


_table = cast(Table, Workflow.__table__)
_stages = cast(Table, Stage.__table__)


def _shown() -> Select[Any]:
    return select(_table, AgentGroup.folder, now().label("at")).join(
        AgentGroup, AgentGroup.id == Workflow.agent_group_id
    )


async def put_workflow(conn: AsyncConnection, *, seconds: float, **row: Any) -> None:
    """`seconds`: how long it may take."""
    await conn.execute(insert(Workflow).values(deadline_at=now(seconds), **row))


async def find_workflow(conn: AsyncConnection, workflow_id: str) -> AnyRow | None:
    """With its agent's `folder`, and the database's time (`at`)."""
    found: AnyRow | None = (await conn.execute(_shown().where(Workflow.id == workflow_id))).one_or_none()
    return found


async def lock_workflow(conn: AsyncConnection, workflow_id: str) -> AnyRow | None:
    """The same, locked until the commit. Before any session of it: one order for all."""
    query = _shown().where(Workflow.id == workflow_id).with_for_update(of=_table)
    found: AnyRow | None = (await conn.execute(query)).one_or_none()
    return found


async def workflows_page(
    conn: AsyncConnection, mine: Mine, limit: int, before: str | None = None, *, status: str | None = None
) -> list[AnyRow]:
    """The latest first; `before`: the last id that was seen. Ids sort by time."""
    narrow = [Workflow.status == status] if status is not None else []
    narrow += [Workflow.id < before] if before is not None else []
    query = _shown().where(mine(Workflow.agent_group_id), *narrow).order_by(Workflow.id.desc()).limit(limit)
    return list((await conn.execute(query)).all())


async def set_workflow(conn: AsyncConnection, workflow_id: str, **changes: Any) -> None:
    await conn.execute(update(_table).where(Workflow.id == workflow_id).values(**changes))


async def put_stage(conn: AsyncConnection, **row: Any) -> None:
    await conn.execute(insert(Stage).values(**row))


async def set_stage(conn: AsyncConnection, stage_id: str, **changes: Any) -> None:
    await conn.execute(update(_stages).where(Stage.id == stage_id).values(**changes))


async def stages_of(conn: AsyncConnection, workflow_id: str) -> list[AnyRow]:
    """In the order in which they were begun, with what their message has come to (`message_status`, `message_error`;
    None: it was pruned), the turn it is in (`message_turn`), and what its session is at."""
    query = (
        select(
            _stages,
            MessageIn.status.label("message_status"),
            MessageIn.error.label("message_error"),
            MessageIn.turn_id.label("message_turn"),
            Session.activity,
        )
        .outerjoin(MessageIn, MessageIn.id == Stage.id)
        .join(Session, Session.id == Stage.session_id)
        .where(Stage.workflow_id == workflow_id)
        .order_by(Stage.number)
    )
    return list((await conn.execute(query)).all())


async def stage_of(conn: AsyncConnection, session_id: str, message_ids: Sequence[str]) -> AnyRow | None:
    """The stage that one of these messages asks for, else the last that the session was used for; with its workflow's
    own columns beside it."""
    own = (Workflow.goal, Workflow.spec, Workflow.budget_usd, Workflow.created_at)
    query = (
        select(_stages, *(column.label(f"workflow_{column.key}") for column in own))
        .join(Workflow, Workflow.id == Stage.workflow_id)
        .where(or_(Stage.session_id == session_id, Stage.id.in_(message_ids)))
        .order_by(Stage.id.in_(message_ids).desc(), Stage.number.desc())
        .limit(1)
    )
    return (await conn.execute(query)).one_or_none()


async def submit_output(conn: AsyncConnection, stage_id: str, output: dict[str, Any]) -> bool:
    """False: the stage is over."""
    statement = update(_stages).where(Stage.id == stage_id, Stage.status == "running").values(output=output)
    return (await conn.execute(statement.returning(_stages.c.id))).one_or_none() is not None


async def find_stage(conn: AsyncConnection, stage_id: str) -> AnyRow | None:
    return (await conn.execute(select(_stages).where(Stage.id == stage_id))).one_or_none()


async def begin_act(conn: AsyncConnection, workflow_id: str, stage_id: str) -> bool:
    """From now on until `end_act`, the stage changes what is not ours: whoever wants to stop the workflow sees it
    (`input`, `acts`). False: the stage is over, and must not."""
    await lock_workflow(conn, workflow_id)
    stage = await find_stage(conn, stage_id)
    if stage is None or stage.status != "running":
        return False
    await set_stage(conn, stage_id, input={**stage.input, "acts": True})
    return True


async def end_act(conn: AsyncConnection, workflow_id: str, stage_id: str) -> None:
    await lock_workflow(conn, workflow_id)
    if (stage := await find_stage(conn, stage_id)) is not None:
        await set_stage(conn, stage_id, input={name: value for name, value in stage.input.items() if name != "acts"})


async def last_failure_of(conn: AsyncConnection, turn_id: str) -> str | None:
    """What the last tool that failed in a turn had to say."""
    query = select(Step.output).where(Step.turn_id == turn_id, Step.kind == "tool", Step.status == "failed")
    output = (await conn.execute(query.order_by(Step.number.desc()).limit(1))).scalar_one_or_none()
    return None if output is None else str(output.get("text") or "")


async def approved_commits(conn: AsyncConnection, session_id: str) -> dict[str, set[str]]:
    """For which commits there are approvals on record that a call of this session has used, and of which categories."""
    query = select(Approval.category, Approval.payload).where(
        Approval.session_id == session_id, Approval.status == "used"
    )
    found: dict[str, set[str]] = {}
    for row in (await conn.execute(query)).all():
        found.setdefault(str(row.payload["arguments"].get("commit")), set()).add(row.category)
    return found


async def answer_of(conn: AsyncConnection, turn_id: str) -> str:
    """What an agent said last in a turn."""
    query = select(MessageOut.content).where(MessageOut.turn_id == turn_id, MessageOut.kind != "notice")
    content = (await conn.execute(query.order_by(MessageOut.seq.desc()).limit(1))).scalar_one_or_none()
    return str((content or {}).get("text") or "")


async def ring_unfollowed(conn: AsyncConnection, repeat_seconds: float, limit: int) -> list[str]:
    """Workflows with a stage whose message has ended and that nobody has followed up, or whose time has run out; marked
    as rung for. Looks at what runs only."""
    message = aliased(MessageIn)
    ended = exists().where(
        Stage.workflow_id == Workflow.id,
        _STAGE_RUNS,
        message.id == Stage.id,
        message.status.in_(["completed", "failed", "discarded"]),
    )
    chosen = (
        select(Workflow.id)
        .where(
            _WORKFLOW_RUNS,
            or_(Workflow.rung_at.is_(None), Workflow.rung_at < now(-repeat_seconds)),
            or_(ended, Workflow.deadline_at < now(), ~exists().where(Stage.workflow_id == Workflow.id)),
        )
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    statement = update(_table).where(Workflow.id.in_(chosen.scalar_subquery())).values(rung_at=now())
    return list((await conn.execute(statement.returning(_table.c.id))).scalars())


async def open_sessions_of(conn: AsyncConnection, workflow_id: str) -> list[str]:
    """Those in which something runs or waits, locked until the commit, in one order."""
    waits = exists().where(
        MessageIn.session_id == Session.id, MessageIn.status.in_(["pending", "processing", "paused"])
    )
    turns = exists().where(Turn.session_id == Session.id, text("turns.status IN ('running', 'waiting', 'parked')"))
    query = select(Session.id).where(and_(Session.workflow_id == workflow_id, or_(waits, turns))).order_by(Session.id)
    found = list((await conn.execute(query)).scalars())
    for session_id in found:
        await lock_session(conn, session_id)
    return found


async def close_sessions_of(conn: AsyncConnection, workflow_id: str) -> None:
    """Nothing is said in them any more, and what programs remember of them is of no use."""
    for session_id in (
        (await conn.execute(select(Session.id).where(Session.workflow_id == workflow_id))).scalars().all()
    ):
        await close_session(conn, session_id)
        await forget(conn, session_id)
