"""What the workspace does with a file or folder that is open: look at it, read, fill, copy and list it.

Everything here takes descriptors, or a name directly in an open folder: no path that could lead elsewhere comes this
far. Errors of the system pass as they are; the workspace puts them into words."""

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from adapters.errors import WorkspaceError
from adapters.openat2 import O_PATH, open_beneath
from adapters.workspace_paths import explained

MAX_FOLDER: Final = 50_000  # entries of one folder that are looked at
FOLDER_FLAGS: Final = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
# A pipe is opened without waiting for its other end, and a terminal does not become ours.
READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MAKE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1 << 20


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


def check_plain(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "", path)
    if not stat.S_ISREG(status.st_mode):
        raise WorkspaceError(f"{path!r} is not a plain file (a pipe, socket or device); only plain files can be used")
    if status.st_nlink > 1:
        raise WorkspaceError(
            f"{path!r} is a hard link: the file has {status.st_nlink} names, and another may lie outside your "
            "workspace. Make a copy (cp) and use that, or remove the other names"
        )


def check_same(path: str, expected: Version, found: os.stat_result | None) -> None:
    if found is None or version_of(found) != expected:
        raise WorkspaceError(f"{path!r} was changed by somebody else meanwhile, and was left so; read it again")


def is_unlinked(fd: int) -> bool:
    """Whether the name by which it was opened is gone. Not known, and taken for no, where there is no /proc."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}").endswith(" (deleted)")
    except OSError:
        return False


def version_of(status: os.stat_result) -> Version:
    return Version(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def status_of(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def permissions_after(old: os.stat_result | None) -> int:
    return stat.S_IMODE(old.st_mode) & 0o777 if old is not None and stat.S_ISREG(old.st_mode) else 0o644


def open_folder(root: int, parts: list[str]) -> int:
    return open_beneath(root, "/".join(parts), FOLDER_FLAGS)


def make_folders(root: int, parts: list[str], owner: tuple[int, int] | None) -> int:
    try:
        return open_folder(root, parts)
    except FileNotFoundError:
        pass
    above = os.dup(root)
    try:
        for depth, name in enumerate(parts, 1):
            try:
                inner = open_folder(root, parts[:depth])
            except FileNotFoundError:
                _make_folder(above, name, owner)
                inner = open_folder(root, parts[:depth])
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


def fill(fd: int, data: bytes, owner: tuple[int, int] | None, permissions: int) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    if owner is not None:
        os.fchown(fd, *owner)
    os.fchmod(fd, permissions)


def read_at(fd: int, limit: int, offset: int) -> bytes:
    pieces = []
    while limit > 0 and (piece := os.pread(fd, min(limit, _CHUNK), offset)):
        pieces.append(piece)
        limit -= len(piece)
        offset += len(piece)
    return b"".join(pieces)


def copy_up_to(source: int, target: int, path: str, limit: int) -> int:
    copied = 0
    with explained(path):
        while piece := os.read(source, min(_CHUNK, limit + 1 - copied)):
            copied += len(piece)
            if copied > limit:
                raise WorkspaceError(f"{path!r} grew while it was copied; at most {limit:,} bytes can be sent")
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(target, rest) :]
    return copied


def scan(root: int, folder: str, flags: int = 0) -> list[Entry]:
    fd = open_beneath(root, folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | flags)
    found = []
    try:
        with os.scandir(fd) as listing:
            for item in islice(listing, MAX_FOLDER):
                with suppress(FileNotFoundError):
                    path = f"{folder}/{item.name}" if folder else item.name
                    found.append(entry_of(path, item.stat(follow_symlinks=False)))
    finally:
        os.close(fd)
    return sorted(found, key=lambda entry: entry.path)


def entry_of(path: str, status: os.stat_result) -> Entry:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
    return Entry(path, next((kind for check, kind in kinds if check(status.st_mode)), "other"), status.st_size)
