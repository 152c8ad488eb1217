"""`workflow.advance`: a stage of this workflow may have ended; see what comes next."""

from workers.app import Call, coroutine_task
from workers.workflows.engine import advance as follow_up


@coroutine_task("workflow.advance")
async def advance(call: Call, workflow_id: str) -> None:
    await follow_up(call.runtime, workflow_id)
