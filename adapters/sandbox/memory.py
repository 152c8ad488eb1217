"""Families of processes and the memory they hold, read from /proc."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def family(pid: int) -> list[int]:
    """The process and all that descend from it. Whoever ends while this looks is left out."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children(one)
    return found


def children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for task in tasks:
        found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def living_in_group(leader: int) -> Iterator[int]:
    """The processes of that group that have not ended."""
    return _living(leader, 2)


def living_in_session(leader: int) -> Iterator[int]:
    """As above; a shell at a terminal gives each job a group of its own."""
    return _living(leader, 3)


def _living(leader: int, field: int) -> Iterator[int]:
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        # The program's name is in brackets and may hold anything.
        fields = _read(f"/proc/{name}/stat").rpartition(")")[2].split()
        if fields and fields[0] not in "ZX" and int(fields[field]) == leader:
            yield int(name)


def exceeds(pids: Iterable[int], memory_bytes: int) -> bool:
    """Whether they hold more than that. The cheap figure counts pages of program files too, which all share; only when
    it is too high are those left out."""
    pids = list(pids)
    if sum(map(_resident, pids)) <= memory_bytes:
        return False
    return sum(map(_own, pids)) > memory_bytes


def _resident(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _own(pid: int) -> int:
    """Anonymous and shared memory, not files."""
    total = 0
    for line in _read(f"/proc/{pid}/status").splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssShmem"):
            total += int(value.split()[0]) * 1024
    return total


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
