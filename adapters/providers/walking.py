"""A walk through a workspace, for whoever watches it: bounded, never out of it through a link, and around the folders
in which tools keep thousands of files. Runs in a thread."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Final

from adapters.openat2 import open_beneath

MOST_FOLDERS: Final = 2_000
MOST_ENTRIES: Final = 50_000
# The repository's own, what waits for delivery, and what tools fetch or make by the thousand.
UNSEEN: Final = frozenset({".git", ".outbox"})
PASSED_BY: Final = frozenset(
    {
        *("node_modules", "bower_components", ".venv", "venv", "site-packages", "__pycache__", ".cache", ".npm"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".next", ".nuxt", ".gradle"),
        *(".terraform", ".svn", ".hg"),
    }
)


class TooMuchError(Exception):
    """The workspace holds more than is walked through."""


def walk(
    root_fd: int, start: str, since: int | None, enter: Callable[[int, str], None], budget: dict[str, int]
) -> Iterator[str]:
    """Files at or below `start` that changed at `since` (ns) or later; None: the files do not matter, only that each
    folder is entered (called with its descriptor, before it is read). `budget` is what is left of `folders` and
    `entries`; TooMuchError when it is spent."""
    waiting = [start]
    while waiting:
        folder = waiting.pop()
        # Gone, a link by now, or not ours to read: then there is nothing to see.
        with contextlib.suppress(OSError), _opened(root_fd, folder) as fd:
            budget["folders"] -= 1
            if budget["folders"] < 0:
                raise TooMuchError(f"more than {MOST_FOLDERS:,} folders")
            enter(fd, folder)
            with os.scandir(fd) as entries:
                for entry in entries:
                    budget["entries"] -= 1
                    if budget["entries"] < 0:
                        raise TooMuchError(f"more than {MOST_ENTRIES:,} files")
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in UNSEEN and entry.name not in PASSED_BY:
                            waiting.append(path)
                    elif since is not None and _changed(entry, since):
                        yield path


def _changed(entry: "os.DirEntry[str]", since: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return since == 0 or entry.stat(follow_symlinks=False).st_ctime_ns >= since
    return False


@contextlib.contextmanager
def _opened(root_fd: int, folder: str) -> Iterator[int]:
    fd = open_beneath(root_fd, folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield fd
    finally:
        os.close(fd)
