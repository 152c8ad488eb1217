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
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from adapters.errors import WorkspaceError
from adapters.openat2 import O_PATH, open_beneath, rename_new

INSIDE: Final = "/workspace"  # how sandboxed programs, and so agents, name the folder
MAX_WRITTEN: Final = 20 << 20
MAX_NAME: Final = 255  # bytes, of one part
MAX_PATH: Final = 4000  # bytes
MAX_DEPTH: Final = 64
MAX_FOLDER: Final = 50_000  # entries of one folder that are looked at
RESERVE: Final = 256 << 20  # bytes of disk that agents leave to the rest of the machine ...
RESERVE_SHARE: Final = 0.02  # ... or this part of a small one
_FOLDER: Final = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
# A pipe is opened without waiting for its other end, and a terminal does not become ours.
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1 << 20

_REASONS: Final = {
    errno.ENOENT: "there is no {path!r} in your workspace; list_files shows what there is",
    errno.ENOTDIR: "{path!r} is not a folder, or goes through a file as if that were one",
    errno.EISDIR: "{path!r} is a folder, not a file",
    errno.EXDEV: "{path!r} leads out of your workspace through a link; only what lies within it can be used",
    errno.ELOOP: "{path!r} goes through a link that is not followed; name the file or folder itself",
    errno.ENAMETOOLONG: "{path!r} is too long; use shorter names or fewer folders within each other",
    errno.EACCES: "{path!r} may not be opened: its permissions forbid it; change them with chmod",
    errno.EPERM: "{path!r} may not be changed: its permissions forbid it",
    errno.EROFS: "{path!r} cannot be changed: the workspace is read-only",
    errno.ENXIO: "{path!r} is not a plain file (a socket or a device); only plain files can be used",
    errno.ENODEV: "{path!r} is not a plain file (a device); only plain files can be used",
    errno.EAGAIN: "{path!r} is being changed or locked by another program; try again",
    errno.EEXIST: "{path!r} goes through a link that leads nowhere; remove it or use another name",
    errno.ENOSPC: "{path!r} was not written: the disk is full; remove what you no longer need, or tell the operator",
    errno.EDQUOT: "{path!r} was not written: the disk quota is used up; remove what you no longer need",
}


@dataclass(frozen=True)
class Entry:
    """`path` is relative to the workspace. `kind` is what it is itself: links are not followed to find out."""

    path: str
    kind: str  # file, folder, link, other
    size: int


