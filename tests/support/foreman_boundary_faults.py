"""Foremen that are broken in one way each, to see that the ledger finds them out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from adapters.actions import Submit
from adapters.git import commits, publishing
from adapters.git.repository import Repository
from adapters.git.workbench import Workbench
from adapters.tool_port import ToolContext
from workers.workflows.desk import Desk


def _hasty() -> None:
    """Hands over what it has merged, and asks then."""
    merge = Desk._merge_work

    async def merge_and_publish(self: Desk, bench: Workbench, context: ToolContext) -> Submit:
        handed_in = await merge(self, bench, context)
        if handed_in.output.get("ok"):
            spec = self._spec
            await bench.publish(Path(spec.repository), spec.target.branch, handed_in.output["commit"], None)
        return handed_in

    Desk._merge_work = merge_and_publish  # type: ignore[method-assign]


def _forgetful() -> None:
    """Does not see what somebody before it has handed over."""
    settled = publishing._settled

    async def unseen(host: Any, ref: str, commit: str, expected: str | None) -> Any:
        said = await settled(host, ref, commit, expected)
        return publishing.Published(False, said.found) if said is not None else None

    vars(publishing)["_settled"] = unseen


def _repeating() -> None:
    """Makes a commit also of what is committed."""
    tree_of = Repository.tree_of

    async def another(self: Repository, commit: str) -> str:
        return "0" * len(await tree_of(self, commit))

    async def commit(*given: Any) -> Any:
        Repository.tree_of = another  # type: ignore[method-assign]
        try:
            return await make(*given)
        finally:
            Repository.tree_of = tree_of  # type: ignore[method-assign]

    make = commits.commit
    vars(commits)["commit"] = commit


FAULTS: dict[str, Callable[[], None]] = {"hasty": _hasty, "forgetful": _forgetful, "repeating": _repeating}
