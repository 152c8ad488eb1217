"""Making a commit of what an agent has left in its tree, and saying what differs. The commit is ours, not the agent's:
no hook, no message template and no signature has a part in it."""

from dataclasses import dataclass
from typing import Final

from adapters.errors import GitError
from adapters.git import bringing, trees
from adapters.git.listings import Changed, read_blobs, read_changes
from adapters.git.repository import Repository
from adapters.git.settings import message_of, shown

# What forges refuse; nobody reviews more either.
LARGEST_FILE_BYTES: Final = 100 << 20
_PLAIN: Final = ("--no-ext-diff", "--no-textconv", "--no-color")


@dataclass(frozen=True)
class Work:
    """A task's work so far. `changes` are the task's own, since it began or since what others did was last brought in.
    `unresolved` are files with marks of a conflict in them: then nothing was committed, and `commit` is as before."""

    commit: str
    tree: str
    changes: tuple[Changed, ...]
    unresolved: tuple[str, ...] = ()


async def commit(repository: Repository, name: str, message: str) -> Work:
    tip = await trees.head(repository, name)
    await trees.tidy(repository, name)
    await bringing.go_on(repository, name)
    tree = await trees.staged(repository, name)
    brought = await bringing.brought(repository, name)
    if brought is not None and (unresolved := await bringing.unresolved(repository, name, tip, brought)):
        return Work(tip, tree, await _own_changes(repository, name, tip), unresolved)
    merged = () if brought is None or await repository.contains(tip, brought) else ("-p", brought)
    if merged or tree != await repository.tree_of(tip):
        await _check_sizes(repository, tip, tree)
        tip = await _make(repository, name, tip, ("commit-tree", tree, "-p", tip, *merged), message)
    if brought is not None:
        await repository.point(trees.base_of(name), brought)
        await bringing.conclude(repository, name)
    return Work(tip, tree, await _own_changes(repository, name, tip))


async def changes(repository: Repository, old: str, new: str) -> tuple[Changed, ...]:
    said = await repository.git("diff-tree", "-r", "-z", "--numstat", "--no-renames", *_PLAIN, old, new)
    return read_changes(said.stdout)


async def diff(repository: Repository, old: str, new: str, limit: int) -> str:
    """At most about `limit` characters, with a word where it is cut, and nothing that is no text."""
    for commit in (old, new):
        if await repository.find(commit) is None:
            raise GitError(f"the repository has no commit {commit}")
    arguments = ("diff-tree", "-p", "-r", "-M", *_PLAIN, old, new)
    said = await repository.beginning(*arguments, most=limit * 4)  # bytes of a character
    text = "".join(c if c.isprintable() or c in "\n\t\r" else "\ufffd" for c in said)
    return text if len(text) <= limit else f"{text[:limit]}\n[... the diff is longer, and cut here ...]\n"


async def _make(repository: Repository, name: str, tip: str, arguments: tuple[str, ...], message: str) -> str:
    made = await repository.git(*arguments, "-F", "-", stdin=message_of(message, "Work of an agent"))
    await repository.point(trees.branch_of(name), made.stdout.strip(), old=tip)
    return made.stdout.strip()


async def _own_changes(repository: Repository, name: str, tip: str) -> tuple[Changed, ...]:
    return await changes(repository, await repository.find(trees.base_of(name)) or tip, tip)


async def _check_sizes(repository: Repository, tip: str, tree: str) -> None:
    raw = ("-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--diff-filter=d")
    blobs = read_blobs((await repository.git("diff-tree", *raw, tip, tree)).stdout)
    asked = "".join(f"{blob.id}\n" for blob in blobs).encode()
    sizes = (await repository.git("cat-file", "--batch-check=%(objectsize)", stdin=asked)).stdout.split()
    for blob, size in zip(blobs, map(int, sizes), strict=True):
        if size > LARGEST_FILE_BYTES:
            raise GitError(
                f"{shown(blob.path)} has {size >> 20} MB, more than the {LARGEST_FILE_BYTES >> 20} MB that can be "
                "committed: delete it, or list it in .gitignore"
            )
