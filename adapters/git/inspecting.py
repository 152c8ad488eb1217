"""A look at the user's repository before anything begins, for the command line. It changes nothing there."""

from dataclasses import dataclass
from pathlib import Path

from adapters.git.host import HostRepository
from adapters.git.settings import shown


@dataclass(frozen=True)
class Inspected:
    """`branch` is None if the commit is not named by one. `notes` are for the person who asked."""

    path: Path
    commit: str
    branch: str | None
    branches: frozenset[str]
    subject: str
    notes: tuple[str, ...]


async def inspect(source: Path, base: str | None = None) -> Inspected:
    """GitError, with what to do, if it is no repository, has no commits, or none that `base` names."""
    host = await HostRepository.open(source)
    commit, branch = await host.resolve(base)
    _, subject = await host.git("show", "-s", "--no-show-signature", "--format=%s", commit)
    _, bare = await host.git("rev-parse", "--is-bare-repository")
    notes = []
    if bare.strip() != "true" and (changed := await host.changed_files(untracked=True)):
        files = "1 file has" if changed == 1 else f"{changed} files have"
        notes.append(f"{files} changes that are not committed: builders will not see them")
    if branch is None:
        notes.append("the commit is not named by a branch: the result needs a branch of its own")
    _, listed = await host.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads")
    branches = frozenset(listed.split())
    return Inspected(host.path, commit, branch, branches, shown(subject.rstrip("\n"))[:200], tuple(notes))
