"""Marks around what a workflow does outside the database: every command of git that writes, its start, the locks it may
leave, files it has laid out by half. The process is given up afterwards."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import adapters.git.checking
from adapters.git.host import HostRepository
from adapters.git.repository import Repository
from adapters.sandbox.bubblewrap import Bubblewrap
from adapters.sandbox.memory import children
from tests.support.boundaries.marks import Marks

BEFORE_GIT, DURING, AFTER_GIT = "before git: ", "while git is at work: ", "after git: "
LOCKED, HALF = "lock left by git: ", "half done by git: "
ON_HOST = "host "
MOVE = "host update-ref"
# They only look; whoever dies around them has done nothing more than before.
_READERS = frozenset(
    {"rev-parse", "merge-base", "ls-tree", "diff-tree", "for-each-ref", "show", "grep", "cat-file", "version"}
)
_at_work: ContextVar[str] = ContextVar("at_work", default="")  # the command that is being started


def mark_git(mark: Marks) -> None:
    git, shell, host = Repository.git, Repository.shell, HostRepository.git
    check, sandboxed, spawn = vars(adapters.git.checking)["run"], Bubblewrap.start, asyncio.create_subprocess_exec

    @contextmanager
    def around(word: str) -> Iterator[None]:
        mark(BEFORE_GIT + word)
        token = _at_work.set(word)
        try:
            yield
        finally:
            _at_work.reset(token)
        mark(AFTER_GIT + word)

    async def marked_git(self: Repository, *arguments: str, **more: Any) -> Any:
        word, tree = arguments[0], more.get("tree")
        if word in _READERS or "--get" in arguments:
            return await git(self, *arguments, **more)
        if word == "add":
            leave_lock(self.path / "worktrees" / str(tree) / "index", LOCKED + word, mark)
        with around(word):
            said = await git(self, *arguments, **more)
        if word == "read-tree" and tree is not None:
            await lay_by_half(lambda: git(self, *arguments, **more), self.tree_path(tree), mark)
        return said

    async def marked_shell(self: Repository, name: str, script: str, *arguments: str, **more: Any) -> Any:
        if name in _READERS or script.startswith("test "):
            return await shell(self, name, script, *arguments, **more)
        if name == "update-ref":
            leave_lock(self.path / arguments[0], LOCKED + name, mark)
        with around(name):
            return await shell(self, name, script, *arguments, **more)

    async def marked_host(self: HostRepository, *arguments: str, **more: Any) -> Any:
        if not more.get("may_write") and more.get("stdout") is None:
            return await host(self, *arguments, **more)
        with around(ON_HOST + arguments[0]):
            return await host(self, *arguments, **more)

    async def marked_check(*given: Any, **more: Any) -> Any:
        with around("check"):
            return await check(*given, **more)

    async def marked_start(self: Bubblewrap, command: Any) -> Any:
        process = await sandboxed(self, command)
        if (word := _at_work.get()) and not word.startswith(ON_HOST):
            await runs(process.grip)
            mark(DURING + word)
        return process

    async def marked_spawn(*given: Any, **more: Any) -> Any:
        process = await spawn(*given, **more)
        if (word := _at_work.get()).startswith(ON_HOST):
            mark(DURING + word)
        return process

    Repository.git = marked_git  # type: ignore[method-assign]
    Repository.shell = marked_shell  # type: ignore[method-assign]
    HostRepository.git = marked_host  # type: ignore[method-assign]
    Bubblewrap.start = marked_start  # type: ignore[method-assign]
    vars(adapters.git.checking)["run"] = marked_check
    asyncio.create_subprocess_exec = marked_spawn


async def runs(grip: Any) -> None:
    """Until the program itself is there, or has ended. A bwrap whose starter dies before that may hang for good
    (containers/bubblewrap#633): that is not ours to try here."""
    with contextlib.suppress(OSError):
        while Path(f"/proc/{grip._first}/cmdline").read_text() and not children(grip._first):
            await asyncio.sleep(0.001)


def leave_lock(locked: Path, name: str, mark: Marks) -> None:
    """As a git that was killed leaves it. Where the folder is not made yet there is none; and one that is there already
    is not ours to take away."""
    lock = locked.with_name(f"{locked.name}.lock")
    if not locked.parent.is_dir() or lock.exists():
        return
    lock.touch()
    mark(name)
    lock.unlink()


async def lay_by_half(lay_again: Callable[[], Any], folder: Path, mark: Marks) -> None:
    """Files that are laid out: one is not there yet, another is cut short. Then all of it is done again."""
    (folder / "test_calc.py").unlink(missing_ok=True)
    (folder / "calc.py").write_text("def ad")
    mark(HALF + "read-tree")
    await lay_again()
