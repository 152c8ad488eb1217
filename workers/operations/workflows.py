"""Workflows: to stop one, and to let one that has stopped go on. (Beginning one is `workers.workflows.starting`.)"""

from sqlalchemy.ext.asyncio import AsyncConnection

from models.audit import note
from models.base import AnyRow, now
from models.lookup import short
from models.workflows import lock_workflow, set_stage, set_workflow, stages_of
from workers.house import Done, House, ring
from workers.operations.sessions import name_of_operator
from workers.refusals import RefusedError
from workers.workflows.engine import end
from workers.workflows.spec import MINUTES, spec_of
from workers.workflows.starting import check_minutes
from workers.workflows.tidying import KEPT_SECONDS


async def cancel(house: House, by: str, workflow_id: str) -> Done:
    """All that runs for it is given up, and nothing of it is merged. RefusedError: it is over already, or its result is
    being handed over."""

    async def work(conn: AsyncConnection) -> Done:
        workflow = await _locked(conn, workflow_id)
        if workflow.status != "running":
            raise RefusedError(f"workflow {short(workflow_id)} is over already ({workflow.status})")
        if any(stage.status == "running" and stage.input.get("acts") for stage in await stages_of(conn, workflow_id)):
            raise RefusedError(
                f"the result of workflow {short(workflow_id)} is being handed over at this moment: see what came of it "
                f"with longshore foreman show {short(workflow_id)}"
            )
        done = await end(conn, workflow, "cancelled", f"cancelled by {name_of_operator(by)}")
        await note(conn, by, "workflow.cancel", workflow_id, agent_group_id=workflow.agent_group_id)
        done.text = f"workflow {short(workflow_id)} was cancelled"
        return done

    return ring(house, await house.db.transact(work))


async def restart(house: House, by: str, workflow_id: str, *, minutes: float = MINUTES) -> Done:
    """Go on where it stopped: what failed or was cancelled is begun anew, what is done stays done, and each task has as
    many tries again. RefusedError: it runs, or has reached its goal, or its files are gone."""
    check_minutes(minutes)

    async def work(conn: AsyncConnection) -> Done:
        workflow = await _locked(conn, workflow_id)
        if workflow.status not in ("failed", "cancelled"):
            raise RefusedError(f"workflow {short(workflow_id)} is {workflow.status}: there is nothing to restart")
        if (workflow.at - workflow.ended_at).total_seconds() > KEPT_SECONDS:
            raise RefusedError(
                f"workflow {short(workflow_id)} stopped more than {KEPT_SECONDS / 86_400:g} days ago, and its files "
                "are removed by then: begin a new one with longshore foreman run"
            )
        for stage in await stages_of(conn, workflow_id):
            if stage.status in ("failed", "cancelled"):
                await set_stage(conn, stage.id, status="replaced")
        spec = spec_of(workflow)
        running = {"status": "running", "outcome": None, "ended_at": None, "rung_at": None}
        changed = spec.model_copy(update={"tries": spec.tries * 2}).model_dump(mode="json")
        await set_workflow(conn, workflow_id, spec=changed, deadline_at=now(minutes * 60), **running)
        await note(conn, by, "workflow.restart", workflow_id, agent_group_id=workflow.agent_group_id)
        return Done(f"workflow {short(workflow_id)} goes on")

    done = await house.db.transact(work)
    house.bells.advance(workflow_id)
    return done


async def _locked(conn: AsyncConnection, workflow_id: str) -> AnyRow:
    workflow = await lock_workflow(conn, workflow_id)
    if workflow is None:
        raise RefusedError(f"there is no workflow {workflow_id!r}; see: longshore foreman list")
    return workflow