@dataclass(frozen=True)
class Version:
    """What a file was when it was read: another one, or other content, has another."""

    inode: int
    size: int
    modified: int  # nanoseconds
    changed: int


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
        name = "/".join(_parts(path, file=True))
        with _explained(path):
            fd, status = self._open_plain(path, name)
            try:
                return _read(fd, limit, offset), _version(status)
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
        with self._opened(path) as (fd, _), _explained(path), os.fdopen(fd, "rb", closefd=False) as file:
            yield file

    def size(self, path: str) -> int:
        with self._opened(path) as (_, status):
            return status.st_size

    def entry(self, path: str) -> Entry:
        """What has that name: a link is a link."""
        parts = _parts(path)
        with _explained(path), self._folder(parts[:-1]) as folder:
            return _entry(
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
        parts = _parts(path, file=True)
        with _explained(path), self._folder(parts[:-1]) as folder:
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
                return _copy(source, target, path, limit)
            made = os.open(target, _MAKE, 0o600)
            try:
                return _copy(source, made, path, limit)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
            finally:
                os.close(made)

    def entries(self, path: str = ".") -> list[Entry]:
        """What lies in a folder, by name."""
        parts = _parts(path)
        with _explained(path), self._folder() as root:
            return _scan(root, "/".join(parts))

    def walk(self, path: str = ".", *, limit: int = 10_000) -> Iterator[Entry]:
        """All files and folders below, depth first, by name; ends quietly after `limit`. Links are not followed;
        folders that vanish or are more than MAX_DEPTH deep are left out."""
        parts = _parts(path)
        with _explained(path), self._folder() as root:
            waiting = _scan(root, "/".join(parts))[::-1]
            while waiting and limit > 0:
                limit -= 1
                yield (entry := waiting.pop())
                if entry.kind == "folder" and entry.path.count("/") - len(parts) < MAX_DEPTH - 1:
                    with suppress(OSError):
                        waiting += _scan(root, entry.path, os.O_NOFOLLOW)[::-1]

    @contextmanager
    def _folder(self, parts: list[str] | None = None, *, make: bool = False) -> Iterator[int]:
        """The workspace itself, or a folder beneath it."""
        if make:
            self.root.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.root, _FOLDER)
        try:
            if parts:
                root = fd
                fd = _make_folders(root, parts, self._owner()) if make else _open_folder(root, parts)
                os.close(root)
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
        """A plain file with no other name, open for reading."""
        name = "/".join(_parts(path, file=True))
        with _explained(path):
            fd, status = self._open_plain(path, name)
        try:
            yield fd, status
        finally:
            os.close(fd)

    def _open_plain(self, path: str, name: str) -> tuple[int, os.stat_result]:
        root = os.open(self.root, _FOLDER)
        try:
            for _ in range(8):
                fd = open_beneath(root, name, _READ)
                try:
                    status = os.fstat(fd)
                    _check_plain(path, status)
                    # One name is left: it must be the one that was opened. Else this may be a file from elsewhere,
                    # whose name in here was removed just now so that it looks like a file of ours.
                    if status.st_nlink == 0 or not _is_unlinked(fd):
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
        *parents, name = _parts(path, file=True)
        with _explained(path), self._folder(parents, make=True) as folder:
            old = _status(folder, name)
            if old is not None and new:
                return False
            if old is not None and not stat.S_ISLNK(old.st_mode):
                _check_plain(path, old)
            self._check_room(path, folder, len(data))
            draft = f".longshore-{secrets.token_hex(8)}"
            fd = os.open(draft, _MAKE, 0o600, dir_fd=folder)
            try:
                _fill(fd, data, self._owner(), _permissions(old))
                if new:
                    rename_new(draft, name, folder)
                else:
                    if replacing is not None:
                        _check_same(path, replacing, _status(folder, name))
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


def shown(name: str) -> str:
    """A name on one line: what could break it, or cannot be printed, is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)


def _parts(path: str, *, file: bool = False) -> list[str]:
    """The path's parts beneath the workspace. `..` is resolved here, as text: none is left for a link to play with."""
    if not path:
        raise WorkspaceError("the path is empty; give one like notes/a.md")
    if "\0" in path:
        raise WorkspaceError("the path holds a NUL character, which no name can; leave it out")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise WorkspaceError(
            f"the path {shown(path)[:200]!r} holds characters that no name can; leave them out"
        ) from None
    if size > MAX_PATH:
        raise WorkspaceError(f"the path has {size:,} bytes, at most {MAX_PATH:,} are possible; use shorter names")
    inner = path
    if path.startswith("/"):
        if path != INSIDE and not path.startswith(f"{INSIDE}/"):
            raise WorkspaceError(
                f"{path!r} is not in your workspace; give a path relative to it, like notes/a.md, or "
                f"{INSIDE}/notes/a.md"
            )
        inner = path[len(INSIDE) :]
    parts: list[str] = []
    for part in inner.split("/"):
        if part == "..":
            if not parts:
                raise WorkspaceError(f"{path!r} leads out of your workspace; only what lies within it can be used")
            parts.pop()
        elif part not in ("", "."):
            if len(os.fsencode(part)) > MAX_NAME:
                raise WorkspaceError(f"a name in {path[:100]!r}... is too long: at most {MAX_NAME} bytes are possible")
            parts.append(part)
    if file and (not parts or path.endswith("/")):
        raise WorkspaceError(f"{path!r} is a folder, not a file; give the name of a file")
    return parts


