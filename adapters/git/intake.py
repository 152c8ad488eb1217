"""Taking commits of the user's repository into ours. Packed by git on the host, unpacked by git in the sandbox: neither
side sees the other's folders."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.errors import GitError
from adapters.git.host import HostRepository
from adapters.git.names import check_branch, check_commit
from adapters.git.repository import GIT, Repository
from adapters.git.settings import shown

BASE: Final = "refs/source/base"
_TAKEN: Final = "refs/source"
_BRANCH: Final = "longshore.branch"
PACK: Final = ("pack-objects", "--revs", "--stdout", "--thin", "--delta-base-offset", "-q")
_UNPACK: Final = 'exec git "$@" < pack'
# A repository that was cloned without its whole history says where it ends; ours ends there too.
_SHALLOW: Final = """
touch "$GIT_DIR/shallow" && sort -u "$GIT_DIR/shallow" - > "$GIT_DIR/shallow.new" \
&& mv -f "$GIT_DIR/shallow.new" "$GIT_DIR/shallow"
"""


@dataclass(frozen=True)
class TakenIn:
    """`branch` is the user's, None if the commit was named otherwise. `subject` is the commit's first line."""

    commit: str
    branch: str | None
    subject: str
    files: int


async def take_in(repository: Repository, source: Path, base: str | None) -> TakenIn:
    """The first call decides which commit it is."""
    await repository.ready()
    commit = await repository.find(BASE)
    if commit is None:
        host = await HostRepository.open(source)
        commit, branch = await host.resolve(base)
        _, object_format = await host.git("rev-parse", "--show-object-format")
        await repository.make(object_format.strip())
        await transfer(host, repository, commit, ())
        await repository.git("config", _BRANCH, branch or "")
        commit = await _decide(repository, commit)
    return await _taken(repository, commit)


async def _decide(repository: Repository, commit: str) -> str:
    """Last: whoever finds it finds everything. Somebody may have been quicker."""
    try:
        await repository.point(BASE, commit, old="")
    except GitError:
        decided = await repository.find(BASE)
        if decided is None:
            raise
        return decided
    return commit


async def _taken(repository: Repository, commit: str) -> TakenIn:
    branch = (await repository.git("config", "--default", "", "--get", _BRANCH)).stdout.rstrip("\n")
    subject = (await repository.git("show", "-s", "--no-show-signature", "--format=%s", commit)).stdout.rstrip("\n")
    counted = await repository.shell("ls-tree", 'git "$@" | wc -l', *GIT, "ls-tree", "-r", "--name-only", commit)
    return TakenIn(commit, branch or None, shown(subject)[:200], int(counted.stdout))


async def take_again(repository: Repository, source: Path, branch: str) -> str:
    """The commit where the user's branch is now."""
    host = await HostRepository.open(source)
    commit = await host.find(f"refs/heads/{check_branch(branch)}")
    if commit is None:
        raise GitError(f"{source} has no branch {shown(branch)!r} any more")
    known = await taken(repository)
    if commit not in known:
        await transfer(host, repository, commit, await host.known(known))
        await repository.point(f"{_TAKEN}/{commit}", commit)
    return commit


async def taken(repository: Repository) -> list[str]:
    """The commits that came from the user's repository, as far as each was asked for."""
    return (await repository.git("for-each-ref", "--format=%(objectname)", _TAKEN)).stdout.split()


async def transfer(host: HostRepository, repository: Repository, commit: str, known: Sequence[str]) -> None:
    """`known` both sides have, with all that comes before."""
    _, shallow = await host.git("rev-parse", "--is-shallow-repository")
    async with repository.scratch() as folder:
        with os.fdopen(os.open(folder / "pack", os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as pack:
            os.fchmod(pack.fileno(), 0o644)  # the sandbox's user reads it
            await host.git(*PACK, stdin=without(commit, known), stdout=pack)
        if shallow.strip() == "true":
            await repository.shell("shallow", _SHALLOW, stdin=await _shallow_ends(host))
        await repository.shell("index-pack", _UNPACK, *GIT, "index-pack", "--stdin", "--fix-thin", folder=folder)


def without(commit: str, known: Sequence[str]) -> bytes:
    """For `PACK`: the commit with all that comes before it, but for what the other side has."""
    return "".join(f"{line}\n" for line in (commit, *(f"^{one}" for one in known))).encode()


async def _shallow_ends(host: HostRepository) -> bytes:
    _, where = await host.git("rev-parse", "--git-path", "shallow")
    lines = (host.path / where.rstrip("\n")).read_text().split()
    return "".join(f"{check_commit(line)}\n" for line in lines).encode()
