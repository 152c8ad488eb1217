"""What happens in folders, told by the kernel: one inotify for all that is watched on an event loop.

A user of the machine has few instances (128) and many watches. A library that watches trees by itself takes an instance
and a thread for each, and follows links out of a workspace. Here a folder is watched by its open descriptor, so that
nobody can put another in its place. One read at a time, with a pause after it: a storm of files costs a few per cent of
a core, and what the kernel then could not keep is told as `missed`."""

import asyncio
import ctypes
import os
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

CLOSE_WRITE: Final = 0x8
MOVED_FROM: Final = 0x40
MOVED_TO: Final = 0x80
CREATE: Final = 0x100
DELETE: Final = 0x200
_DELETE_SELF: Final = 0x400
_MOVE_SELF: Final = 0x800
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_ONLY_FOLDERS: Final = 0x0100_0000
IS_FOLDER: Final = 0x4000_0000
_MASK: Final = CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | _DELETE_SELF | _MOVE_SELF | _ONLY_FOLDERS
_HEAD: Final = struct.Struct("iIII")
_READ_BYTES: Final = 1 << 16
_PAUSE_SECONDS: Final = 0.05
# For all that is watched in this process: what takes longer than a loop should wait.
THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="longshore-files")
# More than the kernel keeps (16,384 by default), for the last look.
_MOST_READS: Final = 100


class WatchesSpentError(Exception):
    """The system watches no more folders for us (fs.inotify.max_user_watches, max_user_instances), or none at all."""


class Watcher(Protocol):
    """Who is told. Called on the event loop; must not block."""

    def happened(self, folder: str, name: str, mask: int) -> None:
        """Something of this name, in a folder that was added."""

    def gone(self, folder: str) -> None:
        """The folder was removed or moved away."""

    def missed(self) -> None:
        """More happened than the kernel could keep."""


class Inotify:
    """Opened by the first `shared()` on a loop, closed when the last who has it calls `leave()`."""

    _of_loops: Final[dict[asyncio.AbstractEventLoop, "Inotify"]] = {}

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise WatchesSpentError(os.strerror(ctypes.get_errno()))
        # Folders are added by threads that walk through them.
        self._lock = threading.Lock()
        self._folders: dict[int, dict[Watcher, str]] = {}
        self._numbers: dict[Watcher, set[int]] = {}
        self._resume: asyncio.TimerHandle | None = None
        loop.add_reader(self._fd, self._readable)

    @classmethod
    def shared(cls, watcher: Watcher) -> "Inotify":
        """Raises WatchesSpentError where there is none to be had."""
        if sys.platform != "linux":
            raise WatchesSpentError("only Linux has inotify")
        loop = asyncio.get_running_loop()
        found = cls._of_loops.get(loop)
        if found is None:
            found = cls._of_loops[loop] = cls(loop)
        found._numbers[watcher] = set()
        return found

    def leave(self, watcher: Watcher) -> None:
        self.forget(watcher)
        with self._lock:
            self._numbers.pop(watcher, None)
            if self._numbers:
                return
            del self._of_loops[self._loop]
            if self._resume is not None:
                self._resume.cancel()
            self._loop.remove_reader(self._fd)
        # The kernel takes 10 ms for it, which are not the loop's.
        THREAD.submit(os.close, self._fd)

    def add(self, watcher: Watcher, fd: int, folder: str) -> None:
        """Watch an open folder, known to the watcher as `folder`. From any thread, and harmless after `leave()`."""
        with self._lock:
            if watcher not in self._numbers:
                return
            number = self._libc.inotify_add_watch(self._fd, f"/proc/self/fd/{fd}".encode(), _MASK)
            if number < 0:
                raise WatchesSpentError(os.strerror(ctypes.get_errno()))
            # Two sessions of an agent have the same workspace, and the kernel the same number for both.
            self._folders.setdefault(number, {})[watcher] = folder
            self._numbers[watcher].add(number)

    def forget(self, watcher: Watcher, below: str | None = None) -> None:
        """Stop watching everything for this watcher, or a folder and what is below it."""
        with self._lock:
            numbers = self._numbers.get(watcher, set())
            for number in tuple(numbers):
                watchers = self._folders[number]
                if below is not None and not f"{watchers[watcher]}/".startswith(f"{below}/"):
                    continue
                numbers.discard(number)
                del watchers[watcher]
                if not watchers:
                    del self._folders[number]
                    self._libc.inotify_rm_watch(self._fd, number)

    def drain(self) -> None:
        """Tell all that has happened so far."""
        for _ in range(_MOST_READS):
            if not self._read():
                return

    def _readable(self) -> None:
        self._read()
        self._loop.remove_reader(self._fd)
        self._resume = self._loop.call_later(_PAUSE_SECONDS, self._listen)

    def _listen(self) -> None:
        self._resume = None
        self._loop.add_reader(self._fd, self._readable)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        at = 0
        while at < len(data):
            number, mask, _, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size + size
            self._tell(number, mask, os.fsdecode(data[at - size : at].rstrip(b"\0")))
        return True

    def _tell(self, number: int, mask: int, name: str) -> None:
        with self._lock:
            if mask & _OVERFLOW:
                told = dict.fromkeys(self._numbers, "")
            elif mask & _IGNORED:
                told = {}
                for watcher in self._folders.pop(number, {}):
                    self._numbers[watcher].discard(number)
            else:
                told = dict(self._folders.get(number, {}))
        for watcher, folder in told.items():
            if mask & _OVERFLOW:
                watcher.missed()
            elif mask & (_DELETE_SELF | _MOVE_SELF):
                watcher.gone(folder)
            else:
                watcher.happened(folder, name, mask)