class _explained:  # noqa: N801  # used like a function; a generator would cost more than opening the file
    """What the system said of a path, in words for the agent."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            otherwise = "{path!r} cannot be used: " + (error.strerror or type(error).__name__)
            raise WorkspaceError(_REASONS.get(error.errno or 0, otherwise).format(path=self._path)) from error


def _check_plain(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "", path)
    if not stat.S_ISREG(status.st_mode):
        raise WorkspaceError(f"{path!r} is not a plain file (a pipe, socket or device); only plain files can be used")
    if status.st_nlink > 1:
        raise WorkspaceError(
            f"{path!r} is a hard link: the file has {status.st_nlink} names, and another may lie outside your "
            "workspace. Make a copy (cp) and use that, or remove the other names"
        )


def _check_same(path: str, expected: Version, found: os.stat_result | None) -> None:
    if found is None or _version(found) != expected:
        raise WorkspaceError(f"{path!r} was changed by somebody else meanwhile, and was left so; read it again")


def _is_unlinked(fd: int) -> bool:
    """Whether the name by which it was opened is gone. Not known, and taken for no, where there is no /proc."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}").endswith(" (deleted)")
    except OSError:
        return False


def _version(status: os.stat_result) -> Version:
    return Version(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _status(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _permissions(old: os.stat_result | None) -> int:
    return stat.S_IMODE(old.st_mode) & 0o777 if old is not None and stat.S_ISREG(old.st_mode) else 0o644


def _open_folder(root: int, parts: list[str]) -> int:
    return open_beneath(root, "/".join(parts), _FOLDER)


def _make_folders(root: int, parts: list[str], owner: tuple[int, int] | None) -> int:
    try:
        return _open_folder(root, parts)
    except FileNotFoundError:
        pass
    above = os.dup(root)
    try:
        for depth, name in enumerate(parts, 1):
            try:
                inner = _open_folder(root, parts[:depth])
            except FileNotFoundError:
                _make_folder(above, name, owner)
                inner = _open_folder(root, parts[:depth])
            os.close(above)
            above = inner
        return os.dup(above)
    finally:
        os.close(above)


def _make_folder(above: int, name: str, owner: tuple[int, int] | None) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=above)
    except FileExistsError:
        return  # somebody else was quicker; or a link that leads nowhere, which opening it will tell
    if owner is not None:
        # Opened first: a name could by now stand for another file, but a folder is never one from elsewhere.
        made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        try:
            os.fchown(made, *owner)
        finally:
            os.close(made)


def _fill(fd: int, data: bytes, owner: tuple[int, int] | None, permissions: int) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    if owner is not None:
        os.fchown(fd, *owner)
    os.fchmod(fd, permissions)


def _read(fd: int, limit: int, offset: int) -> bytes:
    pieces = []
    while limit > 0 and (piece := os.pread(fd, min(limit, _CHUNK), offset)):
        pieces.append(piece)
        limit -= len(piece)
        offset += len(piece)
    return b"".join(pieces)


def _copy(source: int, target: int, path: str, limit: int) -> int:
    copied = 0
    with _explained(path):
        while piece := os.read(source, min(_CHUNK, limit + 1 - copied)):
            copied += len(piece)
            if copied > limit:
                raise WorkspaceError(f"{path!r} grew while it was copied; at most {limit:,} bytes can be sent")
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(target, rest) :]
    return copied


def _scan(root: int, folder: str, flags: int = 0) -> list[Entry]:
    fd = open_beneath(root, folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | flags)
    found = []
    try:
        with os.scandir(fd) as listing:
            for item in islice(listing, MAX_FOLDER):
                with suppress(FileNotFoundError):
                    path = f"{folder}/{item.name}" if folder else item.name
                    found.append(_entry(path, item.stat(follow_symlinks=False)))
    finally:
        os.close(fd)
    return sorted(found, key=lambda entry: entry.path)


def _entry(path: str, status: os.stat_result) -> Entry:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
    return Entry(path, next((kind for check, kind in kinds if check(status.st_mode)), "other"), status.st_size)
