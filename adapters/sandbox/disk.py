"""How much a workspace holds, without walking through it all the time.

Free space on its disk is asked for at every look (microseconds); only when it has fallen by a step since the last walk
is the folder walked through, by `du`: in another process, so that a worker full of sessions does not stand still."""

import asyncio
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from adapters.errors import SandboxError
from adapters.sandbox.looking import look

_LARGEST_STEP = 32 << 20
_INODE_STEP = 10_000
_WALK_SECONDS = 30.0
# A disk that others fill as well must not keep `du` running all the time.
_REST = 5.0
# Of all processes together; nobody needs so many, and each takes a look.
_MOST_OPEN_FILES = 20_000


@dataclass
class _Seen:
    """What was true at the last walk. `until`: no other walk before."""

    free: int
    inodes: int
    full: bool
    until: float


class Disk:
    """What is known of each workspace; one per sandbox."""

    def __init__(self) -> None:
        self._seen: dict[Path, _Seen] = {}

    async def full(self, workspace: Path, disk_bytes: int) -> bool:
        """Whether it was over its limit when last seen, and still is. Quick for all others."""
        if (seen := self._seen.get(workspace)) is None or not seen.full:
            return False
        return await self._walk(workspace, disk_bytes, ())

    async def exceeds(self, workspace: Path, disk_bytes: int, pids: Iterable[int]) -> bool:
        """Whether it has come over its limit. `pids` are the processes that may hold deleted files open."""
        seen = self._seen.get(workspace)
        if seen is not None:
            if time.monotonic() < seen.until:
                return False
            now = os.statvfs(workspace)
            step = max(1 << 20, min(_LARGEST_STEP, disk_bytes // 8))
            if seen.free - now.f_bavail * now.f_frsize < step and seen.inodes - now.f_favail < _INODE_STEP:
                return False
        return await self._walk(workspace, disk_bytes, pids)

    async def _walk(self, workspace: Path, disk_bytes: int, pids: Iterable[int]) -> bool:
        before = os.statvfs(workspace)
        started = time.monotonic()
        used = await _used(workspace)
        deleted = await look(_deleted, workspace, pids)
        full = used is None or deleted is None or used + deleted > disk_bytes
        ended = time.monotonic()
        free = before.f_bavail * before.f_frsize
        self._seen[workspace] = _Seen(free, before.f_favail, full, ended + _REST * (ended - started))
        return full


async def _used(workspace: Path) -> int | None:
    """Bytes on the disk, or None if they cannot be counted: a folder that nobody may read hides what is in it."""
    try:
        du = await asyncio.create_subprocess_exec(
            "du", "-skx", str(workspace),
            env={"PATH": os.defpath, "LC_ALL": "C"},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise SandboxError(f"du could not be started: {error}") from error
    try:
        printed, complaints = await asyncio.wait_for(du.communicate(), _WALK_SECONDS)
    except TimeoutError:
        return None
    finally:
        if du.returncode is None:
            du.kill()
            await du.wait()
    # A file that goes away during the walk is a complaint too, and none of ours.
    if b"ermission denied" in complaints or not printed:
        return None
    return int(printed.split()[0]) * 1024


def _deleted(workspace: Path, pids: Iterable[int]) -> int | None:
    """Bytes of files that have no name any more but are held open: `du` cannot see them. None: too many to look at."""
    device = workspace.stat().st_dev
    found: dict[int, int] = {}
    left = _MOST_OPEN_FILES
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        left -= len(names)
        if left < 0:
            return None
        for name in names:
            try:
                status = os.stat(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if status.st_dev == device and status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
                found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())
