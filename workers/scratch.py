"""Scratch folders: a replay works on a copy of its agent's folder, as it is when the replay begins, so that nothing it
does to files is done to the agent's own. Removed with the replay.

The agent may be at work in its folder meanwhile: what is copied is opened without following links, and looked at
then."""

import asyncio
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import select

from adapters.errors import WorkspaceError
from adapters.removal import remove_tree
from models.base import new_id
from models.database import Database
from models.sessions import Session

FOLDER: Final = ".replays"  # beside the workspaces; no agent's folder begins with a dot
MAX_BYTES: Final = 200 << 20
MAX_FILES: Final = 20_000
MAX_DEPTH: Final = 64
_CHUNK: Final = 1 << 20
_LONGEST_SECONDS: Final = 3600.0  # for copying one
_INTO: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


@dataclass
class _Left:
    """How much more may be copied."""

    files: int = MAX_FILES
    bytes: int = MAX_BYTES

    def take(self, *, files: int = 0, bytes: int = 0) -> None:
        self.files -= files
        self.bytes -= bytes
        if self.files < 0 or self.bytes < 0:
            raise WorkspaceError(
                f"a replay works on a copy of the agent's folder, and this one is too large to copy (more than "
                f"{MAX_FILES:,} files or {MAX_BYTES >> 20} MB): tidy it up, or replay a smaller agent's session"
            )


def scratch_of(root: Path, session_id: str) -> Path:
    return root / FOLDER / session_id


def check_size(root: Path, folder: str) -> None:
    """WorkspaceError: the folder is too large to be copied. One that is not on this machine, its workers look at."""
    left = _Left()
    with suppress(FileNotFoundError):
        for _, folders, files, fd in os.fwalk(root / folder, follow_symlinks=False):
            left.take(files=len(folders) + len(files))
            for name in files:
                with suppress(FileNotFoundError):  # the agent may be at work
                    left.take(bytes=os.stat(name, dir_fd=fd, follow_symlinks=False).st_size)


def make_scratch(root: Path, folder: str, session_id: str) -> Path:
    """The replay's folder, made when it is first asked for. Blocking."""
    scratch = scratch_of(root, session_id)
    if scratch.is_dir():
        return scratch
    scratch.parent.mkdir(parents=True, exist_ok=True)
    scratch.parent.chmod(0o711)  # to be entered by the sandbox's user, not to be looked into
    draft = scratch.parent / f".{new_id()}"
    try:
        draft.mkdir()
        source, target = os.open(root / folder, _INTO), os.open(draft, _INTO)
        try:
            _copy(source, target, _Left(), MAX_DEPTH)
            _like(target, os.fstat(source))
        finally:
            os.close(source)
            os.close(target)
        os.rename(draft, scratch)
    except OSError:
        if not scratch.is_dir():  # else another worker was quicker
            raise
    finally:
        if draft.exists():
            remove_tree(draft)
    return scratch


def _copy(source: int, target: int, left: _Left, depth: int) -> None:
    with os.scandir(source) as entries:
        names = [entry.name for entry in entries]
    left.take(files=len(names))
    for name in names:
        with suppress(FileNotFoundError, PermissionError):  # gone meanwhile, or closed to this process too
            status = os.stat(name, dir_fd=source, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                _copy_folder(source, target, name, left, depth)
            elif stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            elif stat.S_ISREG(status.st_mode):
                _copy_file(source, target, name, left)


def _copy_folder(source: int, target: int, name: str, left: _Left, depth: int) -> None:
    if depth == 0:
        left.take(files=MAX_FILES + 1)
    os.mkdir(name, 0o700, dir_fd=target)
    inner, copy = os.open(name, _INTO, dir_fd=source), os.open(name, _INTO, dir_fd=target)
    try:
        _copy(inner, copy, left, depth - 1)
        _like(copy, os.fstat(inner))
    finally:
        os.close(inner)
        os.close(copy)


def _copy_file(source: int, target: int, name: str, left: _Left) -> None:
    inner, copy = os.open(name, _READ, dir_fd=source), os.open(name, _WRITE, 0o600, dir_fd=target)
    try:
        status = os.fstat(inner)
        # Another name of a file may lie anywhere.
        while stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and (read := os.read(inner, _CHUNK)):
            left.take(bytes=len(read))
            os.write(copy, read)
        _like(copy, status)
    finally:
        os.close(inner)
        os.close(copy)


def _like(fd: int, status: os.stat_result) -> None:
    os.fchmod(fd, status.st_mode & 0o777)
    if os.geteuid() == 0:
        os.fchown(fd, status.st_uid, status.st_gid)


async def remove_scratch(root: Path, session_id: str) -> None:
    """If it is on this machine."""
    scratch = scratch_of(root, session_id)
    if await asyncio.to_thread(scratch.is_dir):
        await asyncio.to_thread(remove_tree, scratch)


async def tidy_scratch(db: Database, root: Path) -> None:
    """Remove the folders of replays that are over, and what a crash has left behind."""
    for name in await asyncio.to_thread(_names, root / FOLDER):
        query = select(Session.status).where(Session.id == name)
        if await db.read(lambda conn, query=query: conn.scalar(query)) != "active":  # type: ignore[misc]
            await asyncio.to_thread(remove_tree, root / FOLDER / name)


def _names(folder: Path) -> list[str]:
    """Without what is just being copied."""
    before = time.time() - _LONGEST_SECONDS
    found = folder.iterdir() if folder.is_dir() else ()
    return [path.name for path in found if not path.name.startswith(".") or path.stat().st_mtime < before]
