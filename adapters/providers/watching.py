"""Which files change in a workspace while a program works in it, as FilesTouched events.

Told by the kernel where it can; where that watches no more folders, the workspace is looked through now and then. A
workspace that is too large for either is not watched, and somebody is told. Names only: no file is opened."""

import asyncio
import heapq
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from adapters import inotify
from adapters.events import FilesTouched, Progress, ProviderEvent
from adapters.inotify import Inotify, WatchesSpentError
from adapters.openat2 import O_PATH
from adapters.providers import walking
from adapters.providers.walking import PASSED_BY, UNSEEN, TooMuchError
from adapters.workspace_paths import DRAFT, shown

DEBOUNCE_SECONDS: Final = 0.3
LONGEST_GAP_SECONDS: Final = 10.0  # between events, for a program that writes all the time: they are kept for good
LOOK_SECONDS: Final = 2.0
MOST_PATHS: Final = 100
MOST_PENDING: Final = 5_000
LONGEST_PATH: Final = 300
MOST_WALKS: Final = 50  # through new folders, at a time
# A disk's clock ticks more slowly than ours.
_TICK_NS: Final = 20_000_000


class Watching:
    """While it is open, `emit` is called on the event loop with what changes; at its end with the rest. At most 100
    paths an event, the last one then says how many more there were (`… and 312 more`). All of a process share a thread;
    while nothing happens, no time is spent."""

    def __init__(self, workspace: Path, emit: Callable[[ProviderEvent], None]) -> None:
        self._workspace, self._emit = workspace, emit
        self._inotify: Inotify | None = None
        self._pending: set[str] = set()
        self._born: set[str] = set()  # of these, the files that were not there before
        self._more = 0
        self._timer: asyncio.TimerHandle | None = None
        self._gap, self._last = DEBOUNCE_SECONDS, 0.0
        self._walks: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._seen = 0
        self._watched = 0
        self._behind = False
        self.given_up = False

    async def __aenter__(self) -> "Watching":
        self._seen = time.time_ns() - _TICK_NS
        try:
            self._inotify = Inotify.shared(self)
        except WatchesSpentError:
            self._look_now_and_then()
            return self
        try:
            await self._walk("", None)
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """What has happened until now is told before it returns."""
        try:
            # A folder may have been made within one that is being walked through.
            for _attempt in range(5):
                if self._inotify is not None:
                    self._inotify.drain()
                if not self._walks:
                    break
                await asyncio.gather(*self._walks, return_exceptions=True)
            if self._looking is not None:
                self._looking.cancel()
                await asyncio.gather(self._looking, return_exceptions=True)
                await self._look()
        finally:
            for task in self._walks:
                task.cancel()
            self._leave()
            self._flush()

    def happened(self, folder: str, name: str, mask: int) -> None:
        path = f"{folder}/{name}" if folder else name
        if name in UNSEEN or name.startswith(DRAFT) or self.given_up:
            return
        if not mask & inotify.IS_FOLDER:
            self._file(path, mask)
        elif name in PASSED_BY:
            self._touched(f"{path}/")
        else:
            if mask & inotify.MOVED_FROM and self._inotify is not None:
                self._inotify.forget(self, path)
            if mask & (inotify.CREATE | inotify.MOVED_TO):
                self._start_walk(path)
            else:
                self._touched(f"{path}/")

    def _file(self, path: str, mask: int) -> None:
        """A file that came and went between two events (a draft, renamed into place) was never there."""
        if mask & (inotify.DELETE | inotify.MOVED_FROM) and path in self._born:
            self._born.discard(path)
            self._pending.discard(path)
            return
        if mask & inotify.CREATE and len(self._born) < MOST_PENDING:
            self._born.add(path)
        self._touched(path)

    def gone(self, folder: str) -> None:
        if not folder:
            self._give_up("it was moved or removed")

    def missed(self) -> None:
        if not self._behind:
            self._behind = True
            self._start(self._catch_up())

    def _start_walk(self, folder: str) -> None:
        if len(self._walks) < MOST_WALKS and self._watched < walking.MOST_FOLDERS:
            self._start(self._walk(folder, 0))
        else:
            self.missed()

    def _start(self, walk: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(walk)
        self._walks.add(task)
        task.add_done_callback(self._walks.discard)

    async def _catch_up(self) -> None:
        """One walk through everything, for all that was missed by the time it begins."""
        await asyncio.sleep(DEBOUNCE_SECONDS)
        self._behind, self._watched = False, 0
        await self._walk("", self._seen)

    async def _walk(self, folder: str, since: int | None) -> None:
        """Watch the folders there, and take note of the files that changed since then."""
        began = time.time_ns() - _TICK_NS
        try:
            found = await asyncio.get_running_loop().run_in_executor(inotify.THREAD, self._found, folder, since)
            for path in found[:MOST_PENDING]:
                self._touched(path)
            self._more += len(found[MOST_PENDING:])
        except TooMuchError as error:
            self._give_up(f"it holds {error}")
        except WatchesSpentError:
            self._look_now_and_then()
        except OSError as error:
            self._give_up(f"it cannot be opened: {error.strerror}")
        else:
            if not folder:
                self._seen = began

    def _found(self, folder: str, since: int | None) -> list[str]:
        """In the thread."""
        watched = self._inotify
        budget = {"folders": walking.MOST_FOLDERS, "entries": walking.MOST_ENTRIES}

        def enter(fd: int, path: str) -> None:
            if watched is not None:
                watched.add(self, fd, path)
                self._watched += 1

        # Not kept open: as long as it is, the kernel does not say that it was removed.
        root = os.open(self._workspace, O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return list(walking.walk(root, folder, since, enter, budget))
        finally:
            os.close(root)

    def _look_now_and_then(self) -> None:
        """For a machine that watches no more folders."""
        if self._looking is None and not self.given_up:
            self._leave()
            self._looking = asyncio.get_running_loop().create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        while not self.given_up:
            started = time.monotonic()
            await self._look()
            await asyncio.sleep(max(LOOK_SECONDS, 20 * (time.monotonic() - started)))

    async def _look(self) -> None:
        if not self.given_up:
            await self._walk("", self._seen)

    def _touched(self, path: str) -> None:
        if len(self._pending) < MOST_PENDING:
            self._pending.add(path)
        else:
            self._more += path not in self._pending
        if self._timer is None:
            loop = asyncio.get_running_loop()
            busy = loop.time() - self._last < 2 * self._gap
            self._gap = min(2 * self._gap, LONGEST_GAP_SECONDS) if busy else DEBOUNCE_SECONDS
            self._timer = loop.call_later(self._gap, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._last = None, asyncio.get_running_loop().time()
        paths, more = heapq.nsmallest(MOST_PATHS, self._pending), self._more + len(self._pending) - MOST_PATHS
        self._pending, self._more = set(), 0
        self._born.clear()
        if paths:
            rest = [f"… and {more:,} more"] if more > 0 else []
            self._emit(FilesTouched(paths=(*map(_named, paths), *rest)))

    def _give_up(self, why: str) -> None:
        if not self.given_up:
            self.given_up = True
            self._leave()
            self._emit(Progress(text=f"changes of files are no longer watched in this workspace: {why}"))

    def _leave(self) -> None:
        if self._inotify is not None:
            self._inotify.leave(self)
            self._inotify = None


def _named(path: str) -> str:
    path = shown(path)
    return path if len(path) <= LONGEST_PATH else f"{path[: LONGEST_PATH - 1]}…"
