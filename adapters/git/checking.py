"""Running the repository's own checks over a commit: in the sandbox, without a network, in files just laid out from the
commit, so that nothing a builder left lying about helps. Our repository is not to be seen from there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.errors import GitError, SandboxError
from adapters.git.repository import GIT, Repository
from adapters.sandbox.port import Command, SandboxLimits
from adapters.sandbox.running import run

OUTPUT_CHARACTERS: Final = 20_000
# The index lives for one call. Not by `git archive`, whose attributes let a commit leave out its tests.
_LAY: Final = 'mkdir .git && git "$@" && rm -rf .git'
_TOGETHER: Final = 'exec 2>&1; exec /bin/sh -c "$1"'


@dataclass(frozen=True)
class Checked:
    """`words` says how it ended; `output` is the end of all it printed."""

    ok: bool
    words: str
    output: str
    seconds: float


async def check(
    repository: Repository, commit: str, command: str, limits: SandboxLimits, readable: tuple[Path, ...]
) -> Checked:
    """GitError if it could not be tried at all."""
    async with repository.scratch() as folder:
        laying = (*GIT, "read-tree", "--reset", "-u", commit)
        await repository.shell("read-tree", _LAY, *laying, folder=folder, env={"GIT_INDEX_FILE": ".git/index"})
        argv = ("/bin/sh", "-c", _TOGETHER, "check", command)
        try:
            # Half of what is kept is the end; a character has at most four bytes.
            keep = 2 * 4 * OUTPUT_CHARACTERS
            ended = await run(repository.sandbox, Command(argv, folder, limits=limits, readable=readable), keep=keep)
        except SandboxError as error:
            raise GitError(f"the check could not be started: {error}") from error
    said = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in ended.stdout.replace("\r\n", "\n"))
    if len(said) > OUTPUT_CHARACTERS:
        said = f"[... the beginning is left out ...]\n{said[-OUTPUT_CHARACTERS:]}"
    return Checked(ended.ended == "exited" and ended.exit_code == 0, ended.words, said, ended.seconds)
