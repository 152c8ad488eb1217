"""All access to files in an agent's folder from outside the sandbox. The agent writes there, so every path, link and
race in it is hostile: nothing here can be made to touch what lies elsewhere."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """`path` is relative to the workspace. `kind` is what it is itself: links are not followed to find out."""

    path: str
    kind: str  # file, folder, link, other
    size: int


class Workspace:
    """One agent's folder. Paths are relative to it (`notes/a.md`, also written `/workspace/notes/a.md`). What is wrong
    with a path, or with the file, is a WorkspaceError whose text is for the agent. Blocking: call it in a thread."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, path: str, *, limit: int, offset: int = 0) -> bytes:
        """At most `limit` bytes of a plain file."""
        raise NotImplementedError

    def size(self, path: str) -> int:
        raise NotImplementedError

    def write(self, path: str, data: bytes) -> None:
        """Make or replace a plain file, whole or not at all; folders on the way are made."""
        raise NotImplementedError

    def entries(self, path: str = ".") -> list[Entry]:
        """What lies in a folder, by name."""
        raise NotImplementedError

    def walk(self, path: str = ".", *, limit: int = 10_000) -> Iterator[Entry]:
        """All files and folders below, depth first, by name; ends quietly after `limit`."""
        raise NotImplementedError
