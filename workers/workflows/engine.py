"""`workflow.advance`: look at what the stages of a workflow have come to, and begin what comes next.

One transaction under the lock of the workflow's row, and nothing outside the database: so it can be rung twice, late or
for nothing, by any worker. Whatever a stage does to the world is a journaled call in a turn of its session."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.providers.clerk import Ask, Orders
from models.base import AnyRow, new_id, now
from models.groups import ensure_messaging_group
from models.inbox import MessageIn, discard_waiting
from models.sessions import admit, ensure_session, set_session
from models.upsert import insert_ignoring
from models.workflows import (
    answer_of,
    last_failure_of,
    lock_workflow,
    open_sessions_of,
    put_stage,
    set_stage,
    set_workflow,
    stages_of,
)
from workers.giving_up import give_up
from workers.house import Done, House, ring
from workers.workflows.foreman import End, Next, decide
from workers.workflows.job import Job, Seen
from workers.workflows.spec import CLERK, spec_of

log = structlog.get_logger()

CHANNEL: Final = "local"
# So often an agent that ends without handing in what it was asked for is asked for it again.
MISSES: Final = 2
_HANDED_IN: Final = ("prepare", "plan", "check", "review", "merge", "publish")
_OVER: Final = {"completed": "completed", "failed": "failed", "discarded": "cancelled"}


def place_of(workflow_id: str) -> str:
    """Where its conversations are held, on the channel `local`."""
    return f"workflow:{workflow_id}"


async def advance(house: House, workflow_id: str) -> None:
    """Rings after the commit."""
    done = await house.db.transact(lambda conn: _advance(conn, house, workflow_id))
    if done is not None:
        ring(house, done)


async def _advance(conn: AsyncConnection, house: House, workflow_id: str) -> Done | None:
    workflow = await lock_workflow(conn, workflow_id)
    if workflow is None or workflow.status != "running":
        return None
    stages = [await _collected(conn, stage) for stage in await stages_of(conn, workflow_id)]
    decision = _overdue(workflow, stages) or decide(_job(workflow, stages))
    if isinstance(decision, End):
        return await end(conn, workflow, decision.status, decision.outcome, result=decision.result)
    done = Done("")
    last = max((stage["number"] for stage in stages), default=0)
    begun = Counter((stage["kind"], stage["task"], stage["round"]) for stage in stages)
    for number, following in enumerate(decision, last + 1):
        attempt = begun[following.kind, following.task, following.round] + 1
        done.wakes += await _begin(conn, house, workflow, following, number, attempt)
        log.info("workflow.stage", workflow=workflow_id, stage=following.kind, task=following.task, number=number)
    return done


async def _collected(conn: AsyncConnection, stage: AnyRow) -> dict[str, Any]:
    """A stage as it stands now that its message may have ended, which is written down."""
    seen: dict[str, Any] = dict(stage._mapping)
    over = _OVER.get(stage.message_status or "")
    if stage.status != "running" or over is None:
        return seen
    changes: dict[str, Any] = {"status": over, "turn_id": stage.message_turn, "error": stage.message_error}
    if over == "completed" and stage.output is None and stage.kind in _HANDED_IN:
        changes |= await _handed_nothing_in(conn, stage)
    elif over == "completed" and stage.kind not in _HANDED_IN and stage.message_turn is not None:
        changes["output"] = {"text": await answer_of(conn, stage.message_turn)}
    await set_stage(conn, stage.id, **changes, ended_at=now())
    return seen | changes


async def _handed_nothing_in(conn: AsyncConnection, stage: AnyRow) -> dict[str, Any]:
    """An agent is asked again; what the clerk could not do has a reason."""
    if stage.provider != CLERK and stage.attempt <= MISSES:
        return {"status": "replaced", "error": "it ended without handing anything in"}
    why = await last_failure_of(conn, stage.message_turn) if stage.message_turn is not None else None
    return {"status": "failed", "error": why or "it ended without handing anything in"}


def _overdue(workflow: AnyRow, stages: Sequence[dict[str, Any]]) -> End | None:
    """Its time is over. Who waits for people's word at the end is not hurried: an approval has a date of its own."""
    waits = any(stage["kind"] == "publish" and stage["status"] == "running" for stage in stages)
    if workflow.deadline_at > workflow.at or waits:
        return None
    minutes = round((workflow.deadline_at - workflow.created_at).total_seconds() / 60)
    return End("failed", f"it took longer than the {minutes} minutes it may; longshore foreman restart gives it more")


