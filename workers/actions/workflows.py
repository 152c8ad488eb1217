"""What a stage of a workflow hands in is written with its step, while it is its turn to."""

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import Submit
from adapters.errors import ToolError
from models.workflows import submit_output
from workers.actions.caller import Caller, Performed


async def submit(conn: AsyncConnection, caller: Caller, action: Submit, step_id: str, number: int) -> Performed:
    assignment = caller.turn.assignment
    if assignment is None or not await submit_output(conn, assignment.stage_id, action.output):
        raise ToolError("this stage of the workflow is over: nothing can be handed in any more")
    return Performed(action.text)
