"""Putting a commit of ours on a branch of the user's repository. Never over anything: a branch moves only from where
the caller expects it, only forwards, and files that somebody has checked out change only if nobody has changed them.

Called again it says the same. A crash between its steps leaves objects that nobody names, and no more."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.errors import GitError
from adapters.git.host import HostRepository
from adapters.git.intake import PACK, taken, without
from adapters.git.names import check_branch, check_commit
from adapters.git.repository import GIT, Repository
from adapters.git.settings import shown
from adapters.uninterrupted import uninterrupted

_INTO_FILE: Final = 'git "$@" > pack'
_MERGE: Final = ("merge", "--ff-only", "--no-stat", "--no-verify-signatures", "--no-autostash", "--no-edit", "-q")


@dataclass(frozen=True)
class Published:
    """`ok`: the branch holds the commit. If not, somebody else has moved it: `found` is where it is, None if it is
    gone. Then nothing was changed."""

    ok: bool
    found: str | None


async def publish(repository: Repository, target: Path, branch: str, commit: str, expected: str | None) -> Published:
    """`expected` is where the branch is now; None: there is none. GitError, with nothing changed, if the branch is
    checked out and its files are changed, or if it could not be moved forwards."""
    host = await HostRepository.open(target)
    ref = f"refs/heads/{check_branch(branch)}"
    if (answer := await _settled(host, ref, commit, expected)) is not None:
        return answer
    await _send(repository, host, commit)
    if expected is not None and not await host.contains(commit, expected):
        raise GitError(f"the branch {branch} would lose commits: {commit} does not come after {expected}")
    folder = await _checked_out(host, ref)
    return await uninterrupted(
        _move(host, ref, commit, expected) if folder is None else _go_forward(host, folder, ref, commit, expected)
    )


async def _settled(host: HostRepository, ref: str, commit: str, expected: str | None) -> Published | None:
    """What there is to say without doing anything."""
    found = await host.find(ref)
    if found is not None and await host.contains(found, commit):
        return Published(True, found)
    return None if found == expected else Published(False, found)


async def _send(repository: Repository, host: HostRepository, commit: str) -> None:
    if await host.known([commit]):
        return
    known = await host.known(await taken(repository))
    async with repository.scratch() as folder:
        await repository.shell("pack-objects", _INTO_FILE, *GIT, *PACK, folder=folder, stdin=without(commit, known))
        with os.fdopen(os.open(folder / "pack", os.O_RDONLY | os.O_NOFOLLOW), "rb") as pack:
            # Strict: what agents have written is not to harm whoever checks it out (.gitmodules, names like .git).
            await host.git("index-pack", "--stdin", "--fix-thin", "--strict", stdin=pack, may_write=True)


async def _checked_out(host: HostRepository, ref: str) -> Path | None:
    """The folder where somebody has that branch before them."""
    _, said = await host.git("worktree", "list", "--porcelain", "-z")
    for entry in said.split("\0\0"):
        lines = dict(line.partition(" ")[::2] for line in entry.split("\0"))
        if lines.get("branch") == ref and "prunable" not in lines:
            return Path(lines["worktree"])
    return None


async def _move(host: HostRepository, ref: str, commit: str, expected: str | None) -> Published:
    try:
        await host.git("update-ref", ref, commit, expected or "", may_write=True)
    except GitError:
        answer = await _settled(host, ref, commit, expected)
        if answer is None:
            raise
        return answer
    return Published(True, commit)


async def _go_forward(host: HostRepository, folder: Path, ref: str, commit: str, expected: str | None) -> Published:
    name = ref.removeprefix("refs/heads/")
    if changed := await host.changed_files(folder, untracked=False):
        raise GitError(
            f"the branch {name} is checked out in {shown(str(folder))}, with changes that are not committed (files: "
            f"{changed}): commit or stash them, or choose another branch"
        )
    try:
        await host.git(*_MERGE, check_commit(commit), folder=folder, may_write=True)
    except GitError as error:
        answer = await _settled(host, ref, commit, expected)
        if answer is None:
            words = f"the files in {shown(str(folder))} could not be brought to {commit}: {error}"
            raise GitError(words, error.retryable) from error
        return answer
    return Published(True, commit)
