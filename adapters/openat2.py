"""Opening a path that must stay beneath a folder, whatever links and races somebody puts in its way.

The kernel does it where it can (Linux 5.6: `openat2`, for which Python has no function): links that stay beneath are
followed, all others are refused. Elsewhere each part of the path is opened by itself and no link is followed at all.
Checking a path first and opening it afterwards is what neither does: between the two, somebody changes it."""

import ctypes
import errno
import functools
import os
import stat
import sys
from typing import Final

_OPENAT2: Final = 437  # the same on every architecture since system calls are numbered together
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_BENEATH: Final = 0x08
_RENAME_NOREPLACE: Final = 1
# The kernel gives up on a `..` (in a link) while anything on the machine is renamed, and on a file whose lease another
# program must first give back.
_ATTEMPTS: Final = 64
O_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.cache
def available() -> bool:
    """Whether the kernel has it and lets us (older container runtimes forbid what they do not know). Tried once."""
    if sys.platform != "linux":
        return False
    folder = os.open("/", O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(_open_by_kernel(folder, ".", O_PATH | os.O_DIRECTORY, 0))
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def open_beneath(root_fd: int, path: str, flags: int, mode: int = 0) -> int:
    """A descriptor of what `path` leads to, which is beneath the folder `root_fd`. OSError otherwise: EXDEV if it leads
    out, ELOOP for a link that is not followed, EAGAIN if others change the folder faster than it can be walked."""
    if "\0" in path:
        raise ValueError("a path cannot hold a NUL")
    if available():
        return _open_by_kernel(root_fd, path, flags, mode)
    return _open_by_steps(root_fd, path, flags, mode)


def rename_new(old: str, new: str, folder_fd: int) -> None:
    """Rename within a folder; FileExistsError if something has that name. Where the system has no such call, the file
    has both names for a moment."""
    if (renameat2 := getattr(_libc(), "renameat2", None)) is not None:
        if renameat2(folder_fd, os.fsencode(old), folder_fd, os.fsencode(new), _RENAME_NOREPLACE) == 0:
            return
        if (code := ctypes.get_errno()) not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code), new)
    os.link(old, new, src_dir_fd=folder_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
    os.unlink(old, dir_fd=folder_fd)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_How), ctypes.c_size_t)
    libc.syscall.restype = ctypes.c_long
    return libc


def _open_by_kernel(root_fd: int, path: str, flags: int, mode: int) -> int:
    how = _How(flags | os.O_CLOEXEC, mode, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    call, name, size = _libc().syscall, os.fsencode(path or "."), ctypes.sizeof(how)
    code = errno.EAGAIN
    for _ in range(_ATTEMPTS):
        opened = call(_OPENAT2, root_fd, name, how, size)
        if opened >= 0:
            return int(opened)
        if (code := ctypes.get_errno()) not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), path)


def _open_by_steps(root_fd: int, path: str, flags: int, mode: int) -> int:
    if path.startswith("/") or ".." in path.split("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    parts = [part for part in path.split("/") if part not in ("", ".")] or ["."]
    folder = root_fd
    try:
        for part in parts[:-1]:
            inner = _step(folder, part, O_PATH | os.O_DIRECTORY, 0)
            if folder != root_fd:
                os.close(folder)
            folder = inner
        return _step(folder, parts[-1], flags, mode)
    finally:
        if folder != root_fd:
            os.close(folder)


def _step(folder: int, name: str, flags: int, mode: int) -> int:
    try:
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    except NotADirectoryError:
        # Also what a link is called when a folder was wanted; the caller should hear which of the two it is.
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise
    if flags & O_PATH and not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)  # O_PATH opens the link itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return opened
