"""What a repository holds, in words that two runs can be compared by: commits without their dates and ids."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.repositories import git


@dataclass(frozen=True)
class Commit:
    """`shape` stands for the commit with all that comes before it, whenever it was made."""

    id: str
    parents: tuple[str, ...]
    tree: str
    message: str
    shape: int


def history(repository: Path, branch: str) -> list[Commit]:
    """The oldest first."""
    said = git(repository, "log", "--topo-order", "--reverse", "-z", "--format=%H%x01%P%x01%T%x01%B", branch)
    found: dict[str, Commit] = {}
    for record in filter(None, said.split("\0")):
        commit, parents, tree, message = record.strip("\n").split("\x01")
        before = tuple(parents.split())
        shape = hash((tree, message.strip(), tuple(found[one].shape for one in before)))
        found[commit] = Commit(commit, before, tree, message.strip(), shape)
    return list(found.values())


def branches(repository: Path) -> Mapping[str, str]:
    """Where each is."""
    lines = git(repository, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads").splitlines()
    return {name: commit for name, _, commit in (line.partition(" ") for line in lines)}


def locks(*folders: Path) -> Sequence[str]:
    """Of a git that is at work, or was killed. What lies in a folder for one operation (`scratch`) nobody uses again,
    and goes with the workflow."""
    looked = ["-name", "scratch", "-prune", "-o", "-name", "*.lock", "-printf", "%P\n"]
    found = subprocess.run(["find", *map(str, folders), *looked], capture_output=True, text=True, check=True)
    return found.stdout.splitlines()
