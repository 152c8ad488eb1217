"""The trees of tasks: each a worktree of the repository with a branch of its own. Agents write the files in it, and may
write anything; git is never led by what it finds there.

A file in git's own folder says that a tree is whole. It is written last: a tree without one is begun again."""

import asyncio
import os
from pathlib import Path
from typing import Final

from adapters.errors import GitError
from adapters.git.repository import Repository

_WHOLE: Final = "longshore-whole"
_IS_WHOLE: Final = 'test -e "$GIT_DIR/$1"'
# $1: the tree's name, $2: its folder as it is called outside.
_BEGIN: Final = """
find . -mindepth 1 -delete && rm -rf "$GIT_DIR" && mkdir -p "$GIT_DIR" \
&& echo ../.. > "$GIT_DIR/commondir" && echo "ref: refs/heads/task/$1" > "$GIT_DIR/HEAD" \
&& printf '%s/.git\\n' "$2" > "$GIT_DIR/gitdir"
"""
# $1: the tree's name, $2: the repository as it is called outside, where agents find it. Locks are of a git that was
# killed: nobody else is at this tree. Other repositories in the tree bring settings of their own, which git would
# follow when it looks into them; what is no file, link or folder it cannot keep; what is closed it cannot read.
_TIDY: Final = """
rm -f "$GIT_DIR"/*.lock "$REPOSITORY/refs/heads/task/$1.lock"
find . -type d ! -perm -700 -exec chmod u+rwx {} \\;
find . -mindepth 1 -path ./.git -prune -o -type f ! -perm -400 -exec chmod u+r {} +
find . -mindepth 2 -name .git -prune -exec rm -rf {} +
find . ! -type f ! -type d ! -type l -exec rm -f {} +
rm -rf .git && printf 'gitdir: %s/worktrees/%s\\n' "$2" "$1" > .git
"""


def branch_of(name: str) -> str:
    return f"refs/heads/task/{name}"


def base_of(name: str) -> str:
    """The ref of what a task's own changes are told from."""
    return f"refs/bases/{name}"


async def lay_out(repository: Repository, name: str, at: str) -> None:
    """Make the tree at that commit, if there is none. A folder that was lost is laid out as it was last committed."""
    folder = repository.tree_path(name)
    await repository.ready()
    lost = await asyncio.to_thread(_make, folder)
    tip = await repository.find(branch_of(name))
    if tip is None:
        if await repository.find(at) is None:
            raise GitError(f"the repository has no commit {at}")
        await repository.point(base_of(name), at)
        await repository.point(branch_of(name), at, old="")
    whole = await repository.shell("worktree", _IS_WHOLE, _WHOLE, tree=name, codes=(0, 1))
    if whole.exit_code == 0 and not lost:
        await tidy(repository, name)
        return
    await repository.shell("worktree", _BEGIN, name, str(folder), tree=name)
    await tidy(repository, name)
    await repository.git("read-tree", "--reset", "-u", tip or at, tree=name)
    await repository.shell("worktree", ': > "$GIT_DIR/$1"', _WHOLE, tree=name)


def _make(folder: Path) -> bool:
    """Whether there is nothing in it."""
    folder.mkdir(mode=0o755, exist_ok=True)
    _enter(folder)
    return not os.listdir(folder)


def _enter(folder: Path) -> None:
    """An agent may have closed it, and then nothing could begin there."""
    try:
        folder.chmod(0o755)
    except FileNotFoundError as error:
        raise GitError(f"the folder of the tree {folder.name} is not on this machine") from error


async def tidy(repository: Repository, name: str) -> None:
    """Before git looks at what an agent has left."""
    await asyncio.to_thread(_enter, repository.tree_path(name))
    await repository.shell("worktree", _TIDY, name, str(repository.path), tree=name)


async def head(repository: Repository, name: str) -> str:
    tip = await repository.find(branch_of(name))
    if tip is None:
        raise GitError(f"there is no tree {name}")
    return tip


async def staged(repository: Repository, name: str) -> str:
    """All files of the tree as git would commit them: the id of that."""
    await repository.git("add", "-A", "--", ".", tree=name)
    return (await repository.git("write-tree", tree=name)).stdout.strip()
