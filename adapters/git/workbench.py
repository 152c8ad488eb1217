"""The workbench of a workflow: its own repository, the trees its builders work in, and the way from and to the user's
repository. For whoever does a workflow's deterministic work; no agent calls it.

Every method may be called again after a crash, by another process too. One caller at a time for each tree; different
trees do not disturb each other."""

from pathlib import Path

from adapters.git import bringing, checking, commits, intake, merging, publishing, trees
from adapters.git.check_commands import FILES, check_command_of, test_files
from adapters.git.checking import Checked
from adapters.git.commits import Work
from adapters.git.intake import TakenIn
from adapters.git.listings import Changed
from adapters.git.merging import Merged
from adapters.git.names import check_branch, check_commit, check_tree
from adapters.git.publishing import Published
from adapters.git.repository import Repository
from adapters.removal import remove_tree
from adapters.sandbox.port import Sandbox, SandboxLimits

# Of one file, for guessing.
_TEXT_BYTES = 200_000
_TESTS_LOOKED_AT = 5


class Workbench:
    """`root` is the workflow's folder, made when it is first needed. All methods raise GitError."""

    def __init__(self, root: Path, sandbox: Sandbox) -> None:
        self._repository = Repository(root, sandbox)

    @property
    def repository(self) -> Path:
        """To be shown to agents, read-only, at this path: their trees name it."""
        return self._repository.path

    async def take_in(self, source: Path, base: str | None = None) -> TakenIn:
        """The user's repository at `base`: a branch, a tag or a commit; None: where it stands. The first call decides
        which commit that is."""
        return await intake.take_in(self._repository, source, base)

    async def take_again(self, source: Path, branch: str) -> str:
        """The commit where the user's branch is by now, for when it has moved."""
        return await intake.take_again(self._repository, source, branch)

    async def tree(self, name: str, at: str) -> Path:
        """The folder of a task, on its branch `task/<name>`: begun at that commit, if it is not there yet."""
        await trees.lay_out(self._repository, check_tree(name), check_commit(at))
        return self._repository.tree_path(name)

    async def commit(self, name: str, message: str) -> Work:
        """All files of the tree as they are; concludes a merge that `bring` has begun. Nothing new: the tip as it
        is."""
        return await commits.commit(self._repository, check_tree(name), message)

    async def bring(self, name: str, commit: str) -> tuple[str, ...]:
        """Merge a commit into a tree without changes, with marks in its files where it does not fit. The files in
        conflict; also when there are none, the tree's next `commit` concludes it."""
        return await bringing.bring(self._repository, check_tree(name), check_commit(commit))

    async def changes(self, old: str, new: str) -> tuple[Changed, ...]:
        """The files that differ between two commits."""
        return await commits.changes(self._repository, check_commit(old), check_commit(new))

    async def diff(self, old: str, new: str, limit: int) -> str:
        return await commits.diff(self._repository, check_commit(old), check_commit(new), limit)

    async def merge(self, onto: str, commit: str, message: str) -> Merged:
        """No tree is touched, and the same call gives the same commit."""
        return await merging.merge(self._repository, check_commit(onto), check_commit(commit), message)

    async def check(self, commit: str, command: str, limits: SandboxLimits, readable: tuple[Path, ...] = ()) -> Checked:
        """Run a shell command in fresh files of that commit."""
        return await checking.check(self._repository, check_commit(commit), command, limits, readable)

    async def check_command(self, commit: str) -> str | None:
        """The repository's own, guessed."""
        listed = await self._repository.git("ls-tree", "-r", "-z", "--name-only", check_commit(commit))
        paths = [path for path in listed.stdout.split("\0") if path]
        wanted = [name for name in FILES if name in paths] + test_files(paths)[:_TESTS_LOOKED_AT]
        return check_command_of(paths, {path: await self._text(commit, path) for path in wanted})

    async def _text(self, commit: str, path: str) -> str:
        return await self._repository.beginning("cat-file", "blob", f"{commit}:{path}", most=_TEXT_BYTES)

    async def keep(self, ref_name: str, commit: str) -> None:
        """So that nothing is lost, under refs/longshore/."""
        await self._repository.point(f"refs/longshore/{check_branch(ref_name)}", check_commit(commit))

    async def publish(self, target: Path, branch: str, commit: str, expected: str | None) -> Published:
        """Move a branch of the user's repository from `expected` (None: there must be none) to the commit."""
        expected = None if expected is None else check_commit(expected)
        return await publishing.publish(self._repository, target, branch, check_commit(commit), expected)

    def remove(self) -> None:
        """The workflow's whole folder. Blocking."""
        remove_tree(self._repository.root)
