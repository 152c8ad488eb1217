"""Whether this machine has the memory for another CLI agent. Each takes hundreds of megabytes, and a machine that swaps
serves nobody: whoever does not fit comes back later and holds no slot meanwhile."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from adapters.errors import ErrorClass, ProviderError

# So long a program that has just started may not hold yet what it will.
GROWING_SECONDS: Final = 30.0
COME_BACK_SECONDS: Final = 15.0
# What must stay free for everybody else.
SPARE_BYTES: Final = 256 << 20
MB: Final = 1 << 20


class Admission:
    """One per process."""

    def __init__(self) -> None:
        self._growing: list[tuple[float, int]] = []

    @contextmanager
    def admit(self, name: str, memory_bytes: int) -> Iterator[None]:
        """Raises ProviderError, to come back later, if it does not fit."""
        now = time.monotonic()
        self._growing = [one for one in self._growing if one[0] > now]
        free = free_memory()
        promised = sum(size for _, size in self._growing)
        if free is not None and free - promised < memory_bytes + SPARE_BYTES:
            raise ProviderError(
                f"there is no memory for {name} on this machine now: it takes {memory_bytes // MB} MB, "
                f"{SPARE_BYTES // MB} MB must stay free, and there are {max(0, free - promised) // MB} MB",
                ErrorClass.RATE_LIMIT,
                COME_BACK_SECONDS,
                asked=False,
            )
        entry = (now + GROWING_SECONDS, memory_bytes)
        self._growing.append(entry)
        try:
            yield
        finally:
            if entry in self._growing:
                self._growing.remove(entry)


def free_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that a program could have: of the machine, or of the container this runs in. None: nobody knows."""
    found = [size for size in (_of_machine(proc), _of_container(cgroups)) if size is not None]
    return min(found, default=None)


def _of_machine(proc: Path) -> int | None:
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _of_container(cgroups: Path) -> int | None:
    try:
        limit = (cgroups / "memory.max").read_text().strip()
        used = int((cgroups / "memory.current").read_text())
        # Files that are only read again if memory is wanted for something else.
        cached = sum(
            int(line.split()[1])
            for line in (cgroups / "memory.stat").read_text().splitlines()
            if line.startswith("inactive_file ")
        )
        return None if limit == "max" else max(0, int(limit) - used + cached)
    except (OSError, ValueError, IndexError):
        return None
