"""Repositories of a user, made by real git, and a sandbox that dies when it is told to."""

import os
import subprocess
from pathlib import Path
from typing import Any

from adapters.sandbox.port import Command, Probe, Sandbox, SandboxProcess
from adapters.sandbox.process import Supervised


def git(folder: Path, *words: str) -> str:
    """What git says there, with nobody's settings."""
    who = {f"GIT_{role}_{part}": "ada@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, **who}
    done = subprocess.run(["git", "-C", str(folder), *words], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class UserRepository:
    """A folder in which somebody works with git, as that user if the tests are root's."""

    def __init__(self, path: Path, owner: int | None = None, bare: bool = False, object_format: str = "sha1") -> None:
        self.path = path
        self.owner = owner if os.geteuid() == 0 else None
        path.mkdir(parents=True, exist_ok=True)
        if self.owner is not None:
            os.chown(path, self.owner, self.owner)
        self.git("init", "-q", "-b", "main", f"--object-format={object_format}", *(["--bare"] if bare else []))

    def git(self, *arguments: str, stdin: bytes = b"", folder: Path | None = None) -> str:
        env = {"PATH": os.defpath, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        names = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "safe.directory=*")
        who: dict[str, Any] = {} if self.owner is None else {"user": self.owner, "group": self.owner}
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            ["git", *names, "-c", "protocol.file.allow=always", *arguments],
            cwd=folder or self.path, env=env, input=stdin, capture_output=True, check=False, **who,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        said: str = done.stdout.decode(errors="surrogateescape")
        return said.strip()

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if self.owner is not None:
                for part in (path, *path.relative_to(self.path).parents):
                    os.chown(self.path / part, self.owner, self.owner)

    def commit(self, files: dict[str, str], message: str = "a change") -> str:
        self.write(files)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head()

    def head(self, revision: str = "HEAD") -> str:
        return self.git("rev-parse", revision)


class Killed(BaseException):
    """The process is gone: nobody catches this."""


class DyingSandbox:
    """Of the programs it starts, the one with number `at` is killed as soon as it runs, or never begins (`early`), and
    so is whoever asked for it."""

    def __init__(self, inner: Sandbox, at: int, early: bool) -> None:
        self._inner = inner
        self._left = at
        self._early = early
        self.name = inner.name
        self.confines = inner.confines

    def place(self, command: Command) -> tuple[str, str]:
        return self._inner.place(command)

    def ports(self, count: int) -> tuple[int, ...]:
        return self._inner.ports(count)

    async def probe(self) -> Probe:
        return await self._inner.probe()

    async def start(self, command: Command) -> SandboxProcess:
        self._left -= 1
        if self._left == 0 and self._early:
            raise Killed
        process = await self._inner.start(command)
        if self._left == 0:
            assert isinstance(process, Supervised)
            await process.end()
            raise Killed
        return process
