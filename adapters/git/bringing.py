"""Bringing a commit into the tree of a task: a merge that is begun, with marks in the files that are in conflict, and
concluded by the tree's next commit.

A file in git's own folder says that it is under way, from before the first file changes until the last has: whoever
finds it does everything again. Only trees without changes are merged into, so nothing can be lost by that."""

from typing import Final

from adapters.errors import GitError
from adapters.git import trees
from adapters.git.listings import index_input
from adapters.git.merging import attempt
from adapters.git.repository import Repository
from adapters.git.settings import shown

_UNDER_WAY: Final = "longshore-bringing"
_BEGUN: Final = "MERGE_HEAD"
_WRITE: Final = 'printf "%s\\n" "$2" > "$GIT_DIR/$1.new" && mv -f "$GIT_DIR/$1.new" "$GIT_DIR/$1"'
_READ: Final = 'test ! -e "$GIT_DIR/$1" || cat "$GIT_DIR/$1"'
_DELETE: Final = 'rm -f "$GIT_DIR/$1"'


async def bring(repository: Repository, name: str, commit: str) -> tuple[str, ...]:
    """The files in conflict. GitError if the tree has changes that are not committed, or another merge is begun."""
    tip = await trees.head(repository, name)
    await trees.tidy(repository, name)
    await go_on(repository, name)
    begun = await brought(repository, name)
    if begun == commit:
        return (await attempt(repository, tip, commit)).conflicts
    if begun is not None:
        raise GitError(f"the tree {name} is in the middle of another merge: commit it first")
    if await repository.contains(tip, commit):
        return ()
    if await trees.staged(repository, name) != await repository.tree_of(tip):
        raise GitError(f"the tree {name} has changes that are not committed: commit them first")
    await repository.shell("merge", _WRITE, _UNDER_WAY, commit, tree=name)
    return await _apply(repository, name, tip, commit)


async def go_on(repository: Repository, name: str) -> None:
    """With what somebody who was killed had begun."""
    commit = (await repository.shell("merge", _READ, _UNDER_WAY, tree=name)).stdout.strip()
    if commit:
        await _apply(repository, name, await trees.head(repository, name), commit)


async def brought(repository: Repository, name: str) -> str | None:
    """What the next commit concludes the merge of."""
    return (await repository.shell("merge", _READ, _BEGUN, tree=name)).stdout.strip() or None


async def conclude(repository: Repository, name: str) -> None:
    await repository.shell("merge", _DELETE, _BEGUN, tree=name)


async def unresolved(repository: Repository, name: str, ours: str, theirs: str) -> tuple[str, ...]:
    """Files with marks of this merge in them, by what is staged. A conflict that leaves no marks (a file that one side
    has deleted, a picture) counts as resolved by whatever is there."""
    marks = ("-F", "-e", f"< {ours}", "-e", f"> {theirs}")
    said = await repository.git("grep", "--cached", "-l", "-z", *marks, "--", ".", tree=name, codes=(0, 1))
    return tuple(shown(path) for path in said.stdout.split("\0") if path)


async def _apply(repository: Repository, name: str, ours: str, theirs: str) -> tuple[str, ...]:
    merged = await attempt(repository, ours, theirs)
    await repository.git("read-tree", "--reset", "-u", merged.tree, tree=name)
    if merged.stages:
        await repository.git("update-index", "-z", "--index-info", stdin=index_input(merged), tree=name)
    await repository.shell("merge", _WRITE, _BEGUN, theirs, tree=name)
    await repository.shell("merge", _DELETE, _UNDER_WAY, tree=name)
    return merged.conflicts
