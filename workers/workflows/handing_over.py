"""Handing the result of a foreman's workflow over: a branch in the repository it came from, or a pull request. Called
again after a crash, it finds what it has done and does it no second time."""

from pathlib import Path

from adapters.git.workbench import Workbench

from adapters.actions import Submit
from workers.workflows.spec import Spec


async def hand_over(bench: Workbench, spec: Spec, commit: str, onto: str, summary: str) -> Submit:
    target = spec.target
    repository = Path(spec.repository)
    is_base = target.branch == await bench.base_branch()
    published = await bench.publish(repository, target.branch, commit, onto if is_base else None)
    if published.moved:
        found = await bench.take_again(repository, target.branch)
        why = f"{target.branch} has moved to {found[:12]} meanwhile: the work is put together again on top of it"
        return Submit({"ok": False, "moved": found, "why": why}, why)
    output = {"ok": True, "branch": target.branch, "commit": commit}
    return Submit(output, f"branch {target.branch} is at {commit[:12]}")
