"""What an agent calls a file: its path, taken apart, and what is wrong with it, in words for the agent.

Only text is looked at here, never the disk. A path that passes still goes through links somebody else made; that it
stays beneath the workspace is the business of whoever opens it (`adapters/openat2.py`)."""

import errno
import os
from typing import Final

from adapters.errors import WorkspaceError

INSIDE: Final = "/workspace"  # how sandboxed programs, and so agents, name the folder
DRAFT: Final = ".longshore-"  # what our unfinished files begin with
MAX_NAME: Final = 255  # bytes, of one part
MAX_PATH: Final = 4000  # bytes

_REASONS: Final = {
    errno.ENOENT: "there is no {path!r} in your workspace; list_files shows what there is",
    errno.ENOTDIR: "{path!r} is not a folder, or goes through a file as if that were one",
    errno.EISDIR: "{path!r} is a folder, not a file",
    errno.EXDEV: "{path!r} leads out of your workspace through a link; only what lies within it can be used",
    errno.ELOOP: "{path!r} goes through a link that is not followed; name the file or folder itself",
    errno.ENAMETOOLONG: "{path!r} is too long; use shorter names or fewer folders within each other",
    errno.EACCES: "{path!r} may not be opened: its permissions forbid it; change them with chmod",
    errno.EPERM: "{path!r} may not be changed: its permissions forbid it",
    errno.EROFS: "{path!r} cannot be changed: the workspace is read-only",
    errno.ENXIO: "{path!r} is not a plain file (a socket or a device); only plain files can be used",
    errno.ENODEV: "{path!r} is not a plain file (a device); only plain files can be used",
    errno.EAGAIN: "{path!r} is being changed or locked by another program; try again",
    errno.EEXIST: "{path!r} goes through a link that leads nowhere; remove it or use another name",
    errno.ENOSPC: "{path!r} was not written: the disk is full; remove what you no longer need, or tell the operator",
    errno.EDQUOT: "{path!r} was not written: the disk quota is used up; remove what you no longer need",
}


def shown(name: str) -> str:
    """A name on one line: what could break it, or cannot be printed, is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)


def parts_of(path: str, *, file: bool = False) -> list[str]:
    """The path's parts beneath the workspace. `..` is resolved here, as text: none is left for a link to play with."""
    if not path:
        raise WorkspaceError("the path is empty; give one like notes/a.md")
    if "\0" in path:
        raise WorkspaceError("the path holds a NUL character, which no name can; leave it out")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise WorkspaceError(
            f"the path {shown(path)[:200]!r} holds characters that no name can; leave them out"
        ) from None
    if size > MAX_PATH:
        raise WorkspaceError(f"the path has {size:,} bytes, at most {MAX_PATH:,} are possible; use shorter names")
    inner = path
    if path.startswith("/"):
        if path != INSIDE and not path.startswith(f"{INSIDE}/"):
            raise WorkspaceError(
                f"{path!r} is not in your workspace; give a path relative to it, like notes/a.md, or "
                f"{INSIDE}/notes/a.md"
            )
        inner = path[len(INSIDE) :]
    parts: list[str] = []
    for part in inner.split("/"):
        if part == "..":
            if not parts:
                raise WorkspaceError(f"{path!r} leads out of your workspace; only what lies within it can be used")
            parts.pop()
        elif part not in ("", "."):
            if len(os.fsencode(part)) > MAX_NAME:
                raise WorkspaceError(f"a name in {path[:100]!r}... is too long: at most {MAX_NAME} bytes are possible")
            parts.append(part)
    if file and (not parts or path.endswith("/")):
        raise WorkspaceError(f"{path!r} is a folder, not a file; give the name of a file")
    return parts


class explained:  # noqa: N801  # used like a function; a generator would cost more than opening the file
    """What the system said of a path, in words for the agent."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            otherwise = "{path!r} cannot be used: " + (error.strerror or type(error).__name__)
            raise WorkspaceError(_REASONS.get(error.errno or 0, otherwise).format(path=self._path)) from error
