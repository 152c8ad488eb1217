"""All processes below one, and the most memory they held together: for programs that start others.

Resident sets are added up, so pages that several of them share count more than once: on both sides alike, and without
looking at what the rest of the machine maps, as a proportional figure would."""

import ctypes
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

SAMPLE_SECONDS = 0.05
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6
PR_SET_CHILD_SUBREAPER = 36


def below(root: int, besides: frozenset[int] = frozenset()) -> list[int]:
    """Living descendants; not those in `besides`, nor what these have started."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended meanwhile
            state, parent = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX" and int(entry) not in besides:
                children[int(parent)].append(int(entry))
    found, left = list[int](), [root]
    while left:
        left += (more := children[left.pop()])
        found += more
    return found


def resident_mb(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MB
    except OSError:
        return 0.0


class Watch:
    """While it is open: the most memory of everything below `root` (`below_mb`), and of `root` itself (`root_mb`)."""

    def __init__(self, root: int, besides: frozenset[int] = frozenset()) -> None:
        self._root, self._besides = root, besides
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self.below_mb = 0.0
        self.root_mb = self.before_mb = resident_mb(root)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.below_mb = max(self.below_mb, sum(map(resident_mb, below(self._root, self._besides))))
            self.root_mb = max(self.root_mb, resident_mb(self._root))


@contextmanager
def orphans_adopted() -> Iterator[frozenset[int]]:
    """What a program leaves behind becomes a child of this process: it is counted, and can be ended. Yields what was
    running before."""
    before = frozenset(below(os.getpid()))
    _adopt(True)
    try:
        yield before
    finally:
        end_all(below(os.getpid(), before))
        _adopt(False)


def end_all(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        with suppress(ChildProcessError):  # the loop has waited for it, or its own parent will
            os.waitpid(pid, 0)


def _adopt(orphans: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this system does not let a process adopt orphans (prctl)")