def _job(workflow: AnyRow, stages: Sequence[dict[str, Any]]) -> Job:
    missed = Counter(
        (stage["kind"], stage["task"], stage["round"])
        for stage in stages
        if stage["status"] == "replaced" and stage["provider"] != CLERK
    )
    return Job(
        workflow.goal,
        spec_of(workflow),
        [
            Seen(
                stage["kind"],
                stage["number"],
                stage["status"],
                stage["task"],
                stage["round"],
                stage["output"] or {},
                stage["error"],
            )
            for stage in stages
            if stage["status"] != "replaced"
        ],
        missed,
    )


async def _begin(
    conn: AsyncConnection, house: House, workflow: AnyRow, following: Next, number: int, attempt: int
) -> list[tuple[str, str | None]]:
    """The stage, its session if the lane has none yet, and the message that asks for it: one id for both."""
    stage_id, thread = new_id(), following.lane
    place = place_of(workflow.id)
    key = (workflow.agent_group_id, await ensure_messaging_group(conn, CHANNEL, place), thread)
    await ensure_session(conn, *key)
    admission = await admit(conn, *key, wakes=True, repeat_seconds=house.settings.repeat_seconds)
    assert admission is not None
    await set_session(conn, admission.session_id, workflow_id=workflow.id)
    who = following.who
    given = {"call": following.call, "tree": following.tree, "at": following.at, "task": following.planned}
    await put_stage(
        conn,
        id=stage_id,
        workflow_id=workflow.id,
        number=number,
        kind=following.kind,
        task=following.task,
        round=following.round,
        attempt=attempt,
        session_id=admission.session_id,
        provider=who.provider,
        model=who.model,
        input={name: value for name, value in given.items() if value},
    )
    named = {"stage": following.kind, "task": following.task, "round": following.round}
    await insert_ignoring(
        conn,
        MessageIn,
        id=stage_id,
        session_id=admission.session_id,
        agent_group_id=workflow.agent_group_id,
        seq=admission.seq,
        kind="task",
        follow_up="separate",
        channel_type=CHANNEL,
        platform_id=place,
        thread_id=thread,
        provider=who.provider,
        model=who.model,
        content={"prompt": _prompt(following), "workflow": named},
    )
    return [(admission.session_id, who.provider)]


def _prompt(following: Next) -> str:
    """The clerk is told what to call, in its own words; what with is on the stage's row."""
    if following.who.provider != CLERK:
        return following.prompt
    asks = tuple(Ask.model_validate(ask) for ask in following.call.get("asks", ()))
    return Orders(tool=following.call["tool"], asks=asks).text()


async def end(
    conn: AsyncConnection, workflow: AnyRow, status: str, outcome: str, *, result: dict[str, Any] | None = None
) -> Done:
    """Whatever still runs is given up. For whoever has locked the workflow's row."""
    done = Done(outcome)
    why = f"the workflow is over: {outcome}"
    for session_id in await open_sessions_of(conn, workflow.id):
        given_up = await give_up(conn, session_id, why[:500])
        if given_up is not None:
            done.deliveries += given_up.deliveries
            done.events.append(given_up.ended)
        await discard_waiting(conn, session_id, why[:500])
        done.stopped.append(session_id)
    for stage in await stages_of(conn, workflow.id):
        if stage.status == "running":
            await set_stage(conn, stage.id, status="cancelled", error=why, turn_id=stage.message_turn, ended_at=now())
    await set_workflow(conn, workflow.id, status=status, outcome=outcome, result=result, ended_at=now())
    log.info("workflow.ended", workflow=workflow.id, status=status)
    return done
