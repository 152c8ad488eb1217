"""All access to files in an agent's folder from outside the sandbox. The agent writes there, so every path, link and
race in it is hostile: nothing here can be made to touch what lies elsewhere.

No path is checked and then opened. It is opened so that it cannot leave (`adapters/openat2.py`), and what was opened is
looked at. Programs in the sandbox run as another user at the same time; what they do meanwhile may fail a call here,
but not lead it astray."""

import errno
import io
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from adapters.errors import WorkspaceError
from adapters.openat2 import open_beneath, rename_new
from adapters.workspace_files import (
    FOLDER_FLAGS,
    MAKE_FLAGS,
    READ_FLAGS,
    Entry,
    Version,
    check_plain,
    check_same,
    copy_up_to,
    entry_of,
    fill,
    is_unlinked,
    make_folders,
    open_folder,
    permissions_after,
    read_at,
    scan,
    status_of,
    version_of,
)
from adapters.workspace_paths import DRAFT, explained, parts_of

MAX_WRITTEN: Final = 20 << 20
MAX_DEPTH: Final = 64
RESERVE: Final = 256 << 20  # bytes of disk that agents leave to the rest of the machine ...
RESERVE_SHARE: Final = 0.02  # ... or this part of a small one


class Workspace:
    """One agent's folder. Paths are relative to it (`notes/a.md`, also written `/workspace/notes/a.md`). What is wrong
    with a path, or with the file, is a WorkspaceError whose text is for the agent. Blocking: call it in a thread."""

    def __init__(
        self,
        root: Path,
        *,
        max_written: int = MAX_WRITTEN,
        statvfs: Callable[[int], os.statvfs_result] = os.fstatvfs,
    ) -> None:
        self.root = root
        self._max_written = max_written
        self._statvfs = statvfs

    def read(self, path: str, *, limit: int, offset: int = 0) -> bytes:
        """At most `limit` bytes of a plain file."""
        return self.read_version(path, limit=limit, offset=offset)[0]

    def read_version(self, path: str, *, limit: int, offset: int = 0) -> tuple[bytes, Version]:
        """The same, and what `write` needs to know that it replaces just this."""
        name = "/".join(parts_of(path, file=True))
        with explained(path):
            fd, status = self._open_plain(path, name)
            try:
                return read_at(fd, limit, offset), version_of(status)
            finally:
                os.close(fd)

    def text(self, path: str, *, limit: int) -> str | None:
        """The beginning of a text file, for whom it is the same whether there is none or it cannot be used."""
        try:
            return self.read(path, limit=limit).decode("utf-8", "replace")
        except WorkspaceError:
            return None

    @contextmanager
    def open(self, path: str) -> Iterator[io.BufferedReader]:
        """A plain file, to read as much of it as is needed."""
        with self._opened(path) as (fd, _), explained(path), os.fdopen(fd, "rb", closefd=False) as file:
            yield file

    def size(self, path: str) -> int:
        with self._opened(path) as (_, status):
            return status.st_size

    def entry(self, path: str) -> Entry:
        """What has that name: a link is a link."""
        parts = parts_of(path)
        with explained(path), self._folder(parts[:-1]) as folder:
            return entry_of(
                "/".join(parts) or ".", os.stat(parts[-1] if parts else ".", dir_fd=folder, follow_symlinks=False)
            )

    def write(self, path: str, data: bytes, *, replacing: Version | None = None) -> None:
        """Make or replace a plain file, whole or not at all; folders on the way are made. A link of that name is
        replaced, not followed. With `replacing`, nothing is written over anything but that."""
        self._write(path, data, replacing, new=False)

    def add(self, path: str, data: bytes) -> bool:
        """Like `write`, but never over another: False if something already has that name."""
        return self._write(path, data, None, new=True)

    def remove(self, path: str) -> None:
        """Remove a file, a link (not what it leads to) or anything else that is not a folder."""
        parts = parts_of(path, file=True)
        with explained(path), self._folder(parts[:-1]) as folder:
            if stat.S_ISDIR(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                raise IsADirectoryError(errno.EISDIR, "", path)
            os.unlink(parts[-1], dir_fd=folder)

    def copy_out(self, path: str, target: int | Path, limit: int) -> int:
        """Copy a plain file to a descriptor, or to a new file that agents cannot reach; returns its size in bytes. One
        of more than `limit` bytes, also one that grows meanwhile, is refused and leaves no new file."""
        with self._opened(path) as (source, status):
            if status.st_size > limit:
                raise WorkspaceError(f"{path!r} has {status.st_size:,} bytes; at most {limit:,} can be sent")
            if isinstance(target, int):
                return copy_up_to(source, target, path, limit)
            made = os.open(target, MAKE_FLAGS, 0o600)
            try:
                return copy_up_to(source, made, path, limit)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
            finally:
                os.close(made)

    def entries(self, path: str = ".") -> list[Entry]:
        """What lies in a folder, by name."""
        parts = parts_of(path)
        with explained(path), self._folder() as root:
            return scan(root, "/".join(parts))

    def walk(self, path: str = ".", *, limit: int = 10_000) -> Iterator[Entry]:
        """All files and folders below, depth first, by name; ends quietly after `limit`. Links are not followed;
        folders that vanish or are more than MAX_DEPTH deep are left out."""
        parts = parts_of(path)
        with explained(path), self._folder() as root:
            waiting = scan(root, "/".join(parts))[::-1]
            while waiting and limit > 0:
                limit -= 1
                yield (entry := waiting.pop())
                if entry.kind == "folder" and entry.path.count("/") - len(parts) < MAX_DEPTH - 1:
                    with suppress(OSError):
                        waiting += scan(root, entry.path, os.O_NOFOLLOW)[::-1]

    @contextmanager
    def _folder(self, parts: list[str] | None = None, *, make: bool = False) -> Iterator[int]:
        """The workspace itself, or a folder beneath it."""
        if make:
            self.root.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.root, FOLDER_FLAGS)
        try:
            if parts:
                root = fd
                fd = make_folders(root, parts, self._owner()) if make else open_folder(root, parts)
                os.close(root)
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
        """A plain file with no other name, open for reading."""
        name = "/".join(parts_of(path, file=True))
        with explained(path):
            fd, status = self._open_plain(path, name)
        try:
            yield fd, status
        finally:
            os.close(fd)

    def _open_plain(self, path: str, name: str) -> tuple[int, os.stat_result]:
        root = os.open(self.root, FOLDER_FLAGS)
        try:
            for _ in range(8):
                fd = open_beneath(root, name, READ_FLAGS)
                try:
                    status = os.fstat(fd)
                    check_plain(path, status)
                    # One name is left: it must be the one that was opened. Else this may be a file from elsewhere,
                    # whose name in here was removed just now so that it looks like a file of ours.
                    if status.st_nlink == 0 or not is_unlinked(fd):
                        return fd, status
                except BaseException:
                    os.close(fd)
                    raise
                os.close(fd)
        finally:
            os.close(root)
        raise BlockingIOError(errno.EAGAIN, "", path)

    def _write(self, path: str, data: bytes, replacing: Version | None, *, new: bool) -> bool:
        if len(data) > self._max_written:
            raise WorkspaceError(
                f"{path!r} was not written: it would have {len(data):,} bytes, and at most {self._max_written:,} can "
                "be written at once; write less, or several files"
            )
        *parents, name = parts_of(path, file=True)
        with explained(path), self._folder(parents, make=True) as folder:
            old = status_of(folder, name)
            if old is not None and new:
                return False
            if old is not None and not stat.S_ISLNK(old.st_mode):
                check_plain(path, old)
            self._check_room(path, folder, len(data))
            draft = f"{DRAFT}{secrets.token_hex(8)}"
            fd = os.open(draft, MAKE_FLAGS, 0o600, dir_fd=folder)
            try:
                fill(fd, data, self._owner(), permissions_after(old))
                if new:
                    rename_new(draft, name, folder)
                else:
                    if replacing is not None:
                        check_same(path, replacing, status_of(folder, name))
                    os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException as error:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=folder)
                if new and isinstance(error, FileExistsError):
                    return False
                raise
            finally:
                os.close(fd)
        return True

    def _owner(self) -> tuple[int, int] | None:
        """Who shall own what is made here: sandboxed programs run as the owner of the workspace, and only root can give
        files away."""
        if os.geteuid() != 0:
            return None
        status = os.stat(self.root)
        return status.st_uid, status.st_gid

    def _check_room(self, path: str, folder: int, size: int) -> None:
        disk = self._statvfs(folder)
        free = disk.f_bavail * disk.f_frsize - size
        if free < min(RESERVE, int(disk.f_blocks * disk.f_frsize * RESERVE_SHARE)):
            raise WorkspaceError(
                f"{path!r} was not written: the disk is nearly full; remove what you no longer need, or tell "
                "the operator"
            )
