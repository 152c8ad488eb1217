"""Handing the result of a foreman's workflow over: a branch in the repository it came from, or a pull request. Called
again after a crash, it finds what it has done and does it no second time."""

from pathlib import Path

from adapters.actions import Submit
from adapters.git.workbench import Workbench
from workers.workflows.pull_requests import open_pull_request
from workers.workflows.spec import Spec


async def hand_over(
    bench: Workbench, spec: Spec, commit: str, *, onto: str, base_branch: str | None, summary: str
) -> Submit:
    """`onto`: what the commit was merged onto; `base_branch`: the branch that is moved from there, if that is the
    target. A target that somebody else has moved is handed in as such."""
    target, repository = spec.target, Path(spec.repository)
    expected = onto if target.branch == base_branch else None
    published = await bench.publish(repository, target.branch, commit, expected)
    if not published.ok and published.found is not None and expected is not None:
        found = await bench.take_again(repository, target.branch)
        why = f"{target.branch} has moved to {found[:12]} meanwhile: the work is put together again on top of it"
        return Submit({"ok": False, "moved": found, "why": why}, why)
    if not published.ok:
        gone = f"the branch {target.branch} is gone" if expected else f"somebody else has made a branch {target.branch}"
        return Submit({"ok": False, "why": gone}, gone)
    output = {"ok": True, "branch": target.branch, "commit": commit}
    if not target.pull_request:
        return Submit(output, f"branch {target.branch} is at {commit[:12]}")
    title, _, body = summary.partition("\n")
    opened = await open_pull_request(repository, target, commit, title, body.strip())
    return Submit(output | {"url": opened.url, "number": opened.number}, f"pull request {opened.url}")
