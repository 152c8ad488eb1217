"""Git in a repository of the user's, on the host: to pack what is taken out of it, and to put our commits into it.

What its settings could start is off, filters by name as well, and the worker's environment is not handed on. A worker
of root does it as the repository's owner, whose files they are. A git at work here goes on when the worker is killed,
and comes to its end by itself: nobody finds the user's files half changed."""

import asyncio
import contextlib
import os
import signal
import tempfile
from pathlib import Path
from typing import IO, Any, Final

from adapters.errors import GitError
from adapters.git.names import check_revision
from adapters.git.settings import ENV, OPTIONS, check_version, failure, shown

SECONDS: Final = 600.0
_MOST_OUTPUT: Final = 4 << 20


class HostRepository:
    """`path` is the repository's top folder, or the repository itself if it is bare."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._env = dict(ENV, PATH=os.environ.get("PATH", os.defpath))

    @classmethod
    async def open(cls, path: Path) -> "HostRepository":
        """GitError, with what to do, if there is none or git is too old."""
        if not await asyncio.to_thread(path.is_dir):
            raise GitError(f"{path} is no folder: name the top folder of a git repository")
        self = cls(path)
        check_version((await self.git("version"))[1], "on this machine")
        code, said = await self.git("rev-parse", "--show-cdup", codes=(0, 128))
        if code != 0:
            raise GitError(f"{path} is no git repository: name its top folder, or make one with `git init`")
        _, inside = await self.git("rev-parse", "--is-inside-git-dir", "--is-bare-repository")
        if said.strip() or inside.split() == ["true", "false"]:
            raise GitError(f"{path} is a folder inside a git repository: name its top folder")
        await self._switch_filters_off()
        return self

    async def _switch_filters_off(self) -> None:
        """They have names of their own. Whoever writes files chooses among them by .gitattributes."""
        _, said = await self.git("config", "-z", "--name-only", "--get-regexp", r"^filter\.", codes=(0, 1))
        names = {key.partition(".")[2].rpartition(".")[0] for key in said.split("\0") if key}
        off = [(f"filter.{name}.{key}", "") for name in sorted(names) for key in ("clean", "smudge", "process")]
        off += [(f"filter.{name}.required", "false") for name in sorted(names)]
        for number, (key, value) in enumerate(off):
            self._env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        self._env["GIT_CONFIG_COUNT"] = str(len(off))

    async def git(
        self,
        *arguments: str,
        stdin: bytes | IO[bytes] = b"",
        stdout: IO[bytes] | None = None,
        codes: tuple[int, ...] = (0,),
        folder: Path | None = None,
        may_write: bool = False,
    ) -> tuple[int, str]:
        """The exit code and the beginning of what it printed. GitError if the code is none of `codes`."""
        # Through files: nobody has to read them while it runs, and a worker that ends does not cut them off.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            if isinstance(stdin, bytes):
                given.write(stdin)
                given.seek(0)
                stdin = given
            code = await self._run(arguments, folder or self.path, may_write, (stdin, stdout or out, err))
            out.seek(0)
            err.seek(0)
            printed = out.read(_MOST_OUTPUT).decode(errors="replace")
            if code not in codes:
                raise failure(arguments, code, err.read(_MOST_OUTPUT).decode(errors="replace"))
            return code, printed

    async def _run(
        self,
        arguments: tuple[str, ...],
        folder: Path,
        may_write: bool,
        streams: tuple[IO[bytes], IO[bytes], IO[bytes]],
    ) -> int:
        stdin, stdout, stderr = streams
        env = self._env | ({} if may_write else {"GIT_OPTIONAL_LOCKS": "0"})
        try:
            process = await asyncio.create_subprocess_exec(
                "git", *OPTIONS, *arguments, cwd=folder, env=env, start_new_session=True,
                stdin=stdin, stdout=stdout, stderr=stderr, **await asyncio.to_thread(self._owner),
            )  # fmt: skip
        except FileNotFoundError:
            check_version("", "on this machine")
            raise
        except OSError as error:
            raise GitError(f"git could not be started in {folder}: {error}") from error
        try:
            return await asyncio.wait_for(process.wait(), SECONDS)
        except TimeoutError as error:
            raise GitError(f"git {arguments[0]} in {folder} took longer than {SECONDS:g} s", retryable=True) from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    def _owner(self) -> dict[str, Any]:
        status = self.path.stat()
        if os.geteuid() != 0 or status.st_uid == 0:
            return {}
        return {"user": status.st_uid, "group": status.st_gid, "extra_groups": []}

    async def find(self, revision: str) -> str | None:
        code, said = await self.git("rev-parse", "-q", "--verify", f"{revision}^{{commit}}", codes=(0, 1, 128))
        return said.strip() if code == 0 else None

    async def resolve(self, base: str | None) -> tuple[str, str | None]:
        """The commit that a person means (None: where the repository stands), and the branch, if it is one."""
        if base is None:
            commit = await self.find("HEAD")
            if commit is None:
                raise GitError(f"{self.path} has no commit yet: make a first one")
            code, said = await self.git("symbolic-ref", "-q", "--short", "HEAD", codes=(0, 1))
            return commit, said.strip() if code == 0 else None
        ref = f"refs/heads/{check_revision(base)}"
        code, _ = await self.git("show-ref", "--verify", "-q", ref, codes=(0, 1, 128))
        commit = await self.find(ref if code == 0 else base)
        if commit is None:
            raise GitError(f"{self.path} has no branch, tag or commit {shown(base)!r}")
        return commit, base if code == 0 else None

    async def contains(self, commit: str, other: str) -> bool:
        """Whether `other` is there, and is `commit` or comes before it."""
        code, _ = await self.git("merge-base", "--is-ancestor", other, commit, codes=(0, 1, 128))
        return code == 0

    async def known(self, commits: list[str]) -> list[str]:
        """Those of them that are there."""
        asked = "".join(f"{commit}\n" for commit in commits).encode()
        _, said = await self.git("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked)
        return [line.split()[0] for line in said.splitlines() if line.endswith(" commit")]

    async def changed_files(self, folder: Path | None = None, *, untracked: bool) -> int:
        """How many files differ from the last commit."""
        which = f"--untracked-files={'normal' if untracked else 'no'}"
        how = ("--porcelain", "-z", "--no-renames", "--ignore-submodules=all", which)
        _, said = await self.git("status", *how, folder=folder)
        return said.count("\0")
