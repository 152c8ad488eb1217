"""What people see of a workflow, in each of its states."""

import pytest

from tests.support.fleet import Fleet
from tests.support.workflow_rows import STATES, State, put_workflow
from workers.workflows.view import WorkflowView, look

pytestmark = [pytest.mark.spec("O1"), pytest.mark.both_databases]


async def view_of(fleet: Fleet, workflow_id: str) -> WorkflowView:
    seen = await fleet.db.read(lambda conn: look(conn, workflow_id))
    assert seen is not None
    return seen


@pytest.mark.parametrize("state", STATES)
async def test_every_state_can_be_looked_at(fleet: Fleet, state: State) -> None:
    rows = await put_workflow(fleet, state)
    seen = await view_of(fleet, rows.id)
    assert [stage.number for stage in seen.stages] == list(range(1, len(seen.stages) + 1))
    assert [task.key for task in seen.tasks] == ([] if state == "planning" else ["totals", "docs"])
    assert bool(seen.waiting) == (state == "waiting")
    assert any(stage.questions for stage in seen.stages) == (state == "asking")
    assert any(stage.state == "negative" for stage in seen.stages) == (state in ("negative", "failed"))
