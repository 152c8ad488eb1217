"""Products that are broken in one way each, to see that the ledgers find them out."""

import functools
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import workers.toolbox
from adapters.actions import Submit
from adapters.contracts import ToolOutcome
from adapters.git import commits, publishing
from adapters.git.repository import Repository
from adapters.git.workbench import Workbench
from adapters.tool_port import ToolContext
from workers.toolbox import JournaledToolBox
from workers.workflows.desk import Desk


def _forget_steps() -> None:
    """Never finds what an earlier attempt has done."""

    async def forget(*_: Any) -> None:
        return None

    vars(workers.toolbox)["find_step"] = forget


def _begin_late() -> None:
    """Writes a call down only after it was run."""
    begin, run = JournaledToolBox._begin, JournaledToolBox._run
    late: dict[str, Callable[[], Awaitable[str]]] = {}

    async def begin_later(self: JournaledToolBox, key: str, tool: Any, arguments: Mapping[str, Any]) -> str:
        late[key] = functools.partial(begin, self, key, tool, arguments)
        return key

    async def run_first(self: JournaledToolBox, step_id: str, *given: Any) -> ToolOutcome:
        finish = self._finish

        async def begin_and_finish(step_id: str, *given: Any) -> None:
            await finish(await late[step_id]() if step_id in late else step_id, *given)

        self._finish = begin_and_finish  # type: ignore[method-assign, assignment]
        return await run(self, step_id, *given)

    JournaledToolBox._begin = begin_later  # type: ignore[method-assign]
    JournaledToolBox._run = run_first  # type: ignore[method-assign, assignment]


def _repeat_all() -> None:
    """Runs again whatever was begun, as if every tool were idempotent."""
    call = JournaledToolBox.call

    async def call_again(self: JournaledToolBox, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        object.__setattr__(self._tools.get(name), "idempotent", True)
        return await call(self, call_id, name, arguments)

    JournaledToolBox.call = call_again  # type: ignore[method-assign]


def _publish_early() -> None:
    """Hands over what it has merged, and asks then."""
    merge = Desk._merge_work

    async def merge_and_publish(self: Desk, bench: Workbench, context: ToolContext) -> Submit:
        handed_in = await merge(self, bench, context)
        if handed_in.output.get("ok"):
            spec = self._spec
            await bench.publish(Path(spec.repository), spec.target.branch, handed_in.output["commit"], None)
        return handed_in

    Desk._merge_work = merge_and_publish  # type: ignore[method-assign]


def _forget_publishing() -> None:
    """Does not see what somebody before it has handed over."""
    settled = publishing._settled

    async def unseen(host: Any, ref: str, commit: str, expected: str | None) -> Any:
        said = await settled(host, ref, commit, expected)
        return publishing.Published(False, said.found) if said is not None else None

    vars(publishing)["_settled"] = unseen


def _commit_again() -> None:
    """Makes a commit also of what is committed."""
    tree_of, make = Repository.tree_of, commits.commit

    async def another(self: Repository, commit: str) -> str:
        return "0" * len(await tree_of(self, commit))

    async def commit(*given: Any) -> Any:
        Repository.tree_of = another  # type: ignore[method-assign]
        try:
            return await make(*given)
        finally:
            Repository.tree_of = tree_of  # type: ignore[method-assign]

    vars(commits)["commit"] = commit


TOOLBOX_FAULTS = {"forgetful": _forget_steps, "late": _begin_late, "reckless": _repeat_all}
WORKFLOW_FAULTS = {"hasty": _publish_early, "forgetful": _forget_publishing, "repeating": _commit_again}
