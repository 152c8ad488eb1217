"""What lies in an agent's folders: lists for the agent to read, and which names a pattern means.

Blocking: called in a thread, by `adapters/tools/files.py` and by the search."""

from fnmatch import fnmatchcase
from itertools import islice
from typing import Final

from adapters.workspace import Workspace
from adapters.workspace_files import Entry
from adapters.workspace_paths import shown

MAX_LISTED: Final = 1000
MAX_WALKED: Final = 20_000


def list_folder(workspace: Workspace, path: str, pattern: str, *, recursive: bool) -> str:
    top = workspace.entries(path)
    found = list(workspace.walk(path, limit=MAX_WALKED)) if recursive else top
    folder = prefix_of(top)
    matching = (entry for entry in found if matches(entry, folder, pattern))
    lines = [_line(entry) for entry in islice(matching, MAX_LISTED)]
    if not lines:
        return f"{shown(path)} is empty" if not found else f"nothing in {shown(path)} has such a name"
    if next(matching, None) is not None:
        lines.append(f"[only the first {MAX_LISTED:,} are listed; list a folder within it, or give a narrower pattern]")
    elif recursive and len(found) == MAX_WALKED:
        lines.append(f"[only the first {MAX_WALKED:,} files and folders were looked at; list a folder within it]")
    return "\n".join(lines)


def matches(entry: Entry, folder: str, pattern: str) -> bool:
    path = entry.path.removeprefix(folder)
    pattern = pattern.removeprefix("**/")
    return fnmatchcase(path, pattern) or fnmatchcase(path.rpartition("/")[2], pattern)


def prefix_of(entries: list[Entry]) -> str:
    return entries[0].path[: entries[0].path.rfind("/") + 1] if entries else ""


def _line(entry: Entry) -> str:
    name = shown(entry.path)
    match entry.kind:
        case "folder":
            return f"{name}/"
        case "file":
            return f"{name} ({entry.size:,} bytes)"
        case "link":
            return f"{name} (a link)"
        case _:
            return f"{name} (not a plain file)"
