"""Which tools a turn of a workflow has. The clerk has those of its desk and no others; who plans or reviews can hand in
what the stage is to end with, besides what its agent has anyway."""

from collections.abc import Mapping
from typing import Any, Final

from adapters.tool_port import Tool
from adapters.tools.submitting import SUBMIT_REVIEW, submit_plan
from workers.runtime import Runtime
from workers.workflows.assignment import Assignment
from workers.workflows.desk import Desk
from workers.workflows.spec import StageKind

_CLERKS: Final = ("prepare", "check", "merge", "publish")


def tools_for(assignment: Assignment, own: Mapping[str, Tool[Any]], runtime: Runtime) -> dict[str, Tool[Any]]:
    """`own`: those of the agent."""
    if assignment.kind in _CLERKS:
        return Desk(runtime, assignment).tools if assignment.is_asked else {}
    if not assignment.is_asked:
        return dict(own)
    hands_in: dict[StageKind, Tool[Any]] = {"plan": submit_plan(assignment.spec.most_tasks), "review": SUBMIT_REVIEW}
    more = hands_in.get(assignment.kind)
    return {**own, more.name: more} if more is not None else dict(own)
