"""A workflow's own repository: a bare one that only our git writes, in the sandbox, and the folders around it.

Git never finds a repository by itself here. It is told where ours is, because the `.git` in a tree is the agent's to
replace. Everything below is made by git in the sandbox, so that it belongs to the sandbox's user."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from adapters.errors import GitError, SandboxError
from adapters.git.settings import ENV, OPTIONS, check_version, failure
from adapters.removal import remove_tree
from adapters.sandbox.port import Command, Sandbox, SandboxLimits
from adapters.sandbox.running import Finished, run
from adapters.uninterrupted import uninterrupted

LIMITS: Final = SandboxLimits(
    seconds=600.0, memory_bytes=2 << 30, output_bytes=16 << 20, processes=128, file_bytes=8 << 30, disk_bytes=32 << 30
)
WHO: Final = ("Longshore", "longshore@localhost")
# What tools leave behind, and our own runtime puts beside the files; kept out of every commit.
EXCLUDED: Final = (
    *("__pycache__/", "*.pyc", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/", ".coverage"),
    *(".venv/", "/venv/", ".tox/", ".nox/", "*.egg-info/", "node_modules/", ".npm/", ".cache/", ".DS_Store"),
    *("/conversations/", "/downloads/"),
)
_ENV: Final = ENV | {
    "GIT_AUTHOR_NAME": WHO[0],
    "GIT_AUTHOR_EMAIL": WHO[1],
    "GIT_COMMITTER_NAME": WHO[0],
    "GIT_COMMITTER_EMAIL": WHO[1],
}
# What stands between `git` and its command. What the rows say of a commit must not be gone after a power cut.
GIT: Final = (*OPTIONS, "-c", "core.fsync=all", "-c", "core.fsyncMethod=batch")
_MAKE: Final = """
rm -f "$GIT_DIR/config.lock" "$GIT_DIR/HEAD.lock"
git "$@" && mkdir -p "$GIT_DIR/info" \
&& cat > "$GIT_DIR/info/exclude.new" && mv -f "$GIT_DIR/info/exclude.new" "$GIT_DIR/info/exclude"
"""
_NO_PROGRAM: Final = 127


class Repository:
    """`root` is the workflow's folder. Calls may come from several processes at once, for one tree from one only."""

    def __init__(self, root: Path, sandbox: Sandbox) -> None:
        self.root = root.absolute()
        self.path = self.root / "repo.git"
        self.sandbox = sandbox
        self._ready = False

    def tree_path(self, name: str) -> Path:
        return self.root / "trees" / name

    async def ready(self) -> None:
        """The folders, and a git that is new enough. Asked for by every operation, looked at once."""
        if not self._ready:
            await asyncio.to_thread(self._make_folders)
            finished = await self._run(("git", "version"), None, None, b"", {})
            check_version(finished.stdout, "in the sandbox")
            self._ready = True

    def _make_folders(self) -> None:
        for folder in (self.root.parent, self.root, self.root / "trees", self.root / "scratch"):
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o711)  # to be entered by the sandbox's user, not to be looked into
        for folder in (self.path, self.root / "empty"):
            folder.mkdir(mode=0o755, exist_ok=True)

    async def make(self, object_format: str) -> None:
        """Begin the repository, or find it begun."""
        await self.ready()
        arguments = ("init", "-q", "--bare", "--template=", "--initial-branch=none", f"--object-format={object_format}")
        excluded = "".join(f"{pattern}\n" for pattern in EXCLUDED)
        await self.shell("init", _MAKE, *GIT, *arguments, stdin=excluded.encode())

    @asynccontextmanager
    async def scratch(self) -> AsyncIterator[Path]:
        """A folder for one operation. What a killed worker leaves of it goes with the workflow."""
        await self.ready()
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self.root / "scratch"))
        try:
            yield folder
        finally:
            await uninterrupted(asyncio.to_thread(remove_tree, folder))

    async def git(
        self,
        *arguments: str,
        tree: str | None = None,
        folder: Path | None = None,
        stdin: bytes = b"",
        codes: tuple[int, ...] = (0,),
        env: dict[str, str] | None = None,
    ) -> Finished:
        """Over a tree, over another folder, or over the repository alone. GitError if it ends with none of `codes`."""
        await self.ready()
        return self._judged(
            arguments, codes, await self._run(("git", *GIT, *arguments), tree, folder, stdin, env or {})
        )

    async def shell(
        self,
        name: str,
        script: str,
        *arguments: str,
        tree: str | None = None,
        folder: Path | None = None,
        stdin: bytes = b"",
        codes: tuple[int, ...] = (0,),
        env: dict[str, str] | None = None,
    ) -> Finished:
        """A script of ours, for what git alone does not do; GIT_DIR and REPOSITORY say where things are, and `name`
        what it is about if it fails."""
        await self.ready()
        argv = ("/bin/sh", "-c", script, "longshore-git", *arguments)
        return self._judged((name,), codes, await self._run(argv, tree, folder, stdin, env or {}))

    async def beginning(self, *arguments: str, most: int) -> str:
        """What git prints over the repository, up to so many bytes of it."""
        script = 'most=$1; shift; git "$@" | head -c "$most"'
        return (await self.shell(arguments[0], script, str(most), *GIT, *arguments)).stdout

    async def find(self, revision: str) -> str | None:
        """The commit of that name, or None."""
        said = await self.git("rev-parse", "-q", "--verify", f"{revision}^{{commit}}", codes=(0, 1, 128))
        return said.stdout.strip() if said.exit_code == 0 else None

    async def contains(self, commit: str, other: str) -> bool:
        """Whether `other` is `commit` or comes before it."""
        said = await self.git("merge-base", "--is-ancestor", other, commit, codes=(0, 1))
        return said.exit_code == 0

    async def tree_of(self, commit: str) -> str:
        """The id of all its files."""
        return (await self.git("rev-parse", "--verify", f"{commit}^{{tree}}")).stdout.strip()

    async def point(self, ref: str, commit: str, old: str | None = None) -> None:
        """Move a ref, from `old` if that is given, from nothing if that is empty. There is one caller per ref: a lock
        on it is of a git that was killed."""
        words = [commit] if old is None else [commit, old]
        script = 'rm -f "$GIT_DIR/$1.lock"; shift; exec git "$@"'
        await self.shell("update-ref", script, ref, *GIT, "update-ref", ref, *words)

    async def _run(
        self, argv: tuple[str, ...], tree: str | None, folder: Path | None, stdin: bytes, env: dict[str, str]
    ) -> Finished:
        workspace = self.tree_path(tree) if tree is not None else folder or self.root / "empty"
        command = Command(argv, workspace, home=self.path, limits=LIMITS)
        seen, home = self.sandbox.place(command)
        where = {"REPOSITORY": home, "GIT_DIR": f"{home}/worktrees/{tree}" if tree is not None else home}
        if workspace != self.root / "empty":
            where["GIT_WORK_TREE"] = seen
        try:
            # Twice what may be printed: nothing is left out of the middle.
            return await run(
                self.sandbox, replace(command, env=_ENV | where | env), stdin, keep=2 * LIMITS.output_bytes + 2
            )
        except SandboxError as error:
            raise GitError(f"git could not be started in the sandbox: {error}") from error

    def _judged(self, arguments: tuple[str, ...], codes: tuple[int, ...], finished: Finished) -> Finished:
        if finished.ended != "exited":
            raise GitError(f"git {arguments[0]}: {finished.words}", retryable=finished.ended in ("time", "memory"))
        if finished.exit_code == _NO_PROGRAM:
            check_version("", "in the sandbox")
        if finished.exit_code not in codes:
            raise failure(arguments, finished.exit_code, finished.stderr)
        return finished
