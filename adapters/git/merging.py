"""Merging commits as objects only: no tree is touched, and the same commits give the same merge, so that whoever asks
again after a crash gets the commit that is there."""

from dataclasses import dataclass
from typing import Final

from adapters.git.listings import Attempt, read_attempt
from adapters.git.repository import Repository
from adapters.git.settings import message_of

_DATE: Final = ("show", "-s", "--no-show-signature", "--format=%ct")


@dataclass(frozen=True)
class Merged:
    """`tree` is the id of all its files. With conflicts, which are files, there is neither."""

    commit: str = ""
    tree: str = ""
    conflicts: tuple[str, ...] = ()


async def merge(repository: Repository, onto: str, commit: str, message: str) -> Merged:
    """Also where `commit` comes after `onto` a merge is made: its message is what people read. What `onto` holds
    already needs none."""
    if await repository.contains(onto, commit):
        return Merged(onto, await repository.tree_of(onto))
    merged = await attempt(repository, onto, commit)
    if merged.conflicts:
        return Merged(conflicts=merged.conflicts)
    # The clock would make it another commit each time.
    date = max(int(word) for word in (await repository.git(*_DATE, onto, commit)).stdout.split())
    dates = {"GIT_AUTHOR_DATE": f"{date} +0000", "GIT_COMMITTER_DATE": f"{date} +0000"}
    arguments = ("commit-tree", merged.tree, "-p", onto, "-p", commit, "-F", "-")
    made = await repository.git(*arguments, stdin=message_of(message, f"Merge {commit}"), env=dates)
    return Merged(made.stdout.strip(), merged.tree)


async def attempt(repository: Repository, ours: str, theirs: str) -> Attempt:
    """The marks in files name the commits, so that they can be told from any other text."""
    arguments = ("merge-tree", "--write-tree", "-z", "--no-messages", ours, theirs)
    return read_attempt((await repository.git(*arguments, codes=(0, 1))).stdout)
